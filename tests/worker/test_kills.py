"""`bloom up` under fire: any of its processes is killed at random moments, and nothing is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import psutil
import pytest

from gpubloom.agent import AgentFiles
from gpubloom.server.jobs.tables import JobEvent
from tests.server.installation import Installation
from tests.worker.machine import Machine
from tests.worker.toy_files import path_with_toys

VICTIMS = ("training", "agent", "worker", "server", "parent")
STEPS = 150

# Named, so that it begins early: the longest one of its folder must not be what the others wait for.
pytestmark = pytest.mark.xdist_group("kills")


class LiveApp:
    """Server, worker and their parent, started again when the parent is killed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._parent: subprocess.Popen[bytes] | None = None

    def keep_up(self) -> None:
        if self._parent is None or self._parent.poll() is not None:
            clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
            with (self._home / "app.log").open("ab") as log:
                self._parent = subprocess.Popen(
                    [sys.executable, "-m", "gpubloom.cli", "up", "--port", "0"],
                    env={**clean, "BLOOM_HOME": str(self._home), "PYTHONPATH": path_with_toys(self._home)},
                    cwd=self._home.parent,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                )

    def kill(self, name: str) -> bool:
        """Kill one of the processes; says whether there was one."""
        assert self._parent is not None
        if name == "parent":
            self._parent.kill()
            self._parent.wait()
            return True
        word = {"server": "start", "worker": "worker"}[name]
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._parent.pid).children():
                with suppress(psutil.NoSuchProcess):
                    if word in child.cmdline():
                        child.kill()
                        return True
        return False

    def close(self) -> None:
        if self._parent is not None and self._parent.poll() is None:
            self._parent.send_signal(signal.SIGINT)
            self._parent.wait(30)


@pytest.fixture
def sqlite_installation(migrated_sqlite: Path, tmp_path: Path) -> Installation:
    home = tmp_path / "home"
    home.mkdir()
    database = home / "bloom.db"
    database.write_bytes(migrated_sqlite.read_bytes())
    return Installation(home, f"sqlite+aiosqlite:///{database}")


@pytest.fixture
def app(sqlite_installation: Installation) -> Iterator[LiveApp]:
    running = LiveApp(sqlite_installation.home)
    yield running
    running.close()


def _kill_run(machine: Machine, victim: str, jobs: list[UUID]) -> bool:
    for job_id in jobs:
        with suppress(AssertionError, ValueError, ProcessLookupError, OSError):
            record = AgentFiles(machine.run_dir(job_id)).read_agent()
            if record is None or not record.agent.lives:
                continue
            if victim == "agent":
                os.kill(record.agent.pid, signal.SIGKILL)
            else:
                os.killpg(record.group, signal.SIGKILL)
            return True
    return False


def _under_fire(installation: Installation, app: LiveApp, *, times: int, jobs: int, seed: int) -> None:
    machine = Machine(installation)
    toy = {"steps": STEPS, "seconds": 0.03, "save_every": 10}
    ids = [machine.add_job(toy=toy, max_attempts=1000) for _ in range(jobs)]
    chance = random.Random(seed)
    plan = [victim for victim in VICTIMS for _ in range(times)]
    chance.shuffle(plan)
    deadline = time.monotonic() + 120 + 20 * len(plan)
    while any(machine.job(job_id).status != "completed" for job_id in ids):
        assert time.monotonic() < deadline, [
            (machine.job(job_id).status, machine.job(job_id).error_message) for job_id in ids
        ]
        app.keep_up()
        time.sleep(chance.uniform(0.3, 2.0))
        if plan:
            victim = plan[-1]
            killed = _kill_run(machine, victim, ids) if victim in {"training", "agent"} else app.kill(victim)
            if killed:
                plan.pop()
    # Victims that were left over when the work was done: the app must survive them all the same.
    assert len(plan) <= 2 * times, f"the jobs ended before these could be killed: {plan}"
    for job_id in ids:
        job = machine.job(job_id)
        assert machine.weights(job_id) == STEPS * (STEPS + 1) // 2
        losses = machine.losses(job_id)
        assert sorted(losses) == list(range(1, STEPS + 1)), "a step has no value"
        for step, found in losses.items():
            assert {value for _, value in found} == {1.0 / step}
        positions = sorted(event.position for event in installation.all(JobEvent) if event.job_id == job_id)
        assert positions == list(range(1, job.position + 1))


@pytest.mark.long
def test_each_process_can_be_killed_and_nothing_is_lost(
    sqlite_installation: Installation, app: LiveApp
) -> None:
    _under_fire(sqlite_installation, app, times=1, jobs=2, seed=1)


@pytest.mark.long
def test_each_process_can_be_killed_twenty_times(sqlite_installation: Installation, app: LiveApp) -> None:
    _under_fire(sqlite_installation, app, times=20, jobs=12, seed=2)
