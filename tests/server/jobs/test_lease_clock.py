"""Leases run by the database's clock: a worker whose own clock is wrong neither blocks nor steals a job."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from gpubloom.plan import detect_hardware
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.jobs import lease
from gpubloom.server.jobs.lease import Claimant, FreeSlots, claim_abandoned, claim_queued
from gpubloom.server.jobs.tables import TrainingJob, Worker
from gpubloom.worker import imports
from gpubloom.worker.imports import claim
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_dataset, add_job

# A process of which every part that asks for the time gets another one than the database has.
SHIFTED = """
import asyncio, json, sys, time
from datetime import timedelta
from gpubloom.server import clock
_now, _time, _shift = clock.now, time.time, float(sys.argv[1])
clock.now = lambda: _now() + timedelta(seconds=_shift)
time.time = lambda: _time() + _shift
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.launch import live_machines
from gpubloom.server.jobs.lease import Claimant, FreeSlots, claim_abandoned, claim_queued
from gpubloom.server.jobs.lease import expire_leases, renew
from gpubloom.worker.imports import claim
from gpubloom.server.jobs import lease
from gpubloom.worker import imports
lease.LEASE = imports.LEASE = timedelta(minutes=10)
here = Claimant("shifted:1", "here")
async def main():
    database = Database(sys.argv[2])
    async with database.write() as session:
        print(json.dumps(await work(session)))
    await database.close()
"""
HOUR = 3600
# A clock that is behind is asked in `make test-long`.
SHIFTS = [HOUR, pytest.param(-HOUR, marks=pytest.mark.long)]
# Longer than a busy machine takes to start a process, and less than the clocks differ.
LEASE = timedelta(minutes=10)


@pytest.fixture(autouse=True)
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", LEASE)
    monkeypatch.setattr(imports, "LEASE", LEASE)


def _shifted(installation: Installation, seconds: int, work: str) -> Any:
    program = f"{SHIFTED}\nasync def work(session):\n    {work}\nasyncio.run(main())\n"
    done = subprocess.run(
        [sys.executable, "-c", program, str(seconds), installation.database_url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _ask(installation: Installation, work: Any) -> Any:
    async def asked() -> Any:
        database = Database(installation.database_url)
        async with database.write() as session:
            found = await work(session)
        await database.close()
        return found

    return asyncio.run(asked())


@pytest.mark.long
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_lease_lasts_as_long_whatever_the_clock_of_its_worker_says(
    installation: Installation, member: User, shift: int
) -> None:
    job = add_job(installation, member)
    before = now()
    assert _shifted(
        installation, shift, "return (await claim_queued(session, here, FreeSlots(cpu=True))) is not None"
    )
    stored = installation.get(TrainingJob, job.id)
    assert stored is not None
    assert stored.lease_expires is not None
    assert before <= stored.lease_expires - LEASE <= now()
    assert _shifted(
        installation,
        shift,
        f"from uuid import UUID; return await renew(session, UUID('{job.id}'), UUID('{stored.lease_token}'))",
    )
    renewed = installation.get(TrainingJob, job.id)
    assert renewed is not None
    assert renewed.lease_expires is not None
    assert stored.lease_expires <= renewed.lease_expires <= now() + LEASE


@pytest.mark.long
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_worker_with_a_wrong_clock_takes_abandoned_jobs_only(
    installation: Installation, member: User, shift: int
) -> None:
    job = add_job(installation, member)
    held = _ask(
        installation, lambda session: claim_queued(session, Claimant("w", "here"), FreeSlots(cpu=True))
    )
    assert held.id == job.id
    take = "return (await claim_abandoned(session, here)) is not None"
    assert _shifted(installation, shift, take) is False, "a lease that is held was stolen"
    installation.change(job, lease_expires=now() - timedelta(seconds=1))
    assert _shifted(installation, shift, take) is True, "a lease that ran out was not taken"
    taken = _ask(installation, lambda session: claim_abandoned(session, Claimant("w", "here")))
    assert taken is None, "the lease of a worker with a wrong clock was stolen"


@pytest.mark.long
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_worker_with_a_wrong_clock_gives_its_leases_up_at_once(
    installation: Installation, member: User, shift: int
) -> None:
    add_job(installation, member)
    claimant = Claimant("w", "here")
    _ask(installation, lambda session: claim_queued(session, claimant, FreeSlots(cpu=True)))
    _shifted(installation, shift, "return await expire_leases(session, 'here', workers=['w'])")
    assert _ask(installation, lambda session: claim_abandoned(session, claimant)) is not None


@pytest.mark.long
@pytest.mark.parametrize("shift", SHIFTS)
def test_datasets_are_leased_by_the_clock_of_the_database_too(
    installation: Installation, member: User, shift: int
) -> None:
    dataset = add_dataset(installation, member, status="inspecting")
    take = "return (await claim(session, Dataset, 'inspecting', 'shifted:1')) is not None"
    assert _shifted(installation, shift, take) is True
    assert _ask(installation, lambda session: claim(session, Dataset, "inspecting", "w")) is None
    installation.change(dataset, lease_expires=now() - timedelta(seconds=1))
    assert _ask(installation, lambda session: claim(session, Dataset, "inspecting", "w")) is not None
    assert _shifted(installation, shift, take) is False


@pytest.mark.long
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_server_with_a_wrong_clock_sees_the_workers_that_are_there(
    installation: Installation, shift: int
) -> None:
    hardware = detect_hardware().model_dump(mode="json")
    installation.add(Worker(name="w", hardware=hardware, last_seen_at=now()))
    installation.add(Worker(name="gone", hardware=hardware, last_seen_at=now() - timedelta(hours=1)))
    assert _shifted(installation, shift, "return len(await live_machines(session))") == 1
