"""A job whose offer has no machine, or loses it, goes on with the next one from its checkpoint."""

import asyncio

import pytest

from gpubloom.providers.cloud import Fault
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker.failover import take_next_offer
from tests.worker.remote.renter import Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")


def _with_next_offer(renter: Renter, job_id: object, **changes: object) -> None:
    job = renter.job(job_id)  # type: ignore[arg-type]
    following = {**(job.offer or {}), "target": "toy", "title": "Toy", "gpu": "A100", **changes}
    renter.installation.change(job, failover=[following])


@pytest.mark.long
def test_without_capacity_the_job_takes_the_next_offer_within_its_budget(renter: Renter) -> None:
    full = Fault("no_capacity", "All T4 are rented.")
    renter.service.faults["submit"] = [full]
    job_id = renter.rent(toy={"steps": 10}, budget=500.0)
    _with_next_offer(renter, job_id)
    job = renter.run_until(job_id, "completed", "failed")
    assert (job.status, job.attempt, job.budget) == ("completed", 2, 500.0), job.error_message
    chain = [(rental.attempt, rental.gpu, rental.state, rental.detail) for rental in renter.rentals(job_id)]
    assert chain[0] == (1, "T4", "ended", "All T4 are rented.")
    assert chain[1][:3] == (2, "A100", "ended")
    # The first may have a machine later.
    assert [offer["gpu"] for offer in job.failover or []] == ["T4"]


@pytest.mark.parametrize(
    ("kind", "helps"), [("inactive_account", True), ("quota", True), ("secret_missing", False)]
)
def test_an_account_that_cannot_rent_leads_to_the_next_offer(kind: str, helps: bool) -> None:
    job = TrainingJob(offer={"gpu": "T4"}, target="toy", failover=[{"gpu": "A100", "target": "other"}])
    assert take_next_offer(job, kind, now()) == helps
    assert job.target == ("other" if helps else "toy")


@pytest.mark.long
def test_a_machine_that_is_taken_away_is_replaced_by_one_of_the_next_offer(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 120, "seconds": 0.05, "save_every": 10}, offer={"kind": "spot"})
    _with_next_offer(renter, job_id, kind="on_demand")

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 40)
            renter.service.take_away(renter.service.only())
            return await renter.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 2), job.error_message
    assert [(rental.gpu, rental.state) for rental in renter.rentals(job_id)] == [
        ("T4", "lost"),
        ("A100", "ended"),
    ]
    resumed = [mark for mark in job.summary["marks"] if mark["kind"] == "resumed"]
    assert [mark["step"] >= 30 for mark in resumed] == [True]
    assert sorted(renter.losses(job_id)) == list(range(1, 121))
