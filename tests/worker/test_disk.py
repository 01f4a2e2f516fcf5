"""A full, read-only or failing disk of the worker's machine is no fault of a job."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from gpubloom.providers.base import ProviderError
from gpubloom.server.jobs.tables import Worker
from gpubloom.worker.disk import DiskFault, fault_in, fault_of, probe
from tests.server.installation import Installation
from tests.small_disk import fill, remount, small_disk
from tests.worker.machine import Machine


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home folder on a disk of its own."""
    with small_disk(tmp_path / "home", "64m") as folder:
        yield folder


@pytest.fixture
def machine(home: Path, database_url: str) -> Machine:
    return Machine(Installation(home, database_url))


async def shows_fault(machine: Machine, code: str | None) -> None:
    """Wait until the worker's row carries this code; None: until it carries none."""

    def codes() -> list[str | None]:
        with machine.installation.session() as session:
            return list(session.scalars(select(Worker.fault_code)))

    async with asyncio.timeout(60):
        while await asyncio.to_thread(codes) != [code]:
            await asyncio.sleep(0.05)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("jobs", [5, pytest.param(50, marks=pytest.mark.long)])
def test_a_full_disk_fails_no_queued_job_and_all_complete_once_space_is_free(
    machine: Machine, home: Path, jobs: int
) -> None:
    (home / "machine").write_text("this-machine\n")
    queued = [machine.add_job(toy={"steps": 5, "seconds": 0}) for _ in range(jobs)]
    ballast = fill(home)

    async def scenario() -> None:
        async with machine.worker():
            await shows_fault(machine, "disk_full")
            waiting = [await asyncio.to_thread(machine.job, job_id) for job_id in queued]
            assert {job.status for job in waiting} == {"queued"}
            ballast.unlink()
            for job_id in queued:
                await machine.until(job_id, "completed")

    asyncio.run(scenario())
    for job in map(machine.job, queued):
        assert (job.attempt, job.attempts_without_progress) == (1, 0), "the fault of the disk is not counted"


