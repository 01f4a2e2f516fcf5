"""`bloom db`: look at the database's schema and move it."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Look at the database's schema and move it.")


def _address() -> str:
    from gpubloom.server.settings import SettingsError, load_settings

    try:
        return load_settings().database
    except SettingsError as error:
        typer.echo(f"A setting cannot be used. {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def status() -> None:
    """Say which revision the database is at and which one this program wants."""
    from gpubloom.server.db.migrate import current_revision, newest_revision

    typer.echo(f"database: {current_revision(_address()) or 'empty'}\nprogram:  {newest_revision()}")


@app.command()
def upgrade(revision: Annotated[str, typer.Argument(help="Revision to reach.")] = "head") -> None:
    """Bring the database to the newest schema; the server does it by itself when it starts."""
    from gpubloom.server.db import migrate

    changed = migrate.upgrade(_address(), revision)
    typer.echo("The database was brought up to date." if changed else "The database was up to date.")


@app.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="Revision to go back to; `base` removes every table.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Take the database back to an older schema. What the older one cannot hold is lost."""
    from gpubloom.server.db import migrate

    if not yes:
        typer.confirm(f"Go back to {revision}? Data that it cannot hold is lost.", abort=True)
    migrate.downgrade(_address(), revision)
    typer.echo(f"The database is at {revision}.")
