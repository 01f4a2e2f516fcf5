"""`bloom config schema` and `bloom openapi`: JSON schema of a config file, and of the HTTP API."""

import json

import typer

app = typer.Typer(help="What can be asked of a run.", no_args_is_help=True)


@app.command()
def schema() -> None:
    """Print the JSON schema of TrainConfig."""
    from gpubloom.plan import TrainConfig

    typer.echo(json.dumps(TrainConfig.model_json_schema(), indent=2))


@app.callback()
def _group() -> None:
    """Keeps `schema` a subcommand, though it is the only one."""


def openapi() -> None:
    """Print the OpenAPI description of the HTTP API."""
    from gpubloom.server.app import create_app
    from gpubloom.server.settings import Settings

    # The description must not depend on this machine's settings.
    app = create_app(Settings(_env_file=None))
    typer.echo(json.dumps(app.openapi(), indent=2, ensure_ascii=False))
