"""Jobs on rented machines: they arrive, cost what they cost, end as asked, and leave nothing running."""

import asyncio

import pytest

from gpubloom.server.jobs.tables import TrainingJob
from tests.worker.elsewhere.renter import Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")


def test_a_job_runs_elsewhere_and_its_run_arrives_here(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 40, "seconds": 0.02})

    async def scenario() -> TrainingJob:
        async with renter.worker():
            return await renter.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert job.status == "completed", job.error_message
    assert sorted(renter.losses(job_id)) == list(range(1, 41))
    assert renter.weights(job_id) == sum(range(1, 41))
    assert not renter.service.running
    # One dollar a second: what is told is what the service would bill.
    [rental] = renter.rentals(job_id)
    assert rental.cost == pytest.approx(renter.service.billed_seconds(), rel=0.01, abs=1.0)
    assert job.summary["cost"]["so_far"] == pytest.approx(rental.cost)
    assert not job.summary["cost"]["running"]
