"""The machine of one job at one service: its row, its key, and the service's words about it."""

import asyncio
from uuid import UUID

from sqlalchemy import select

from gpubloom.providers import registry
from gpubloom.providers.cloud import CloudProvider, Fault, Instance, Launch
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.lease import holding
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.credentials import find_sealed, open_provider
from gpubloom.server.rentals.keys import MachineKey
from gpubloom.server.rentals.tables import Rental
from gpubloom.server.settings import Settings


class Renting:
    """One job under one lease. The service is called with its owner's credentials, read when needed."""

    def __init__(
        self, database: Database, settings: Settings, job: TrainingJob, token: UUID, installation: str
    ) -> None:
        self._database, self._settings = database, settings
        self._job, self._token, self._installation = job, token, installation
        self._provider: CloudProvider | None = None
        self._instance_id: str | None = None
        self.longest_seconds: float | None = None
        # Where files are made that go along with jobs.
        self.folder = settings.home / "packages"

    def key(self, attempt: int) -> str:
        return str(MachineKey(self._installation, self._job.id, attempt))

    async def find(self, attempt: int) -> Rental | None:
        """What was rented for an attempt, or asked for."""
        async with self._database.read() as session:
            rental: Rental | None = await session.scalar(
                select(Rental).where(Rental.key == self.key(attempt))
            )
        if rental is not None:
            self._instance_id = rental.instance_id
        return rental

    async def begin(self, attempt: int) -> Rental:
        """Written before a service is asked: whatever is lost afterwards, somebody knows what to look for."""
        offer = self._job.offer or {}
        async with self._database.write() as session:
            job = await holding(session, self._job.id, self._token)
            rental = Rental(
                user_id=job.user_id,
                project_id=job.project_id,
                job_id=job.id,
                job_name=job.name,
                attempt=attempt,
                provider=job.target,
                key=self.key(attempt),
                gpu=str(offer["gpu"]),
                gpus=int(offer["gpus"]),
                region=offer.get("region"),
                kind=offer["kind"],
                hourly=float(offer["hourly"]),
                billing=offer.get("billing") or "second",
                minimum_seconds=float(offer.get("minimum_seconds") or 0.0),
            )
            session.add(rental)
            await session.flush()
            return rental

    async def submit(self, launch: Launch) -> Instance:
        provider = await self._open()
        if (reason := provider.capabilities.why_not(launch)) is not None:
            raise Fault("refused", reason)
        try:
            instance = await provider.submit(launch)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise
        self._instance_id = instance.id
        return instance

    def unseen(self, attempt: int) -> Instance:
        """A machine of which only its agent has told."""
        return Instance("", self.key(attempt), "running", "The service did not answer; the agent did.")

    async def status(self, attempt: int) -> Instance:
        provider = await self._open()
        try:
            if self._instance_id is None and not await self._find(provider, attempt):
                return Instance("", self.key(attempt), "ended", "The service does not know it any more.")
            assert self._instance_id is not None
            return await provider.status(self._instance_id)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise

    async def terminate(self, attempt: int) -> Instance | None:
        """End the machine, whether its id is known or only its key; None: there is none."""
        provider = await self._open()
        try:
            if self._instance_id is None and not await self._find(provider, attempt):
                return None
            assert self._instance_id is not None
            await provider.cancel(self._instance_id)
            return await provider.status(self._instance_id)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise

    async def _find(self, provider: CloudProvider, attempt: int) -> bool:
        found = [instance for instance in await provider.list() if instance.key == self.key(attempt)]
        if found:
            self._instance_id = found[0].id
        return bool(found)

    async def prepare(self) -> None:
        """Learn how long a machine may live there. ProviderError: there is no such service."""
        # In a thread: a service's own library may take a while to import.
        kind = await asyncio.to_thread(registry.provider_spec, self._job.target)
        self.longest_seconds = kind.capabilities.longest_seconds

    async def close(self) -> None:
        if self._provider is not None:
            provider, self._provider = self._provider, None
            await provider.close()

    async def _open(self) -> CloudProvider:
        if self._provider is None:
            async with self._database.read() as session:
                sealed = await find_sealed(session, self._job.user_id, self._job.target)
            self._provider = open_provider(self._settings, self._job.user_id, self._job.target, sealed)
        return self._provider

    async def _drop_if_refused(self, fault: Fault) -> None:
        """Its owner may enter new credentials: they are read again for the next call."""
        if fault.kind == "bad_credentials":
            await self.close()
