"""`bloom openapi`: the API's description, from which the web app's types are made."""

import json

import typer


def openapi() -> None:
    """Print the OpenAPI description of the HTTP API."""
    from gpubloom.server.app import create_app
    from gpubloom.server.settings import Settings

    # The description must not depend on this machine's settings.
    app = create_app(Settings(_env_file=None))
    typer.echo(json.dumps(app.openapi(), indent=2, ensure_ascii=False))
