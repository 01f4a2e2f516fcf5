"""Compare what providers run under our keys with the jobs, and terminate what no living job owns.

Keys carry the installation and the job, so instances of other installations, and what people started
themselves, are never touched. A rental's row is written before its provider is asked, so an instance that is
being launched right now has its job. No call is made inside a transaction.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError

from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import BillReader, CloudProvider, Fault, Instance, StoreLister
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.db.clock import read_database_time
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.alarms import StillBilled, is_owned
from gpubloom.server.rentals.credentials import open_provider
from gpubloom.server.rentals.keys import MachineKey, installation_name
from gpubloom.server.rentals.metering import by_database_clock, end_rental, note_instance
from gpubloom.server.rentals.price_book import read_prices
from gpubloom.server.rentals.tables import BILLED, ProviderCredential, Rental
from gpubloom.server.settings import Settings

log = structlog.get_logger("bloom")

# A provider that does not answer delays the others no longer than this.
_LONGEST_SECONDS = 120.0
# A bill of the last hour may not be whole yet; one that has not come after days never will.
_BILLS_ARE_WHOLE_AFTER = timedelta(hours=1)
_BILLS_COME_WITHIN = timedelta(days=7)


@dataclass(frozen=True)
class Ended:
    """A machine that no job owned."""

    provider: str
    key: str
    instance_id: str


@dataclass(frozen=True)
class Unchecked:
    """A provider that could not be checked: its running machines are unknown."""

    provider: str
    reason: str


async def reconcile(database: Database, settings: Settings) -> list[Ended]:
    """Check every connected provider of all users; returns the terminated machines."""
    return (await reconcile_accounts(database, settings))[0]


async def reconcile_accounts(
    database: Database, settings: Settings, *, user_id: UUID | None = None
) -> tuple[list[Ended], list[Unchecked]]:
    """The same for all users or for one, and which providers could not be checked."""
    async with database.read() as session:
        statement = select(ProviderCredential)
        if user_id is not None:
            statement = statement.where(ProviderCredential.user_id == user_id)
        credentials = list(await session.scalars(statement))
        installation = await installation_name(session)
    ended: list[Ended] = []
    unchecked: list[Unchecked] = []
    for credential in credentials:
        alarm = StillBilled(database, settings, credential.user_id, credential.provider)
        try:
            cloud = await asyncio.to_thread(
                open_provider, settings, credential.user_id, credential.provider, credential.sealed
            )
        except ProviderError as problem:
            unchecked.append(_unchecked(credential, str(problem)))
            await alarm.raise_for(problem)
            continue
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                account = _Account(
                    database, credential.user_id, credential.provider, installation, cloud, ended
                )
                await account.terminate_unowned()
                await account.record_ended()
                await account.read_bills()
                await account.delete_unused_stores()
                await read_prices(database, cloud)
                if account.problem is not None:
                    raise account.problem
        except (SQLAlchemyError, OSError) as problem:
            # TimeoutError is one: that is the provider's.
            if not isinstance(problem, TimeoutError):
                raise
            unchecked.append(_unchecked(credential, "The provider did not answer in time."))
            await alarm.raise_for(problem)
        except Exception as problem:
            # Whatever one account's provider answers, the machines of the others are looked at.
            if not isinstance(problem, ProviderError):
                log.error("could not read the answer of a provider", exc_info=problem)
                problem = Fault(
                    "unavailable", f"The provider's answer cannot be read ({type(problem).__name__})."
                )
            unchecked.append(_unchecked(credential, str(problem)))
            await alarm.raise_for(problem)
        else:
            await alarm.raise_for(None)
        finally:
            await cloud.close()
    return ended, unchecked


def _unchecked(credential: ProviderCredential, reason: str) -> Unchecked:
    log.warning("could not check the machines at a provider", provider=credential.provider, reason=reason)
    return Unchecked(credential.provider, reason)


class _Account:
    """One person's account at one service. Machines that it terminates are added to `ended`.

    `problem`: the first machine that the provider did not let go of. It is no reason to keep the others.
    """

    def __init__(
        self,
        database: Database,
        user_id: UUID,
        provider: str,
        installation: str,
        cloud: CloudProvider,
        ended: list[Ended],
    ) -> None:
        self._database, self._user_id, self._ended = database, user_id, ended
        self._provider, self._installation, self._cloud = provider, installation, cloud
        self.problem: ProviderError | None = None
        # Keys of machines that could not be terminated now.
        self._still_billed: set[str] = set()

    async def terminate_unowned(self) -> None:
        """End what the service runs and no living job owns."""
        instances = await self._cloud.list()
        for instance in instances:
            key = MachineKey.read(instance.key)
            if key is None or key.installation != self._installation:
                continue
            is_owned = await self._is_owned(key)
            if is_owned and not await self._is_second(instance, instances):
                continue
            try:
                await self._cloud.cancel(instance.id)
                log.warning(
                    "terminated a machine that no job owns", provider=self._provider, key=instance.key
                )
                self._ended.append(Ended(self._provider, instance.key, instance.id))
                # The row of a living job tells of its own machine.
                found = None if is_owned else await self._cloud.status(instance.id)
                await self._note(instance.key, found, was_ended=True, is_owned=is_owned)
            except ProviderError as problem:
                self.problem = self.problem or problem
                self._still_billed.add(instance.key)
                if not is_owned:
                    # What is listed is billed, also if it is broken or no answer has told its id before.
                    await self._note(instance.key, replace(instance, state="running"))

    async def _is_second(self, instance: Instance, instances: Sequence[Instance]) -> bool:
        """Whether a living job runs on another machine with the same key. A launch whose answer was lost, and
        that the provider did not list for a while, was repeated."""
        same = {each.id for each in instances if each.key == instance.key}
        if len(same) == 1:
            return False
        async with self._database.read() as session:
            own = await session.scalar(select(Rental.instance_id).where(Rental.key == instance.key))
        return own in same and own != instance.id

    async def record_ended(self) -> None:
        """Record instances that the provider ended while no worker followed them."""
        async with self._database.read() as session:
            rows: Sequence[Rental] = (
                await session.scalars(
                    select(Rental).where(
                        Rental.user_id == self._user_id,
                        Rental.provider == self._provider,
                        Rental.state.in_(BILLED),
                    )
                )
            ).all()
        for rental in rows:
            key = MachineKey.read(rental.key)
            if rental.key in self._still_billed or (key is not None and await self._is_owned(key)):
                continue
            try:
                found = rental.instance_id and await self._cloud.status(rental.instance_id)
            except ProviderError as problem:
                self.problem = self.problem or problem
            else:
                await self._note(rental.key, found or None)

    async def read_bills(self) -> None:
        """Read what the provider's own bill says of machines that have ended, where its API has bills."""
        if not isinstance(self._cloud, BillReader):
            return
        async with self._database.read() as session:
            at = await read_database_time(session)
            rows = await session.execute(
                select(Rental.id, Rental.instance_id).where(
                    Rental.user_id == self._user_id,
                    Rental.provider == self._provider,
                    Rental.bill.is_(None),
                    Rental.instance_id.is_not(None),
                    Rental.billed_to.between(at - _BILLS_COME_WITHIN, at - _BILLS_ARE_WHOLE_AFTER),
                )
            )
            waiting = [(rental_id, str(instance_id)) for rental_id, instance_id in rows]
        for rental_id, instance_id in waiting:
            bill = await self._cloud.bill(instance_id)
            if bill is not None:
                async with self._database.write() as session:
                    await session.execute(update(Rental).where(Rental.id == rental_id).values(bill=bill))

    async def delete_unused_stores(self) -> None:
        """Delete the provider's own stores of jobs that have ended: their results are here."""
        if not isinstance(self._cloud, StoreLister):
            return
        for name in await self._cloud.stores():
            key = MachineKey.read(f"{name}-a1")
            if key is None or key.installation != self._installation:
                continue
            async with self._database.read() as session:
                status = await session.scalar(select(TrainingJob.status).where(TrainingJob.id == key.job_id))
            if status is None or status in ENDED:
                await self._cloud.remove_store(name)
                log.info("deleted the store of an ended job", provider=self._provider, store=name)

    async def _is_owned(self, key: MachineKey) -> bool:
        async with self._database.read() as session:
            return await is_owned(session, key)

    async def _note(
        self, key: str, instance: Instance | None, *, was_ended: bool = False, is_owned: bool = False
    ) -> None:
        async with self._database.write() as session:
            rental = await session.scalar(select(Rental).where(Rental.key == key).with_for_update())
            at = await read_database_time(session)
            if rental is not None and instance is not None:
                note_instance(rental, by_database_clock(instance, at), at)
            elif rental is not None and not is_owned:
                end_rental(rental, at, "No machine was rented.")
            if was_ended:
                record(session, SYSTEM, "rental.orphan_ended", f"rental:{key}", provider=self._provider)
