"""Rented instances are metered by the database's clock: a worker with a wrong one bills no hour too much."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from gpubloom.server.clock import now
from gpubloom.server.rentals.tables import Rental
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.server.installation import Installation
from tests.worker.machine import Machine

# A worker process of which every part that asks for the time gets another one than the database has.
METER = """
import asyncio, json, sys
from datetime import timedelta
from uuid import UUID
from gpubloom.server import clock
_now, shift = clock.now, timedelta()
clock.now = lambda: _now() + shift
from gpubloom.providers.cloud import Instance
from gpubloom.server.db.database import Database
from gpubloom.worker.spending import Spending

async def meter(address, job_id, token, rental_id, says):
    database = Database(address)
    spending = Spending(database, UUID(job_id), UUID(token), checkpoint_seconds=1.0)
    began = clock.now() - timedelta(seconds=600)
    instance = Instance("i", "key", "running", billed_from=began) if says == "service" else None
    await spending.note(UUID(rental_id), instance)
    await database.close()

for line in sys.stdin:
    seconds, *case = json.loads(line)
    shift = timedelta(seconds=seconds)
    asyncio.run(meter(*case))
    print("metered", flush=True)
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[subprocess.Popen[str]]:
    """The process, for all tests: starting it takes far longer than what it does."""
    command = [sys.executable, "-c", METER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("says", ["service", "nobody"])
@pytest.mark.parametrize("shift", [3600, -3600])
def test_a_worker_with_a_wrong_clock_meters_what_the_instance_ran(
    installation: Installation, worker: subprocess.Popen[str], shift: int, says: str
) -> None:
    machine = Machine(installation)
    token = uuid4()
    held = {"lease_token": token, "lease_expires": now() + timedelta(hours=1)}
    job_id = machine.add_job(status="running", attempt=1, target="toy", offer={"hourly": 3600.0}, **held)
    rental = installation.add(
        Rental(
            id=uuid4(),
            user_id=machine.user.id,
            job_id=job_id,
            job_name="toy",
            attempt=1,
            provider="toy",
            key="key",
            state="running",
            gpu="T4",
            gpus=1,
            kind="on_demand",
            hourly=3600.0,
            billed_from=now() - timedelta(seconds=600),
        )
    )
    case = (shift, installation.database_url, str(job_id), str(token), str(rental.id), says)
    assert worker.stdin is not None
    assert worker.stdout is not None
    print(json.dumps(case), file=worker.stdin, flush=True)
    assert worker.stdout.readline() == "metered\n", "its error is on the standard error of the tests"
    metered = installation.get(Rental, rental.id)
    assert metered is not None
    assert metered.metered_at is not None
    assert metered.metered_at <= now()
    # A busy machine takes a while until it meters; an hour it does not.
    assert 600 <= metered.cost + 1 < 1800
