"""What server and worker do before they start: read settings, make the home folder, migrate, look for a copy.

A person's mistake ends with one sentence and exit code 2.
"""

import asyncio
import os
from typing import Any, NoReturn

import typer
from sqlalchemy.exc import SQLAlchemyError

from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import upgrade
from gpubloom.server.logs import configure_logs
from gpubloom.server.rentals.whereabouts import FoundElsewhere, settle
from gpubloom.server.settings import Settings, SettingsError, load_settings

# Not a person's mistake, or one that time may heal: `bloom up` tries again.
UNAVAILABLE = 69


def ready_settings(**flags: Any) -> Settings:
    """Settings that can be used, with a home folder and a database that are there."""
    try:
        settings = load_settings(**{name: value for name, value in flags.items() if value is not None})
    except SettingsError as error:
        stop(f"A setting cannot be used. {error}")
    configure_logs(settings.log_format)
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.uploads.mkdir(exist_ok=True)
    except OSError as error:
        stop(f"The folder {settings.home} cannot be used ({error.strerror}). BLOOM_HOME names another one.")
    if not os.access(settings.home, os.W_OK):
        stop(f"The folder {settings.home} cannot be written to. BLOOM_HOME names another one.")
    try:
        upgrade(settings.database)
        asyncio.run(_settle(settings))
    except FoundElsewhere as found:
        stop(str(found))
    except (SQLAlchemyError, OSError) as error:
        # Its first line says what is wrong; addresses, and so passwords, are not in it.
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        stop(f"The database does not answer: {reason}. BLOOM_DATABASE_URL names it.", code=UNAVAILABLE)
    return settings


async def _settle(settings: Settings) -> None:
    database = Database(settings.database)
    try:
        await settle(database)
    finally:
        await database.close()


def stop(sentence: str, *, code: int = 2) -> NoReturn:
    """End with a sentence on standard error."""
    typer.echo(sentence, err=True)
    raise typer.Exit(code)
