"""What server and worker do before they start: read settings, make the home folder, migrate, look for a copy.

A person's mistake ends with one sentence and exit code 2.
"""

import asyncio
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from gpubloom.cli.listening import stop, usable_settings
from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import upgrade
from gpubloom.server.logs import configure_logs
from gpubloom.server.rentals.installation import InstallationMoved, settle
from gpubloom.server.settings import Settings

# Not a person's mistake, or one that time may heal: `bloom up` tries again.
UNAVAILABLE = 69


def ready_settings(**flags: Any) -> Settings:
    """Settings that can be used, with a home folder and a database that are there."""
    settings = usable_settings(**flags)
    configure_logs(settings.log_format)
    try:
        upgrade(settings.database)
        asyncio.run(_settle(settings))
    except InstallationMoved as found:
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
