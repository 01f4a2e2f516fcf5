"""Machines that are gone: their jobs go on where their checkpoints can be read, or fail and say why.

Two machines share one database. Each has a home folder, and with it a name, of its own; where the test wants
it, the second one reads the run directories of the first one, as over a shared disk.
"""

import asyncio
import copy
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from gpubloom.agent import AgentFiles, AgentRecord
from gpubloom.plan import detect_hardware
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.lease import Claimant, FreeSlots, claim_queued
from gpubloom.server.jobs.machines import GONE
from gpubloom.server.jobs.recovery import forget_machine
from gpubloom.server.jobs.tables import Machine as MachineRow
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker import lost_machines
from gpubloom.worker.loop import machine_name
from gpubloom.worker.lost_machines import LostMachines
from tests.server.installation import Installation
from tests.waiting import wait_until
from tests.worker.machine import Machine
from tests.worker.toy_files import path_with_toys

HELD = {"steps": 40, "hold_at": 23}


@pytest.fixture
def first(installation: Installation) -> Machine:
    return Machine(installation)


@pytest.fixture
def second(first: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Another machine with the same database, whose worker loses no time."""
    monkeypatch.setattr(lost_machines, "LOOK_EVERY_SECONDS", 0.2)
    monkeypatch.setattr(lost_machines, "OFFERED_SECONDS", 1.0)
    found = copy.copy(first)
    home = tmp_path / "second"
    home.mkdir()
    found.settings = first.settings.model_copy(update={"home": home, "machine_timeout_minutes": 0.02})
    return found


def _share_runs(first: Machine, second: Machine) -> None:
    (first.settings.home / "runs").mkdir(exist_ok=True)
    (second.settings.home / "runs").symlink_to(first.settings.home / "runs")


def _environment(machine: Machine) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
    return {
        **clean,
        "BLOOM_HOME": str(machine.settings.home),
        "BLOOM_DATABASE_URL": machine.installation.database_url,
        "PYTHONPATH": path_with_toys(machine.settings.home),
    }


@contextmanager
def _worker_process(machine: Machine) -> Iterator[subprocess.Popen[bytes]]:
    """A real worker; killed at the end of the block."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "gpubloom.cli", "server", "worker"],
        env=_environment(machine),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def _bloom(machine: Machine, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", *arguments],
        env=_environment(machine),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _lose_power(machine: Machine, worker: subprocess.Popen[bytes], job_id: UUID) -> None:
    """All processes of a machine are gone at once, and so long ago that the lease has expired."""
    record = machine.agent(job_id)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    for number in (record.agent.pid, record.group):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    wait_until(lambda: not record.agent.lives and not record.training.lives)
    machine.installation.change(machine.job(job_id), lease_expires=now() - timedelta(seconds=1))


def _run_until_power_is_lost(machine: Machine, job_id: UUID) -> None:
    with _worker_process(machine) as worker:
        asyncio.run(machine.at_step(job_id, 23))
        _lose_power(machine, worker, job_id)


def _forget(machine: Machine) -> int | None:
    async def forgotten() -> int | None:
        database = Database(machine.settings.database)
        async with database.write() as session:
            released = await forget_machine(session, machine_name(machine.settings.home))
        await database.close()
        return released

    return asyncio.run(forgotten())


@pytest.mark.long
def test_a_job_of_a_machine_that_is_gone_goes_on_where_its_checkpoints_can_be_read(
    first: Machine, second: Machine
) -> None:
    _share_runs(first, second)
    job_id = first.add_job(toy=HELD)
    _run_until_power_is_lost(first, job_id)
    assert first.job(job_id).status == "running"
    first.let_go(job_id)
    job = second.run_until(job_id, "completed", "failed")
    assert (job.status, job.attempt) == ("completed", 2), job.error_message
    assert job.machine == machine_name(second.settings.home)
    assert [
        (mark["attempt"], mark["step"]) for mark in job.summary["marks"] if mark["kind"] == "resumed"
    ] == [(2, 20)]
    assert second.weights(job_id) == sum(range(1, 41))
    assert "machine.gone" in first.installation.actions()


@pytest.mark.long
def test_a_job_whose_checkpoints_nobody_else_can_read_fails_with_the_reason_and_can_be_deleted(
    first: Machine, second: Machine
) -> None:
    job_id = first.add_job(toy=HELD)
    _run_until_power_is_lost(first, job_id)
    name = machine_name(first.settings.home)
    assert "Jobs released: 1" in _bloom(first, "server", "machines", "forget", name, "--yes")
    assert f"{name}  gone" in _bloom(first, "machines", "list")
    waiting = first.job(job_id)
    assert (waiting.status, waiting.lease_token) == ("queued", None)
    assert name in waiting.summary["waiting"]
    job = second.run_until(job_id, "completed", "failed")
    assert (job.status, job.error_code) == ("failed", GONE)
    assert name in (job.error_message or "")
    assert not second.run_dir(job_id).exists()
    with first.installation.serve() as server:
        browser = server.signed_in(first.user)
        assert browser.delete(f"/api/jobs/{job_id}").status_code == 204
    assert first.installation.get(TrainingJob, job_id) is None


@pytest.mark.long
def test_a_machine_that_comes_back_goes_on_with_the_jobs_that_nobody_took(
    first: Machine, second: Machine
) -> None:
    job_id = first.add_job(toy=HELD)
    _run_until_power_is_lost(first, job_id)
    assert _forget(first) == 1
    first.let_go(job_id)
    job = first.run_until(job_id, "completed", "failed")
    assert (job.status, job.attempt) == ("completed", 2), job.error_message
    assert "waiting" not in job.summary
    assert _gone_at(first) is None


@pytest.mark.long
@pytest.mark.parametrize(
    "returns", ["the same worker", pytest.param("another worker", marks=pytest.mark.long)]
)
def test_a_machine_that_comes_back_ends_the_trainings_that_it_lost(first: Machine, returns: str) -> None:
    job_id = first.add_job(toy=HELD)
    with _worker_process(first) as worker:
        asyncio.run(first.at_step(job_id, 23))
        record: AgentRecord = first.agent(job_id)
        worker.send_signal(signal.SIGSTOP if returns == "the same worker" else signal.SIGKILL)
        assert _forget(first) == 1
        with first.installation.serve() as server:
            browser = server.signed_in(first.user)
            assert browser.post(f"/api/jobs/{job_id}/cancel").json()["status"] == "cancelled"
            before = first.job(job_id)
        assert record.training.lives
        if returns == "the same worker":
            worker.send_signal(signal.SIGCONT)
            wait_until(lambda: not record.training.lives and not record.agent.lives)
        else:

            async def scenario() -> None:
                async with first.worker():
                    await asyncio.to_thread(
                        wait_until, lambda: not record.training.lives and not record.agent.lives
                    )

            asyncio.run(scenario())
    job = first.job(job_id)
    assert (job.status, job.attempt, job.cursor, job.position) == (
        "cancelled",
        before.attempt,
        before.cursor,
        before.position,
    )


@pytest.mark.long
def test_a_machine_that_comes_back_leaves_alone_what_its_successor_runs(
    first: Machine, second: Machine
) -> None:
    _share_runs(first, second)
    job_id = first.add_job(toy={**HELD, "hold_at": 30, "save_every": 5})
    with _worker_process(first) as worker:
        asyncio.run(first.at_step(job_id, 30))
        _lose_power(first, worker, job_id)

    async def scenario() -> TrainingJob:
        async with second.worker():
            await second.when(job_id, lambda job: job.status == "running" and job.attempt == 2)
            async with first.worker():
                await asyncio.to_thread(wait_until, lambda: _gone_at(first) is None)
                assert AgentFiles(first.run_dir(job_id)).last_attempt() == 2
                assert first.agent(job_id).training.lives
                first.let_go(job_id)
                return await second.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 2), job.error_message


def _gone_at(machine: Machine) -> object:
    name = machine_name(machine.settings.home)
    return next(row.gone_at for row in machine.installation.all(MachineRow) if row.name == name)


def test_a_training_that_saved_nothing_yet_begins_anew_on_any_machine(
    first: Machine, second: Machine
) -> None:
    fields = {"status": "running", "attempt": 1, "machine": "lost", "cursor": {"some": "file"}}
    job_id = first.add_job(**fields)
    first.installation.add(MachineRow(name="lost", last_seen_at=now() - timedelta(hours=1), gone_at=None))
    claimant = Claimant("w", machine_name(second.settings.home))

    async def scenario() -> TrainingJob | None:
        database = Database(second.settings.database)
        async with database.write() as session:
            await forget_machine(session, "lost")
        await LostMachines(second.settings, database, claimant, detect_hardware()).look()
        async with database.write() as session:
            claimed = await claim_queued(session, claimant, FreeSlots(cpu=True))
        await database.close()
        return claimed

    job = asyncio.run(scenario())
    assert job is not None
    assert (job.id, job.machine, job.cursor, job.attempt) == (job_id, claimant.machine, {}, 2)


@pytest.mark.parametrize("sign", ["a lease", "lately"])
def test_a_machine_that_gives_a_sign_of_life_keeps_its_jobs(
    first: Machine, second: Machine, sign: str
) -> None:
    held = sign == "a lease"
    job_id = first.add_job(
        status="running",
        attempt=1,
        machine="busy",
        worker=f"{socket.gethostname()}:1",
        lease_token=uuid4(),
        lease_expires=now() + (timedelta(hours=1) if held else -timedelta(hours=1)),
    )
    seen = now() - (timedelta(hours=1) if held else timedelta())
    first.installation.add(MachineRow(name="busy", last_seen_at=seen, gone_at=None))
    settings = second.settings.model_copy(update={"machine_timeout_minutes": 10})

    async def scenario() -> None:
        database = Database(settings.database)
        claimant = Claimant("w", machine_name(settings.home))
        observer = LostMachines(settings, database, claimant, detect_hardware())
        observer._looked = time.monotonic() - 2 * lost_machines.LOOK_EVERY_SECONDS
        await observer.look()
        assert observer._silent == {}
        await database.close()

    asyncio.run(scenario())
    assert first.job(job_id).status == "running"


def test_a_machine_is_watched_for_a_while_before_it_is_called_gone(first: Machine, second: Machine) -> None:
    job_id = first.add_job(status="running", attempt=1, machine="silent")
    first.installation.add(MachineRow(name="silent", last_seen_at=now() - timedelta(hours=1), gone_at=None))
    settings = second.settings.model_copy(update={"machine_timeout_minutes": 10})

    async def scenario() -> None:
        database = Database(settings.database)
        claimant = Claimant("w", machine_name(settings.home))
        observer = LostMachines(settings, database, claimant, detect_hardware())
        await observer.look()
        assert first.job(job_id).status == "running", "it may be the database that was away"
        observer._silent = dict.fromkeys(observer._silent, time.monotonic() - 3600)
        observer._looked = time.monotonic() - 2 * lost_machines.LOOK_EVERY_SECONDS
        await observer.look()
        await database.close()

    asyncio.run(scenario())
    assert first.job(job_id).status == "queued"
