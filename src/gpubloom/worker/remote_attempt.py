"""One attempt of a job on a rented instance: its rental row, its instance at the provider, its bucket.

Launching (`launcher.py`) and following (`remote_provider.py`) share what is here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import structlog
from sqlalchemy import select

from gpubloom.providers import registry
from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import CloudProvider, ConsoleReader, Fault, Instance, Launch
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.launch import set_default_limits
from gpubloom.server.jobs.lease import holding
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.credentials import find_sealed, open_provider
from gpubloom.server.rentals.keys import MachineKey
from gpubloom.server.rentals.price_book import PriceBook
from gpubloom.server.rentals.tables import Rental
from gpubloom.server.secrets.service import job_secrets
from gpubloom.server.settings import Settings
from gpubloom.server.storage.schemas import StoreName
from gpubloom.storage import RunStore, SshStore, StorageError
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.safe_paths import is_file_beneath
from gpubloom.traincard.sync.apply import ARRIVING
from gpubloom.worker.spending import Spending

log = structlog.get_logger("bloom.worker")

Result = TypeVar("Result")


@dataclass(frozen=True)
class PollIntervals:
    """How often to look for news, and how long to wait; seconds.

    `first_word`: how long a machine may run before its agent reports; `starting`: how long the provider may
    take to start it. `margin`: how long before the end of an instance's longest life the job is stopped, so
    that everything is uploaded. `last_resort`: how long after the job's time limit an instance ends itself;
    it had to boot, save and upload. `agent`: fields of `agent.remote.start.Start`, the agent's own intervals.
    """

    # As often as an agent sends; each look is a request that the bucket's provider bills.
    receive: float = 3.0
    look: float = 10.0
    meter: float = 3.0
    checkpoint: float = 120.0
    first_word: float = 600.0
    # How long an instance may be silent while its provider says that it runs.
    silence: float = 900.0
    starting: float = 1800.0
    first_pause: float = 5.0
    longest_pause: float = 300.0
    margin: float = 900.0
    terminate: float = 30.0
    last_resort: float = 1800.0
    agent: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Clock:
    """The clock that waiting is measured by; simulations replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class RentedInstance:
    """The rental row of one attempt and its instance at the provider, under one lease.

    The provider is called with the job owner's credentials, which are read when they are needed.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        job: TrainingJob,
        token: UUID,
        installation: str,
        store_name: StoreName = "bucket",
    ) -> None:
        self._database, self._settings, self._job, self._token = database, settings, job, token
        self.store_name = store_name
        self._provider: CloudProvider | None = None
        self._instance_id: str | None = None
        self._rental: Rental | None = None
        self.key = str(MachineKey(installation, job.id, job.attempt))
        # The longest that an instance may live at this provider; known after `prepare`.
        self.longest_seconds: float | None = None
        self.package_folder = settings.home / "packages"

    async def prepare(self) -> Rental | None:
        """Find what an earlier worker rented or asked for. ProviderError: there is no such provider."""
        # In a thread: a provider's own library may take a while to import.
        spec = await asyncio.to_thread(registry.provider_spec, self._job.target)
        self.longest_seconds = spec.capabilities.longest_seconds
        async with self._database.read() as session:
            self._rental = await session.scalar(select(Rental).where(Rental.key == self.key))
        if self._rental is not None:
            self._instance_id = self._rental.instance_id
        return self._rental

    async def begin(self) -> None:
        """Write the rental row, before the provider is asked: the reconciler then knows what to look for."""
        if self._rental is not None:
            return
        offer = self._job.offer or {}
        async with self._database.write() as session:
            job = await holding(session, self._job.id, self._token)
            job.offer = {**offer, "store": self.store_name}
            # Jobs of earlier versions may have none.
            set_default_limits(job)
            rental = Rental(
                user_id=job.user_id,
                project_id=job.project_id,
                job_id=job.id,
                job_name=job.name,
                attempt=self._job.attempt,
                provider=job.target,
                seller=offer.get("provider"),
                key=self.key,
                gpu=str(offer["gpu"]),
                gpus=int(offer["gpus"]),
                region=offer.get("region"),
                kind=offer["kind"],
                hourly=float(offer["hourly"]),
                billing=offer.get("billing") or "second",
                minimum_seconds=float(offer.get("minimum_seconds") or 0.0),
                store=self.store_name,
            )
            session.add(rental)
            await session.flush()
        self._rental = rental

    @property
    def rental_id(self) -> UUID:
        assert self._rental is not None
        return self._rental.id

    async def secrets(self) -> Mapping[str, str]:
        """The values of the job's secrets. SecretUnavailable: one is gone."""
        async with self._database.read() as session:
            return await job_secrets(session, self._settings, self._job)

    async def submit(self, launch: Launch) -> Instance:
        provider = await self._open()
        if (reason := provider.capabilities.why_not(launch)) is not None:
            raise Fault("refused", reason)
        try:
            # A launch whose answer makes no sense may have started a machine.
            with _unreadable_is_unavailable(uncertain=True):
                instance = await provider.submit(launch)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise
        self._instance_id = instance.id
        return instance

    def unseen(self) -> Instance:
        """The instance as its agent has reported it, while the provider does not answer."""
        return Instance(
            "",
            self.key,
            "running",
            "The provider did not answer, but the agent on the instance sent reports.",
        )

    async def status(self) -> Instance:
        provider = await self._open()
        try:
            with _unreadable_is_unavailable():
                if (instance_id := await self._find(provider)) is None:
                    return Instance("", self.key, "ended", "The provider no longer has this instance.")
                return await provider.status(instance_id)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise

    async def terminate(self) -> Instance | None:
        """Terminate the instance, whether its id is known or only its key; None: there is none."""
        provider = await self._open()
        try:
            with _unreadable_is_unavailable():
                if (instance_id := await self._find(provider)) is None:
                    return None
                await provider.cancel(instance_id)
                return await provider.status(instance_id)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise

    async def console(self) -> Sequence[str]:
        """What the instance printed, where the provider shows it; before, what is built for it."""
        provider = await self._open()
        if not isinstance(provider, ConsoleReader):
            return ()
        with _unreadable_is_unavailable():
            return await provider.console(self._instance_id or self.key)

    async def close(self) -> None:
        if self._provider is not None:
            provider, self._provider = self._provider, None
            await provider.close()

    async def _find(self, provider: CloudProvider) -> str | None:
        """The provider's id of the instance; looked up by our key when no answer has told it."""
        if self._instance_id is None:
            found = [instance.id for instance in await provider.list() if instance.key == self.key]
            self._instance_id = found[0] if found else None
        return self._instance_id

    async def _open(self) -> CloudProvider:
        if self._provider is None:
            async with self._database.read() as session:
                sealed = await find_sealed(session, self._job.user_id, self._job.target)
            # The launch and whoever watches it ask at the same time: one client is opened, and closed.
            if self._provider is None:
                self._provider = open_provider(self._settings, self._job.user_id, self._job.target, sealed)
        return self._provider

    async def _drop_if_refused(self, fault: Fault) -> None:
        """The owner may enter new credentials: they are read again for the next call."""
        if fault.kind == "bad_credentials":
            await self.close()


