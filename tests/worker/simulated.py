"""A provider whose machines exist only as rows and a clock, so that a month of billing takes no time.

The worker's own code rents, follows, meters and terminates; only the network, the store and the time are
simulated. `Simulation.bill` is what the provider would charge by now.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.agent import JobSpec
from gpubloom.offers import PriceRow, load_prices
from gpubloom.providers import registry
from gpubloom.providers.base import Reservation
from gpubloom.providers.cloud import (
    Capabilities,
    Capability,
    CloudProvider,
    CredentialField,
    Fault,
    Instance,
    Launch,
)
from gpubloom.providers.registry import ProviderSpec
from gpubloom.scripts.task import script_task
from gpubloom.server import clock as server_clock
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals import alarms, metering, reconciling
from gpubloom.server.rentals.keys import installation_name
from gpubloom.server.rentals.price_book import PriceBook
from gpubloom.server.rentals.reconciling import reconcile
from gpubloom.storage import Arrival
from gpubloom.worker import launcher, remote_provider, spending
from gpubloom.worker.remote_attempt import Clock, PollIntervals, RemoteAttempt, RentedInstance
from gpubloom.worker.remote_provider import RemoteProvider
from gpubloom.worker.spending import Spending
from tests.worker.machine import Machine

HOURLY = 36.0
# Seldom, as every look is a transaction; all that ends anything is as it is.
INTERVALS = PollIntervals(receive=60.0, look=60.0, meter=60.0)
_YES = Capability(can=True)


@dataclass
class SimulatedMachine:
    """`ends_at`: when its own switch-off, or its owner, ended the bill."""

    launch: Launch
    started: float
    hourly: float
    ends_at: float | None = None


class Simulation:
    """One provider, one clock, one installation."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine, self.seconds = machine, 0.0
        self.began = server_clock.now()
        self.machines: dict[str, SimulatedMachine] = {}
        self.faults: dict[str, Fault] = {}
        self.bills: dict[str, float] = {}
        self.hourly = HOURLY
        # Whether agents report, and what they were told about their own time.
        self.speaks = True
        self.state = "running"
        # Whether machines end their own bill at their longest life.
        self.switches_off = True
        self.time_limits: list[float] = []
        OPEN.append(self)
        monkeypatch.setitem(registry._MODULES, "simulated", "tests.worker.simulated")
        for module in (spending, alarms, reconciling):
            monkeypatch.setattr(module, "read_database_time", self._database_time)
        monkeypatch.setattr(metering, "now", self.time)
        monkeypatch.setattr(launcher, "send_bundle", self._send)
        monkeypatch.setattr(remote_provider, "Receiver", lambda *_, **__: self)

    def time(self) -> datetime:
        return self.began + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        # Others get their turn, as they would.
        await asyncio.sleep(0)

    def once(self) -> Arrival:
        """What the receiver of an attempt finds."""
        return Arrival("running" if self.speaks else "waiting", int(self.speaks), 0, None)

    def bill(self, *, at: float | None = None) -> float:
        """US dollars that the provider charges for everything up to a moment."""
        moment = self.seconds if at is None else at
        return sum(
            (min(moment, each.ends_at if each.ends_at is not None else moment) - each.started)
            * each.hourly
            / 3600
            for each in self.machines.values()
        )

    def add_job(self, **changes: Any) -> UUID:
        """A script that a worker has claimed and is about to rent a machine for."""
        offer = {
            "target": "simulated",
            "provider": "simulated",
            "title": "Simulated",
            "gpu": "T4",
            "gpus": 1,
            "memory_gb": 16.0,
            "region": None,
            "kind": "on_demand",
            "start_up_seconds": 60.0,
        }
        job = TrainingJob(
            id=uuid4(),
            project_id=self.machine.project.id,
            user_id=self.machine.user.id,
            name="script",
            kind="script",
            status="provisioning",
            attempt=1,
            config=script_task({"entry": "train.py"}).model_dump(mode="json"),
            target="simulated",
            offer={
                **offer,
                "hourly": HOURLY,
                "billing": "second",
                "estimate": {"low": 18.0, "likely": HOURLY, "high": 72.0},
            },
            lease_token=uuid4(),
            lease_expires=self.began + timedelta(days=3650),
            **changes,
        )
        run_directory(self.machine.settings, job.id).mkdir(parents=True)
        self.machine.installation.add(job)
        return job.id

    async def provider(self, database: Database, job_id: UUID) -> RemoteProvider:
        """What a worker has after it claimed the job, and has begun to rent."""
        job, settings = self.machine.job(job_id), self.machine.settings
        assert job.lease_token is not None
        async with database.read() as session:
            installation = await installation_name(session)
        attempt = RemoteAttempt(
            job,
            run_directory(settings, job.id),
            _NoReports(),  # type: ignore[arg-type]
            RentedInstance(database, settings, job, job.lease_token, installation),
            Spending(database, job.id, job.lease_token, checkpoint_seconds=120.0),
            INTERVALS,
            most_bytes=1 << 30,
            prices=PriceBook(load_prices(None)),
            clock=Clock(lambda: self.seconds, self.sleep),
        )
        spec = JobSpec(str(job.id), attempt.run_dir, job.attempt, ("python3", "train.py"))
        provider = RemoteProvider(attempt)
        await provider._instance.prepare()
        await provider.submit(spec, Reservation((), (), {}))
        return provider

    async def follow(self, job_id: UUID, *, until_rented: bool = False) -> Exception | None:
        """A worker that follows the job to its end, or that dies as soon as the machine is rented."""
        database = Database(self.machine.settings.database)
        try:
            provider = await self.provider(database, job_id)
            task = provider._task
            assert task is not None
            rented = len(self.machines)
            while until_rented and not task.done() and len(self.machines) == rented:
                await asyncio.sleep(0)
            if not until_rented:
                await task
            await provider.close()
            return provider._failure
        finally:
            await database.close()

    async def reconcile(self) -> None:
        """What a worker does every five minutes."""
        database = Database(self.machine.settings.database)
        try:
            await reconcile(database, self.machine.settings)
        finally:
            await database.close()

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def check(self, method: str) -> None:
        if (fault := self.faults.get(method)) is not None:
            raise fault

    async def _database_time(self, session: AsyncSession) -> datetime:
        return self.time()

    def _send(self, store: object, bundle: Any) -> Any:
        self.time_limits.append(bundle.spec.time_limit_seconds)
        return _Sent()


