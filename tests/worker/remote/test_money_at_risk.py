"""What a silent machine, and a long wait for one, may cost at most: with a simulated clock."""

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

import pytest

from gpubloom.agent import JobSpec
from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import Fault, Instance, Launch
from gpubloom.storage import (
    Bundle,
    MachineUnreachable,
    Mailbox,
    ServerStore,
    SshKeys,
    SshStore,
    send_bundle,
)
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.server_store import AddressRefused
from gpubloom.traincard import ControlFile
from gpubloom.traincard.sync.upload_batch import UploadBatch
from gpubloom.worker import launcher
from gpubloom.worker.remote_attempt import Clock, PollIntervals
from gpubloom.worker.remote_provider import RemoteProvider

HOUR = 3600.0


@dataclass
class FakeInstance:
    """A provider that says what a test told it, and notes when it was asked to terminate."""

    clock: "SimulatedClock"
    says: list[Instance | ProviderError] = field(default_factory=list)
    terminated_at: float | None = None
    rental_id: object = None
    longest_seconds: float | None = None

    async def status(self) -> Instance:
        said = self.says[0] if len(self.says) == 1 else self.says.pop(0)
        if isinstance(said, ProviderError):
            raise said
        return said

    async def terminate(self) -> Instance:
        self.terminated_at = self.terminated_at or self.clock.now
        return Instance("i", "k", "ended")

    async def close(self) -> None:
        return


