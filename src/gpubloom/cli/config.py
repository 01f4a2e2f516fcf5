"""`bloom config`: what a config file may hold."""

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
