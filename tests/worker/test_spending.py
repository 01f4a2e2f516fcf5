"""Rented instances are metered by the database's clock: a worker with a wrong one bills no hour too much."""

import subprocess
import sys
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
import asyncio, sys
from datetime import timedelta
from uuid import UUID
from gpubloom.server import clock
_now, _shift = clock.now, timedelta(seconds=float(sys.argv[1]))
clock.now = lambda: _now() + _shift
from gpubloom.providers.cloud import Instance
from gpubloom.server.db.database import Database
from gpubloom.worker.spending import Spending

async def main():
    database = Database(sys.argv[2])
    spending = Spending(database, UUID(sys.argv[3]), UUID(sys.argv[4]), checkpoint_seconds=1.0)
    began = clock.now() - timedelta(seconds=600)
    instance = Instance("i", "key", "running", billed_from=began) if sys.argv[6] == "service" else None
    await spending.note(UUID(sys.argv[5]), instance)
    await database.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("says", ["service", "nobody"])
@pytest.mark.parametrize("shift", [3600, -3600])
def test_a_worker_with_a_wrong_clock_meters_what_the_instance_ran(
    installation: Installation, shift: int, says: str
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
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            METER,
            *map(str, (shift, installation.database_url, job_id, token, rental.id, says)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metered = installation.get(Rental, rental.id)
    assert metered is not None
    assert metered.metered_at is not None
    assert metered.metered_at <= now()
    # A busy machine takes a while until it meters; an hour it does not.
    assert 600 <= metered.cost + 1 < 1800