@pytest.mark.long
def test_a_job_that_was_claimed_before_the_disk_filled_up_is_queued_again(
    machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker believes its last probe for a while; the job finds the fault first."""
    monkeypatch.setattr("gpubloom.worker.disk.TRUST_SECONDS", 3600.0)
    first = machine.add_job(toy={"hold_at": 1, "steps": 2, "save_every": 100})
    jobs = [machine.add_job(toy={"steps": 2}), machine.add_task("export"), machine.add_task("evaluate")]

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(first, 1)
            for task in jobs[1:]:
                await machine.until(task, "completed")
            late = await asyncio.to_thread(machine.add_task, "evaluate", status="paused")
            ballast = fill(home)
            await machine.change(late, status="queued")
            queued = await machine.when(late, lambda job: "waiting" in job.summary)
            assert (queued.status, queued.attempt, queued.error_code) == ("queued", 0, None)
            assert queued.machine is None, "another machine may take it"
            await shows_fault(machine, "disk_full")
            ballast.unlink()
            machine.let_go(first)
            for job_id in (first, *jobs, late):
                ended = await machine.until(job_id, "completed", "failed")
                assert ended.status == "completed", ended.error_message

    asyncio.run(scenario())
    assert machine.job(jobs[0]).attempt == 1


@pytest.mark.long
def test_a_run_that_the_full_disk_ended_resumes_from_its_checkpoint(machine: Machine, home: Path) -> None:
    job_id = machine.add_job(toy={"hold_at": 7})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 7)
            ballast = fill(home)
            machine.let_go(job_id)
            queued = await machine.until(job_id, "queued", "failed")
            assert (queued.status, queued.attempts_without_progress) == ("queued", 0)
            assert "disk" in queued.summary["waiting"]
            await shows_fault(machine, "disk_full")
            ballast.unlink()
            await shows_fault(machine, None)
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.attempt, job.error_message) == (2, None)
    assert machine.weights(job_id) == sum(range(1, 41)), "every step counts once"
    assert machine.losses(job_id)[6][-1][0] == 2, "it went on after step 5"


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "max_attempts"),
    # A lack of space is never counted as an attempt without progress.
    [(errno.ENOSPC, 1), (errno.EIO, 2)],
    ids=["ENOSPC", "EIO"],
)
def test_a_run_that_ended_with_an_error_of_the_disk_is_queued_again_although_a_probe_finds_none(
    installation: Installation, number: int, max_attempts: int
) -> None:
    machine = Machine(installation)
    job_id = machine.add_job(toy={"error_at": 3, "errno": number, "steps": 5}, max_attempts=max_attempts)

    async def scenario() -> None:
        async with machine.worker():
            ended = await machine.until(job_id, "completed", "failed")
            assert ended.status == "completed", ended.error_message

    asyncio.run(scenario())
    assert machine.job(job_id).attempt == 2


@pytest.mark.long
def test_a_worker_that_starts_on_a_read_only_disk_waits_until_the_disk_can_be_written(
    machine: Machine, home: Path
) -> None:
    job_id = machine.add_job(toy={"steps": 5})
    remount(home, read_only=True)

    async def scenario() -> None:
        async with machine.worker():
            await shows_fault(machine, "disk_read_only")
            remount(home, read_only=False)
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    assert machine.job(job_id).attempt == 1


@pytest.mark.long
def test_a_disk_that_becomes_read_only_stops_the_claiming_of_jobs(
    machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.worker.disk.TRUST_SECONDS", 0.1)
    job_id = machine.add_job(toy={"steps": 5}, status="paused")

    async def scenario() -> None:
        async with machine.worker():
            await shows_fault(machine, None)
            remount(home, read_only=True)
            await shows_fault(machine, "disk_read_only")
            await machine.change(job_id, status="queued")
            remount(home, read_only=False)
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    assert machine.job(job_id).attempt == 1


@pytest.mark.long
def test_a_database_on_the_same_full_disk_is_waited_for(home: Path, migrated_sqlite: Path) -> None:
    database = home / "bloom.db"
    database.write_bytes(migrated_sqlite.read_bytes())
    machine = Machine(Installation(home, f"sqlite+aiosqlite:///{database}"))
    jobs = [machine.add_job(toy={"hold_at": 7}), machine.add_job(toy={"steps": 5})]

    async def scenario() -> None:
        async with machine.worker() as worker:
            await machine.holds(jobs[0], 7)
            ballast = fill(home)
            machine.let_go(jobs[0])
            async with asyncio.timeout(60):
                while worker.disk.fault is None:
                    await asyncio.sleep(0.05)
            ballast.unlink()
            for job_id in jobs:
                ended = await machine.until(job_id, "completed", "failed")
                assert ended.status == "completed", ended.error_message

    asyncio.run(scenario())
    assert machine.weights(jobs[0]) == sum(range(1, 41))


def test_health_names_the_fault_of_a_disk_and_no_path(machine: Machine, home: Path) -> None:
    ballast = fill(home)

    async def scenario() -> None:
        async with machine.worker():
            await shows_fault(machine, "disk_full")
            with machine.installation.serve() as server:
                told = (await asyncio.to_thread(server.stranger.get, "/api/health")).json()
            ballast.unlink()
        assert (told["status"], [problem["code"] for problem in told["problems"]]) == (
            "degraded",
            ["disk_full"],
        )
        assert str(home) not in str(told)

    asyncio.run(scenario())
    with machine.installation.serve() as server:
        assert server.stranger.get("/api/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk_full"),
        (errno.EDQUOT, "disk_full"),
        (errno.EROFS, "disk_read_only"),
        (errno.EIO, "disk_failing"),
        (errno.ENOENT, None),
    ],
)
def test_errors_of_the_disk_are_told_from_others(number: int, code: str | None) -> None:
    problem = OSError(number, os.strerror(number), "/runs/a")
    refusal = ProviderError("cannot_write", "The job cannot be written.")
    refusal.__cause__ = problem
    said = [f"OSError: {problem}", f"a could not be saved: {problem.strerror}.", f"I/O (os error {number})"]
    expected = None if code is None else DiskFault(code)  # type: ignore[arg-type]
    assert [fault_of(problem), fault_of(refusal), *map(fault_in, said)] == [expected] * 5


def test_a_probe_leaves_nothing_behind_and_keeps_a_reserve(home: Path) -> None:
    runs = home / "runs"
    assert probe(runs) is None
    assert probe(runs, reserve_bytes=1 << 40) == DiskFault("disk_full")
    fill(home)
    assert probe(runs, reserve_bytes=0) == DiskFault("disk_full")
    assert list(runs.iterdir()) == []
