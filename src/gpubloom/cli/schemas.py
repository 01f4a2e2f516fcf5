"""`bloom runs config-schema` and `bloom server openapi`: the schema of a config file and of the HTTP API."""

import json

from gpubloom.cli.output import echo


def config_schema() -> None:
    """Print all fields of a config file as a JSON schema."""
    from gpubloom.plan import TrainConfig

    echo(json.dumps(TrainConfig.model_json_schema(), indent=2))


def openapi() -> None:
    """Print the OpenAPI schema of the HTTP API."""
    from gpubloom.server.app import create_app
    from gpubloom.server.settings import Settings

    # The description must not depend on this machine's settings.
    app = create_app(Settings(_env_file=None))
    echo(json.dumps(app.openapi(), indent=2, ensure_ascii=False))
