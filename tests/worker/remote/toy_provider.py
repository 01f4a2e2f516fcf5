"""A service of our own, in this process: its machines are folders and processes that really run the agent.

`SERVICE` is the one that is open; a test sets it up, breaks it and looks at it.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from gpubloom.agent.remote.link import HttpLink
from gpubloom.offers import PriceRow
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
from tests.providers.services.machine import Machine

KEY = "toy-key-6f1d0a"
_YES = Capability(can=True)


@dataclass
class Rented:
    launch: Launch
    machine: Machine
    state: str = "running"


@dataclass
class ToyService:
    """`faults` are raised by the next calls of a method; `hourly` is what its machines cost."""

    folder: Path
    hourly: float | None = 3600.0
    keys: set[str] = field(default_factory=lambda: {KEY})
    longest_seconds: float | None = None
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    # Calls that are carried out, and whose answer is lost all the same.
    cuts: set[str] = field(default_factory=set)
    # What machines report of their start, instead of running their command.
    start_report: bytes | None = None
    # What the service shows of what its machines printed.
    printed: list[str] = field(default_factory=list)
    # Whether machines that have ended are not found by their key any more.
    forgets: bool = False
    # Whether a machine reports nothing before its key was submitted twice.
    begins_when_asked_again: bool = False
    rented: dict[str, Rented] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def running(self) -> list[Rented]:
        return [each for each in self.rented.values() if each.machine.running]

    def only(self) -> Rented:
        assert len(self.running) == 1, self.rented
        return self.running[0]

    def run_dir(self, rented: Rented) -> Path:
        """The run directory as it is there."""
        attempt = rented.launch.key.rpartition("-a")[2]
        return rented.machine.folder / "job" / f"attempt-{attempt}" / "run"

    def add_stray(self, name: str, key: str) -> None:
        """A machine that somebody started, under some key."""
        machine = Machine(self.folder / name, ["sleep", "600"])
        machine.start()
        launch = Launch(key=key, gpu="T4", gpus=1, command="sleep 600", start_address="http://127.0.0.1/")
        self.rented[name] = Rented(launch, machine)

    def take_away(self, rented: Rented) -> None:
        """What happens to spot machines."""
        rented.state = "lost"
        rented.machine.vanish()

    def billed_seconds(self) -> float:
        return sum(each.machine.billed_seconds for each in self.rented.values())

    def close(self) -> None:
        for each in self.rented.values():
            each.machine.vanish()


SERVICE: list[ToyService] = []


class ToyProvider:
    name = "toy"

    def __init__(self, service: ToyService, key: str) -> None:
        self._service, self._key = service, key
        self.capabilities = replace(PROVIDER.capabilities, longest_seconds=service.longest_seconds)

    def _call(self, method: str) -> None:
        self._service.calls.append(method)
        if self._key not in self._service.keys:
            raise Fault("bad_credentials", "The toy service does not know this key.")
        if waiting := self._service.faults.get(method):
            raise waiting.pop(0)

    async def check(self) -> str:
        self._call("check")
        return "toy@example.com"

    async def prices(self) -> list[PriceRow]:
        return []

    async def submit(self, launch: Launch) -> Instance:
        self._call("submit")
        service = self._service
        known = {n: each for n, each in service.rented.items() if each.machine.running or not service.forgets}
        found = next((n for n, each in known.items() if each.launch.key == launch.key), None)
        if found is None:
            found = f"toy-{next(service.numbers)}"
            wait = "until [ -e again ]; do sleep 0.05; done; " if service.begins_when_asked_again else ""
            command = launch.command if service.start_report is None else "true"
            if service.start_report is not None:
                HttpLink().put(launch.report_address, service.start_report)
            machine = Machine(
                service.folder / found,
                ["sh", "-c", f"{wait}{command}; exec sleep {0 if service.forgets else 600}"],
                {"BLOOM_START": launch.start_address},
            )
            machine.start()
            service.rented[found] = Rented(launch, machine)
        else:
            (service.rented[found].machine.folder / "again").touch()
        if "submit" in service.cuts:
            service.cuts.discard("submit")
            while service.forgets and service.rented[found].machine.running:
                # The answer is lost after all is over.
                await asyncio.sleep(0.05)
            raise Fault("timed_out", "The toy service did not answer.", uncertain=True)
        return self._instance(found)

    async def status(self, instance_id: str) -> Instance:
        self._call("status")
        return self._instance(instance_id)

    async def cancel(self, instance_id: str) -> None:
        self._call("cancel")
        self._service.rented[instance_id].machine.vanish()

    async def list(self) -> list[Instance]:
        self._call("list")
        return [self._instance(name) for name, each in self._service.rented.items() if each.machine.running]

    async def console(self, instance_id: str) -> Sequence[str]:
        return self._service.printed

    async def close(self) -> None:
        self._service.calls.append("close")

    def _instance(self, name: str) -> Instance:
        rented = self._service.rented[name]
        machine = rented.machine
        state = "running" if machine.running else ("lost" if rented.state == "lost" else "ended")
        return Instance(
            id=name,
            key=rented.launch.key,
            state=state,  # type: ignore[arg-type]
            hourly=self._service.hourly,
            billed_from=_moment(machine.started_at),
            billed_to=_moment(machine.ended_at),
            page=f"https://toy.example.com/{name}",
        )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


class _Toy(ProviderSpec):
    def open(self, credentials: Mapping[str, str]) -> CloudProvider:
        return ToyProvider(SERVICE[-1], credentials["key"])


PROVIDER = _Toy(
    name="toy",
    title="Toy",
    fields=(CredentialField("key", "API key"),),
    capabilities=Capabilities(_YES, _YES, _YES, _YES, _YES),
    page="https://toy.example.com/keys",
)
