"""Jobs on rented instances whose worker's machine is gone: followed from another one, or failed and ended."""

import asyncio
import copy
from pathlib import Path

import pytest

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.machines import GONE
from gpubloom.server.jobs.recovery import forget_machine
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.reconciling import reconcile
from gpubloom.worker import lost_machines
from gpubloom.worker.loop import machine_name
from tests.worker.remote.renter import Renter

pytest.importorskip("obstore")
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.long]

SLOW = {"steps": 200, "seconds": 0.05, "save_every": 10}


@pytest.fixture
def second(renter: Renter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Renter:
    """Another machine with the same database and bucket."""
    monkeypatch.setattr(lost_machines, "LOOK_EVERY_SECONDS", 0.2)
    monkeypatch.setattr(lost_machines, "OFFERED_SECONDS", 1.0)
    found = copy.copy(renter)
    home = tmp_path / "second"
    home.mkdir()
    # People's credentials are sealed with the key of the installation.
    (home / "secret.key").symlink_to(renter.settings.home / "secret.key")
    found.settings = renter.settings.model_copy(update={"home": home})
    return found


async def _lose(renter: Renter) -> None:
    database = Database(renter.settings.database)
    async with database.write() as session:
        assert await forget_machine(session, machine_name(renter.settings.home)) == 1
    await database.close()


def test_another_machine_that_reads_the_run_goes_on_with_the_same_instance(
    renter: Renter, second: Renter
) -> None:
    (renter.settings.home / "runs").mkdir(exist_ok=True)
    (second.settings.home / "runs").symlink_to(renter.settings.home / "runs")
    job_id = renter.rent(toy=SLOW)

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 20)
        await _lose(renter)
        async with second.worker():
            return await second.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt, len(renter.service.rented)) == ("completed", 1, 1), job.error_message
    assert job.machine == machine_name(second.settings.home)
    assert not renter.service.running


def test_an_instance_of_a_job_that_no_machine_can_go_on_with_is_ended(renter: Renter, second: Renter) -> None:
    job_id = renter.rent(toy={**SLOW, "steps": 100_000})

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 20)
        await _lose(renter)
        async with second.worker():
            job = await second.until(job_id, "completed", "failed")
        assert renter.service.running
        database = Database(second.settings.database)
        await reconcile(database, second.settings)
        await database.close()
        return job

    job = asyncio.run(scenario())
    assert (job.status, job.error_code) == ("failed", GONE)
    assert not renter.service.running
    assert [rental.state for rental in renter.rentals(job_id)] == ["ended"]
