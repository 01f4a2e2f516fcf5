"""Write to the owner of machines that GPU Bloom cannot terminate: they are billed until somebody does.

Called by the reconciler after each look at an account. A machine counts once no living job owns it and a
while has passed in which it should have been terminated. When the provider refuses the credentials, machines
of living jobs count too, and at once: nobody could terminate them.
"""

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.providers import registry
from gpubloom.providers.cloud import Fault
from gpubloom.server.accounts.mail import Mailer, machines_still_billed
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.db.clock import read_database_time
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.states import ACTIVE
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.keys import MachineKey
from gpubloom.server.rentals.metering import meter
from gpubloom.server.rentals.tables import BILLED, Rental
from gpubloom.server.settings import Settings

log = structlog.get_logger("bloom")

# A provider may be away for a moment, and takes one to terminate a machine.
GRACE = timedelta(minutes=15)
_AGAIN_AFTER = timedelta(days=1)
_STILL_LISTED = "The provider was asked to terminate the machine, and still lists it."


async def is_owned(session: AsyncSession, key: MachineKey) -> bool:
    """Whether a living job runs on the machine with this key."""
    job = await session.get(TrainingJob, key.job_id)
    return job is not None and job.status in ACTIVE and job.attempt == key.attempt


class StillBilled:
    """One person's account at one provider."""

    def __init__(self, database: Database, settings: Settings, user_id: UUID, provider: str) -> None:
        self._database, self._settings = database, settings
        self._user_id, self._provider = user_id, provider

    async def raise_for(self, problem: Exception | None) -> None:
        """After a look that failed with `problem`, or that went well and left machines all the same."""
        refused = isinstance(problem, Fault) and problem.kind == "bad_credentials"
        reason = _STILL_LISTED if problem is None else str(problem) or "The provider did not answer."
        async with self._database.read() as session:
            # A read first: mostly there is nothing to tell.
            if not await session.scalar(self._billed().limit(1)):
                return
        async with self._database.write() as session:
            owner = await session.get(User, self._user_id)
            machines = await self._note(session, reason, refused=refused)
        if owner is None or not machines:
            return
        log.error("machines cannot be terminated", provider=self._provider, machines=machines, reason=reason)
        title = registry.provider_spec(self._provider).title
        mail = machines_still_billed(owner.email, owner.name, title, reason, machines)
        await Mailer(self._settings).send(mail)

    def _billed(self) -> Select[Rental]:
        return select(Rental).where(
            Rental.user_id == self._user_id,
            Rental.provider == self._provider,
            Rental.state.in_(BILLED),
        )

    async def _note(self, session: AsyncSession, reason: str, *, refused: bool) -> list[str]:
        """The machines to write about, in words. Their meters go on."""
        at = await read_database_time(session)
        told = []
        for rental in await session.scalars(self._billed().with_for_update()):
            key = MachineKey.read(rental.key)
            owned = key is not None and await is_owned(session, key)
            if not owned:
                rental.unowned_since = rental.unowned_since or at
                meter(rental, at)
            if not _is_due(rental, at, owned=owned, refused=refused):
                continue
            rental.alarmed_at = at
            if not owned:
                rental.detail = f"This machine could not be terminated. {reason}"
            machine = rental.instance_id or rental.key
            told.append(
                f"{machine}: {rental.gpus}x {rental.gpu}, ${rental.hourly:.2f} per hour {rental.page or ''}"
            )
            record(
                session,
                SYSTEM,
                "rental.not_terminated",
                f"rental:{rental.key}",
                provider=self._provider,
                reason=reason,
            )
        return told


def _is_due(rental: Rental, at: datetime, *, owned: bool, refused: bool) -> bool:
    if owned and not refused:
        return False
    if rental.alarmed_at is not None:
        return at - rental.alarmed_at >= _AGAIN_AFTER
    return refused or (rental.unowned_since is not None and at - rental.unowned_since >= GRACE)