@contextmanager
def _unreadable_is_unavailable(*, uncertain: bool = False) -> Iterator[None]:
    """What a provider answers may be anything. It says nothing about the job, which goes on."""
    try:
        yield
    except (ProviderError, OSError):
        raise
    except Exception as problem:
        log.error("could not read the answer of a provider", exc_info=problem)
        sentence = f"The provider's answer cannot be read ({type(problem).__name__})."
        raise Fault("unavailable", sentence, uncertain=uncertain) from problem


@dataclass(frozen=True)
class RemoteAttempt:
    """What launching and following one attempt need. `close` it in the end."""

    job: TrainingJob
    run_dir: Path
    store: RunStore
    instance: RentedInstance
    spending: Spending
    poll_intervals: PollIntervals
    # What the run directory may hold in all: as much as the quota of its owner leaves (`room_for`).
    most_bytes: int
    prices: PriceBook
    clock: Clock = field(default_factory=Clock)
    # A thread of its own: a bucket that does not answer must not delay other jobs.
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="bucket")
    )

    @cached_property
    def log(self) -> structlog.stdlib.BoundLogger:
        bound: structlog.stdlib.BoundLogger = log.bind(job=str(self.job.id), provider=self.job.target)
        return bound

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def reach(self, instance: Instance) -> None:
        """Where the machine itself is the store: from now on this server connects to it."""
        store, host = self.store, instance.host
        if isinstance(store, SshStore) and host is not None and instance.state == "running":
            try:
                await self.in_thread(lambda: store.reach(host, instance.port))
            except StorageError as problem:
                self.log.warning("the machine cannot be reached over SSH", reason=str(problem))

    async def has_reported(self) -> bool:
        """Whether an agent of this attempt has ever sent something: then there was an instance."""
        if is_file_beneath(self.run_dir, f"{ARRIVING}/received-{self.job.attempt}.json"):
            return True
        layout = JobLayout(str(self.job.id), self.job.attempt)
        try:
            return bool(await self.in_thread(lambda: self.store.sizes(layout.batches)))
        except StorageError as problem:
            self.log.warning("the bucket does not answer, trying again", reason=str(problem))
            return False

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self.instance.close()
