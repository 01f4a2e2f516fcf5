"""`bloom server database`: the schema of the database, and which installation it belongs to."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse
from gpubloom.errors import CodedError

if TYPE_CHECKING:
    from gpubloom.server.db.database import Database
    from gpubloom.server.settings import Settings

Result = TypeVar("Result")

# Not wrong input, or an error that may go away: `bloom up` tries again.
_UNAVAILABLE = 69

app = typer.Typer(no_args_is_help=True, help="Upgrade the database schema; confirm a move or a copy.")


class DatabaseCommands(TyperGroup):
    """Commands that say in a sentence why they cannot use the database."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CodedError as problem:
            refuse(problem)
        except Exception as problem:
            if not _is_unavailable(problem):
                raise
            fail_unavailable(problem)


def _is_unavailable(problem: Exception) -> bool:
    if "sqlalchemy" not in sys.modules:
        return False
    from sqlalchemy.exc import DatabaseError, InterfaceError, OperationalError

    # Their subclasses are faults of the program.
    return type(problem) in {DatabaseError, InterfaceError, OperationalError}


def fail_unavailable(problem: Exception) -> NoReturn:
    """End the command because the database cannot be used."""
    # The first line has the reason; it contains no address and so no password.
    reason = str(getattr(problem, "orig", None) or problem).strip().partition("\n")[0]
    fail(
        "database_unavailable",
        f"Cannot connect to the database: {reason}. Check BLOOM_DATABASE_URL.",
        status=_UNAVAILABLE,
    )


def settings_or_fail() -> "Settings":
    """The settings of the environment. Files that the command makes in the home are closed to others."""
    from gpubloom.server.home import private_umask
    from gpubloom.server.settings import SettingsError, load_settings

    private_umask()
    try:
        return load_settings()
    except SettingsError as error:
        fail(error.code, f"Invalid setting. {error}", status=WRONG_INPUT)


def _address() -> str:
    return settings_or_fail().database


@app.command()
def status() -> None:
    """Show the schema revision of the database and the newest revision."""
    from gpubloom.server.db.migrate import current_revision, newest_revision

    echo(f"database: {current_revision(_address()) or 'empty'}\nnewest:   {newest_revision()}")


@app.command()
def upgrade(
    revision: Annotated[str, typer.Argument(help="Schema revision; head is the newest.")] = "head",
) -> None:
    """Upgrade the schema of the database.

    The server also does this when it starts.
    """
    from gpubloom.server.audit.maintenance import sign_migrated
    from gpubloom.server.db import migrate

    settings = settings_or_fail()
    before = migrate.current_revision(settings.database)
    changed = migrate.upgrade(settings.database, revision)
    if changed and migrate.current_revision(settings.database) == migrate.newest_revision():
        in_database(settings, lambda database: sign_migrated(database, settings.home, before))
    echo("Upgraded the database." if changed else "The database is up to date.")


@app.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="Schema revision; `base` removes every table.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Downgrade the schema of the database.

    Data that the older schema cannot store is lost.
    """
    from gpubloom.server.db import migrate

    if not yes:
        typer.confirm(
            f"Downgrade the database to {revision}? Data that this revision cannot store is lost.", abort=True
        )
    migrate.downgrade(_address(), revision)
    echo(f"The database now has the schema revision {revision}.")


@app.command()
def moved() -> None:
    """Confirm that the database was moved to this machine.

    Run this command when the server asks for it. This server keeps the instances that it rents.
    """
    from gpubloom.server.rentals.installation import note_move

    _settled(note_move)
    echo("The database is marked as moved. This server keeps the instances that it rents.")


@app.command()
def copied() -> None:
    """Confirm that this database is a copy.

    Run this command when the server asks for it. This server does not use or stop the instances
    of the original server.
    """
    from gpubloom.server.rentals.installation import become_another

    paused = _settled(become_another)
    echo(
        "This database is now a separate installation. Jobs that are paused here because they continue on "
        f"the original server: {paused}. Set a bucket or a BLOOM_STORAGE_PREFIX that the original server "
        "does not use."
    )


def _settled(work: "Callable[[Database], Awaitable[Result]]") -> Result:
    from gpubloom.server.db import migrate

    settings = settings_or_fail()
    migrate.upgrade(settings.database)
    return in_database(settings, work)


def in_database(settings: "Settings", work: "Callable[[Database], Awaitable[Result]]") -> Result:
    """What `work` returns; it gets the database of the settings."""
    from gpubloom.server.db.database import Database

    async def done() -> Result:
        database = Database(settings.database, settings.home)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(done())