@dataclass(frozen=True)
class _Sent:
    address: str = "https://example.com/start"
    command: str = "true"
    report_address: str = ""
    renew: None = None

    def address_with(self, secrets: Mapping[str, str]) -> str:
        return self.address


class _NoReports:
    """A store of machines that say nothing of their start."""

    def get(self, name: str, *, most: int | None = None) -> bytes | None:
        return None


OPEN: list[Simulation] = []


class SimulatedProvider:
    name = "simulated"

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.capabilities = PROVIDER.capabilities

    async def check(self) -> str:
        return "ada"

    async def prices(self) -> list[PriceRow]:
        return []

    async def submit(self, launch: Launch) -> Instance:
        self._simulation.check("submit")
        name = f"s-{len(self._simulation.machines)}"
        began = self._simulation.seconds
        # Its own switch-off needs no server.
        assert launch.longest_seconds is not None, "a machine without an end of its own"
        ends = began + launch.longest_seconds if self._simulation.switches_off else None
        made = SimulatedMachine(launch, began, self._simulation.hourly, ends)
        self._simulation.machines[name] = made
        return self._instance(name)

    async def status(self, instance_id: str) -> Instance:
        self._simulation.check("status")
        return self._instance(instance_id)

    async def cancel(self, instance_id: str) -> None:
        self._simulation.check("cancel")
        machine = self._simulation.machines[instance_id]
        machine.ends_at = min(self._simulation.seconds, machine.ends_at or 1e18)

    async def list(self) -> list[Instance]:
        self._simulation.check("list")
        return [self._instance(name) for name in self._simulation.machines if self._is_billed(name)]

    async def bill(self, instance_id: str) -> float | None:
        return self._simulation.bills.get(instance_id)

    async def close(self) -> None: ...

    def _is_billed(self, name: str) -> bool:
        ends = self._simulation.machines[name].ends_at
        return ends is None or self._simulation.seconds < ends

    def _instance(self, name: str) -> Instance:
        made, moment = self._simulation.machines[name], self._simulation.began
        is_billed = self._is_billed(name)
        state: Any = self._simulation.state if is_billed else "ended"
        return Instance(
            name,
            made.launch.key,
            state,
            hourly=made.hourly,
            billed_from=moment + timedelta(seconds=made.started),
            billed_to=None if is_billed or made.ends_at is None else moment + timedelta(seconds=made.ends_at),
            page=f"https://simulated.example.com/{name}",
        )


@dataclass(frozen=True)
class _Kind(ProviderSpec):
    def open(self, credentials: Mapping[str, str]) -> CloudProvider:
        return SimulatedProvider(OPEN[-1])


PROVIDER = _Kind(
    name="simulated",
    title="Simulated",
    fields=(CredentialField("key", "API key"),),
    capabilities=Capabilities(_YES, _YES, _YES, _YES, _YES, switch_off=_YES),
    page="https://simulated.example.com/keys",
)