class SimulatedClock:
    """Ten seconds pass between two looks of the worker."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


RUNNING = Instance("i", "k", "running")


class MachineStore(SshStore):
    """The disk of a machine, here; `away`: there is no connection to it."""

    def __init__(self, disk: ServerStore, folder: str) -> None:
        super().__init__(disk, folder, SshKeys.derived(str, "k"))
        self.away = False

    def _may_ask(self) -> bool:
        if self.away:
            raise MachineUnreachable("store_unavailable", "No SSH connection.")
        return False


class Followed:
    """A job whose machine has reported once; then the test decides who says what."""

    def __init__(self, folder: Path, *, ssh: bool = False) -> None:
        self.clock = SimulatedClock()
        self.job = SimpleNamespace(id=uuid4(), attempt=1, kind="train", target="toy")
        self.layout = JobLayout(str(self.job.id), 1)
        self.store = ServerStore(folder / "store", "https://b.example", lambda text: text, lambda *_: True)
        self.machine = MachineStore(self.store, self.layout.folder) if ssh else None
        self.instance = FakeInstance(self.clock, [RUNNING])
        self.run_dir = folder / "run"
        self.run_dir.mkdir()
        ControlFile(self.run_dir).want("run")
        # What happens at a time, in seconds after the first report.
        self.events: dict[float, Any] = {}
        go_on = SimpleNamespace(action="go_on")

        async def sleep(seconds: float) -> None:
            self.clock.now += 10.0
            for at in [at for at in self.events if self.clock.now - 1000.0 >= at]:
                self.events.pop(at)()

        async def note(*_: object, **__: object) -> object:
            return go_on

        async def in_thread(work: Any) -> Any:
            return work()

        async def reach(instance: Instance) -> None:
            return None

        attempt: Any = SimpleNamespace(
            job=self.job,
            run_dir=self.run_dir,
            store=self.machine or self.store,
            instance=self.instance,
            reach=reach,
            spending=SimpleNamespace(note=note, note_start=note),
            poll_intervals=PollIntervals(),
            most_bytes=10**9,
            in_thread=in_thread,
            clock=Clock(self.clock, sleep),
            log=SimpleNamespace(**dict.fromkeys(("info", "warning", "error"), lambda *_, **__: None)),
        )
        self.provider = RemoteProvider(attempt)
        self.reports(1)

    def reports(self, number: int, *, ended: bool = False) -> None:
        batch = UploadBatch(str(self.job.id), 1, number, 90.0, ended=ended)
        self.store.put(self.layout.slot(number), batch.to_bytes())

    def follow(self) -> None:
        asyncio.run(self.provider._follow())


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_a_machine_that_cannot_reach_its_store_for_minutes_is_not_terminated(followed: Followed) -> None:
    """Row: machine cannot reach the bucket > 90 s. A healthy machine was terminated."""
    followed.events = {
        10 * 60.0: lambda: followed.reports(2),
        12 * 60.0: lambda: followed.reports(3, ended=True),
    }
    followed.follow()
    # It ended by itself, two minutes after it was heard again.
    assert followed.instance.terminated_at is not None
    assert followed.instance.terminated_at - 1000.0 >= 12 * 60.0


@pytest.mark.parametrize(
    "said", [RUNNING, Fault("unavailable", "The provider does not answer.", uncertain=True)]
)
def test_a_machine_that_stays_silent_is_terminated_after_a_quarter_of_an_hour(
    followed: Followed, said: Instance | Fault
) -> None:
    followed.instance.says = [said]
    followed.follow()
    assert followed.instance.terminated_at is not None
    silent = followed.instance.terminated_at - 1000.0
    # The promise of the last report, then fifteen minutes.
    assert 90.0 + 900.0 <= silent <= 90.0 + 900.0 + 60.0


def test_a_machine_that_its_provider_took_away_is_not_waited_for(followed: Followed) -> None:
    followed.events = {60.0: lambda: followed.instance.says.__setitem__(0, Instance("i", "k", "lost"))}
    followed.follow()
    assert followed.instance.terminated_at is not None
    assert followed.instance.terminated_at - 1000.0 <= 90.0


@pytest.fixture
def followed_by_ssh(tmp_path: Path) -> Followed:
    return Followed(tmp_path, ssh=True)


def test_a_machine_that_cannot_be_reached_over_ssh_is_terminated_after_a_quarter_of_an_hour(
    followed_by_ssh: Followed,
) -> None:
    """The provider answers and says that it runs: this server has a network, and the machine has none."""
    machine = followed_by_ssh.machine
    assert machine is not None
    followed_by_ssh.events = {60.0: lambda: setattr(machine, "away", True)}
    followed_by_ssh.follow()
    assert followed_by_ssh.instance.terminated_at is not None
    assert 900.0 <= followed_by_ssh.instance.terminated_at - 1060.0 <= 900.0 + 60.0


def test_a_server_without_a_network_terminates_no_machine(followed_by_ssh: Followed) -> None:
    """A closed laptop that opens again without Wi-Fi: neither the machine nor its provider answers."""
    machine, instance = followed_by_ssh.machine, followed_by_ssh.instance
    assert machine is not None

    def network(is_there: bool) -> None:
        machine.away = not is_there
        instance.says = [RUNNING if is_there else Fault("unavailable", "No network.", uncertain=True)]

    followed_by_ssh.events = {
        60.0: lambda: network(False),
        4 * HOUR: lambda: network(True),
        4 * HOUR + 30: lambda: followed_by_ssh.reports(2, ended=True),
    }
    followed_by_ssh.follow()
    assert instance.terminated_at is not None
    assert instance.terminated_at - 1000.0 >= 4 * HOUR


def test_a_machine_that_was_the_store_is_not_waited_for_when_it_is_gone(followed_by_ssh: Followed) -> None:
    machine, instance = followed_by_ssh.machine, followed_by_ssh.instance
    assert machine is not None

    def gone() -> None:
        machine.away, instance.says = True, [Instance("i", "k", "lost")]

    followed_by_ssh.events = {60.0: gone}
    followed_by_ssh.follow()
    assert instance.terminated_at is not None
    assert instance.terminated_at - 1000.0 <= 120.0


def test_addresses_are_signed_again_at_every_try_for_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row: waiting > 24 h for capacity. The start address had expired when a machine was free."""
    moment = [time.time()]
    store = ServerStore(
        tmp_path / "store", "https://b.example", str, lambda text, signature: text == signature,
        clock=lambda: moment[0],
    )  # fmt: skip
    job_id = str(uuid4())
    (tmp_path / "run").mkdir()
    spec = JobSpec(job_id, tmp_path / "run", 1, ("python", "train.py"))
    sent = send_bundle(store, Bundle(spec, tmp_path / "run"), mailbox=Mailbox(store, JobLayout(job_id, 1)))
    asked: list[Launch] = []

    async def submit(request: Launch) -> Instance:
        asked.append(request)
        if moment[0] - begun < 10 * 24 * HOUR:
            raise Fault("no_capacity", "All are rented.")
        return RUNNING

    async def in_thread(work: Any) -> Any:
        return work()

    async def agrees(*_: object) -> bool:
        return True

    async def wait(*_: object) -> None:
        moment[0] += 20 * HOUR

    begun = moment[0]
    monkeypatch.setattr(launcher, "_wait", wait)
    attempt: Any = SimpleNamespace(
        job=SimpleNamespace(failover=None),
        instance=SimpleNamespace(submit=submit, rental_id=None),
        spending=SimpleNamespace(check_rate=agrees),
        prices=None,
        in_thread=in_thread,
        poll_intervals=PollIntervals(),
    )
    request = Launch("bloom-k", "T4", 1, sent.command, sent.address)
    renewed = partial(launcher._renewed, request, sent, {"HF_TOKEN": "hidden"})
    found = asyncio.run(launcher._submit(attempt, request, renewed, lambda: False))
    assert found == RUNNING
    assert len({launch.start_address for launch in asked}) == len(asked) == 13
    # The first address is over; what the machine got is good, and its command fits its script.
    with pytest.raises(AddressRefused, match="expired"):
        _opened(store, asked[0])
    script = store.get(_opened(store, asked[-1]))
    assert script is not None
    assert _sha256(script) in asked[-1].command
    # The secrets of the job come with every address.
    assert asked[-1].start_address.partition("#")[2] != ""


def _opened(store: ServerStore, launch: Launch) -> str:
    parts = urlsplit(launch.start_address)
    name = unquote(parts.path.removeprefix("/api/run-files/"))
    return store.opened("GET", name, **dict(parse_qsl(parts.query))).name


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
