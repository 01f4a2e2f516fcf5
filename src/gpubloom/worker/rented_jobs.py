"""Jobs on rented instances, as one worker claims and follows them. They need a store and no device here.

At its start and every few minutes the worker also terminates rented instances that no job owns, and removes
artifacts from the bucket whose time is over.
"""

import asyncio
from collections.abc import Mapping
from typing import cast

import structlog
from sqlalchemy import exists, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import load_prices
from gpubloom.providers import registry
from gpubloom.providers.registry import OwnRunStore
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.lease import Claimant, claim_remote, waiting_for_remote
from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.credentials import find_sealed, open_credentials
from gpubloom.server.rentals.keys import MachineKey, installation_name
from gpubloom.server.rentals.price_book import PriceBook
from gpubloom.server.rentals.reconciling import reconcile
from gpubloom.server.rentals.store_choice import Stores, no_store, read_stores
from gpubloom.server.rentals.stored_artifacts import remove_expired, store_artifacts
from gpubloom.server.rentals.tables import Rental
from gpubloom.server.settings import Settings
from gpubloom.server.storage.run_stores import ssh_store
from gpubloom.server.storage.schemas import StoreName
from gpubloom.server.storage.service import room_for
from gpubloom.storage import RunStore, ServerStore, StorageError, Store
from gpubloom.storage.layout import JobLayout
from gpubloom.worker.disk import MachineDisk
from gpubloom.worker.follower import Follower
from gpubloom.worker.remote_attempt import PollIntervals, RemoteAttempt, RentedInstance
from gpubloom.worker.remote_provider import RemoteProvider
from gpubloom.worker.spending import Spending

log = structlog.get_logger("bloom.worker")

RECONCILE_SECONDS = 300.0
# Each has a thread and asks its provider every few seconds.
MOST_AT_ONCE = 64
_DATABASE_SECONDS = 60.0


async def keep_reconciling(settings: Settings, database: Database, stopping: asyncio.Event) -> None:
    """Reconcile until told to stop. Several workers may do this at once: terminating twice does no harm."""
    while not stopping.is_set():
        try:
            await reconcile(database, settings)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("reconciling rented instances waits for the database", reason=type(problem).__name__)
        except Exception as problem:
            # A provider's library may raise anything; the next round tries again.
            log.error("reconciling rented instances failed", exc_info=problem)
        try:
            await remove_expired(database, settings)
        except (SQLAlchemyError, OSError, StorageError) as problem:
            log.warning(
                "removing expired artifacts waits for the database or the bucket", reason=str(problem)
            )
        except Exception as problem:
            # Machines that no job owns must be terminated all the same.
            log.error("removing expired artifacts failed", exc_info=problem)
        try:
            await asyncio.wait_for(stopping.wait(), RECONCILE_SECONDS)
        except TimeoutError:
            continue


def _delete_transport(store: RunStore, layout: JobLayout) -> None:
    kept = f"{layout.artifacts}/"
    store.delete([name for name in store.sizes(layout.folder) if not name.startswith(kept)])


async def _store_of(session: AsyncSession, stores: Stores, target: str, key: str) -> StoreName:
    """The store of an attempt: the one that it began with, or the best one now."""
    rental = await session.scalar(select(Rental).where(Rental.key == key))
    if rental is not None:
        return cast("StoreName", rental.store or "bucket")
    if not (names := stores.names(target)):
        raise StorageError("no_store", no_store(target))
    return names[0]


class RentedJobs:
    """Claims and follows the rented jobs of one worker."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        claimant: Claimant,
        poll_intervals: PollIntervals,
        disk: MachineDisk,
    ) -> None:
        self._settings, self._database, self._claimant, self._poll_intervals = (
            settings,
            database,
            claimant,
            poll_intervals,
        )
        self._disk = disk
        self._prices = PriceBook(load_prices(settings.prices))
        self._following = 0

    async def claim(self) -> TrainingJob | None:
        """The next job that has a store, if this worker follows fewer than it can."""
        if self._following >= MOST_AT_ONCE:
            return None
        # A read first: an idle worker takes no write lock.
        async with self._database.read() as session:
            targets = (await read_stores(session, self._settings)).targets()
            if not await session.scalar(select(exists().where(*waiting_for_remote(self._claimant, targets)))):
                return None
        async with self._database.write() as session:
            return await claim_remote(session, self._claimant, targets)

    async def follow(self, job: TrainingJob) -> None:
        """Follow the job until the attempt ends or the lease is lost."""
        assert job.lease_token is not None
        self._following += 1
        try:
            async with self._database.read() as session:
                installation = await installation_name(session)
                stores = await read_stores(session, self._settings)
                key = str(MachineKey(installation, job.id, job.attempt))
                name = await _store_of(session, stores, job.target, key)
                most_bytes = await room_for(session, self._settings, job.user_id, job.id)
            checkpoint_seconds = self._poll_intervals.checkpoint
            token = job.lease_token
            store = await self._open_store(stores, name, job, key)
            attempt = RemoteAttempt(
                job,
                run_directory(self._settings, job.id),
                store,
                RentedInstance(self._database, self._settings, job, token, installation, name),
                Spending(self._database, job.id, token, checkpoint_seconds=checkpoint_seconds),
                self._poll_intervals,
                most_bytes=most_bytes,
                prices=self._prices,
            )
            provider = RemoteProvider(attempt)
            try:
                try:
                    await provider.open()
                    await Follower(self._database, self._settings, provider, job, None, self._disk).follow()
                finally:
                    await provider.close()
                await self._clear_away(job, store)
            finally:
                if not isinstance(store, Store | ServerStore):
                    await asyncio.to_thread(store.close)
        finally:
            self._following -= 1

    async def _open_store(
        self, stores: Stores, name: StoreName, job: TrainingJob, key: str
    ) -> Store | ServerStore | OwnRunStore:
        if name in {"bucket", "server"}:
            return await asyncio.to_thread(stores.open, name)
        if name == "ssh":
            return await asyncio.to_thread(ssh_store, self._settings, key, job.id)
        loop = asyncio.get_running_loop()

        async def find() -> Mapping[str, str]:
            async with self._database.read() as session:
                sealed = await find_sealed(session, job.user_id, job.target)
            return await asyncio.to_thread(open_credentials, self._settings, job.user_id, job.target, sealed)

        def credentials() -> Mapping[str, str]:
            # Called by the thread of the store.
            return asyncio.run_coroutine_threadsafe(find(), loop).result(_DATABASE_SECONDS)

        spec = await asyncio.to_thread(registry.provider_spec, job.target)
        return spec.open_store(key, credentials)

    async def _clear_away(self, job: TrainingJob, store: RunStore) -> None:
        """Keep in the bucket what a job that has ended made, and delete the rest of what it left in its
        store; its run directory is complete here."""
        async with self._database.read() as session:
            row = await session.get(TrainingJob, job.id)
        if row is not None and row.status not in ENDED:
            return
        try:
            layout = JobLayout(str(job.id), job.attempt)
            if isinstance(store, Store):
                await store_artifacts(self._database, self._settings, store, job)
                await asyncio.to_thread(_delete_transport, store, layout)
            else:
                await asyncio.to_thread(store.delete_folder, layout.folder)
        except StorageError as problem:
            log.warning(
                "could not put the files of an ended job in order in its store",
                job=str(job.id),
                reason=str(problem),
            )
