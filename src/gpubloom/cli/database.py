"""`bloom db`: the database's schema, and whose database it is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gpubloom.cli.output import WRONG_INPUT, fail

if TYPE_CHECKING:
    from gpubloom.server.db.database import Database

Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, help="The database's schema, and what becomes of a copy.")


def _address() -> str:
    from gpubloom.server.settings import SettingsError, load_settings

    try:
        return load_settings().database
    except SettingsError as error:
        fail(error.code, f"A setting cannot be used. {error}", status=WRONG_INPUT)


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


@app.command()
def moved() -> None:
    """Say that the database was moved, when the server asks: the machines it rents stay its own."""
    from gpubloom.server.rentals.installation import note_move

    _settled(note_move)
    typer.echo("The database was moved. The machines that it rents are its own.")


@app.command()
def copied() -> None:
    """Say that this database is a copy, when the server asks: what the original rents is let alone."""
    from gpubloom.server.rentals.installation import become_another

    paused = _settled(become_another)
    typer.echo(
        f"This is an installation of its own now. Jobs paused that go on at the original: {paused}. "
        "Give it another bucket, or another BLOOM_STORAGE_PREFIX, than the original has."
    )


def _settled(work: "Callable[[Database], Awaitable[Result]]") -> Result:
    from gpubloom.server.db import migrate
    from gpubloom.server.db.database import Database

    address = _address()
    migrate.upgrade(address)

    async def settled() -> Result:
        database = Database(address)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(settled())
