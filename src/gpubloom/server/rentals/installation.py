"""Detects a copied database: two installations with one name would terminate each other's machines.

The database records its own location. If the location changed, the database was moved or is a copy. With no
rented machine that makes no difference: the installation takes a new name. Otherwise the operator has to say
what happened (`bloom server database moved`, `… copied`).
"""

import hashlib
from pathlib import Path
from uuid import uuid4

from sqlalchemy import exists, or_, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.errors import CodedError
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.lease import release
from gpubloom.server.jobs.states import ACTIVE
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.metering import end_rental
from gpubloom.server.rentals.tables import BILLED, Installation, Rental

_GOES_ON_THERE = (
    "This server runs on a copied database. The job continues on the original server. Resume the job "
    "here to train it here as well."
)
_MACHINE_ID = Path("/etc/machine-id")


class InstallationMoved(CodedError):
    """Machines are rented in its name, and this may not be the one that rented them."""

    code = "installation_moved"


async def settle(database: Database) -> None:
    """Called before anything starts. Raises InstallationMoved until the operator says what happened."""
    async with database.write() as session:
        installation = await _installation(session)
        here = await _identity(session, database)
        before = installation.lies_at
        if before == here:
            return
        if before is not None:
            if await session.scalar(select(exists().where(Rental.state.in_(BILLED)))):
                raise InstallationMoved(
                    f"This database has rented machines, and its location changed from {before} to "
                    f"{here}. If you moved the database, run `bloom server database moved`. If it is a "
                    "copy, run `bloom server database copied`: only the original then manages these "
                    "machines."
                )
            installation.id = uuid4()
        installation.lies_at = here


async def note_move(database: Database) -> None:
    """It is the same installation at another address: its instances stay its own."""
    async with database.write() as session:
        installation = await _installation(session)
        installation.lies_at = await _identity(session, database)


async def become_another(database: Database) -> int:
    """It is a copy: it takes a name of its own, and leaves alone what the original rents. Says how many jobs
    were paused, because they run, or wait for a machine, at the original."""
    async with database.write() as session:
        installation = await _installation(session)
        installation.id, installation.lies_at = uuid4(), await _identity(session, database)
        for rental in await session.scalars(select(Rental).where(Rental.state.in_(BILLED))):
            end_rental(
                rental,
                rental.metered_at or now(),
                "This machine belongs to the server whose database was copied.",
            )
        jobs = list(
            await session.scalars(
                select(TrainingJob).where(
                    TrainingJob.target != "local",
                    or_(TrainingJob.status.in_(ACTIVE), TrainingJob.status == "queued"),
                )
            )
        )
        for job in jobs:
            job.status, job.want = "paused", "pause"
            job.control_version += 1
            job.error_code = "copied"
            job.error_message = _GOES_ON_THERE
            release(job)
        record(session, SYSTEM, "installation.copied", "installation")
        return len(jobs)


async def _installation(session: AsyncSession) -> Installation:
    rows = await session.scalars(select(Installation).order_by(Installation.id).with_for_update())
    return rows.one()


async def _identity(session: AsyncSession, database: Database) -> str:
    """The location of the database in words, the same for every process that uses it."""
    if database.kind == "sqlite":
        return _file(database.url.database or "")
    name = await session.scalar(text("SELECT current_database()"))
    try:
        async with session.begin_nested():
            cluster = await session.scalar(text("SELECT system_identifier FROM pg_control_system()"))
    except DBAPIError:
        # Some hosted databases keep it to themselves; a copy there is noticed only by its name.
        cluster = "unknown"
    return f"database {name} of cluster {cluster}"


def _file(name: str) -> str:
    try:
        number = _MACHINE_ID.read_text().strip()
    except OSError:
        # Containers mostly have none.
        number = ""
    # systemd asks to keep the number itself private.
    machine = hashlib.sha256(number.encode()).hexdigest()[:8] if number else "without a name"
    return f"{Path(name).resolve()} on machine {machine}"
