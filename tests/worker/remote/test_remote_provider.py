"""Machines that are taken away, agents that are killed, a bucket that is away, credentials that are revoked.

Every story ends with one timeline: each step of the training is stored, whatever happened between.
"""

import asyncio
import json
import signal
import time
from dataclasses import replace

import pytest

from gpubloom.agent import AgentFiles
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.reconciling import reconcile
from gpubloom.server.rentals.tables import Budget, ProviderCredential
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote.renter import POLL_INTERVALS, Renter

pytest.importorskip("obstore")
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.long]

SLOW = {"steps": 120, "seconds": 0.05, "save_every": 10}


def _whole(renter: Renter, job_id: object, steps: int = 120) -> None:
    losses = renter.losses(job_id)  # type: ignore[arg-type]
    assert sorted(losses) == list(range(1, steps + 1))
    assert renter.weights(job_id) == sum(range(1, steps + 1))  # type: ignore[arg-type]
    assert not renter.service.running


def test_a_machine_that_is_taken_away_is_replaced_and_the_job_goes_on_from_its_checkpoint(
    renter: Renter,
) -> None:
    job_id = renter.rent(toy=SLOW)

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 40)
            renter.service.take_away(renter.service.only())
            return await renter.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 2), job.error_message
    _whole(renter, job_id)
    assert [rental.state for rental in renter.rentals(job_id)] == ["lost", "ended"]
    resumed = [mark for mark in job.summary["marks"] if mark["kind"] == "resumed"]
    assert [(mark["attempt"], mark["step"] >= 30) for mark in resumed] == [(2, True)]
    billed = sum(rental.billed_seconds for rental in renter.rentals(job_id))
    assert job.summary["cost"]["so_far"] == pytest.approx(billed, rel=0.01)


@pytest.mark.parametrize("victim", ["agent", "uploader"])
def test_a_killed_agent_ends_the_attempt_and_another_machine_goes_on(renter: Renter, victim: str) -> None:
    job_id = renter.rent(toy=SLOW)

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 30)
            rented = renter.service.only()
            record = AgentFiles(renter.service.run_dir(rented)).read_agent()
            assert record is not None
            if victim == "agent":
                record.agent.signal(signal.SIGKILL)
            else:
                [uploader] = [
                    process for process in rented.machine.processes() if "remote" in process.cmdline()[2:]
                ]
                uploader.kill()
                record.agent.signal(signal.SIGKILL)
                record.training.signal(signal.SIGKILL)
            return await renter.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 2), job.error_message
    _whole(renter, job_id)


def test_a_machine_that_ended_before_its_launch_was_answered_is_not_rented_again(renter: Renter) -> None:
    """Some services do not find by its key what has ended; the bucket does."""
    renter.service.cuts, renter.service.forgets = {"submit"}, True
    job_id = renter.rent(toy={"steps": 5})
    job = renter.run_until(job_id, "completed", "failed")
    assert (job.status, job.attempt) == ("completed", 1), job.error_message
    _whole(renter, job_id, 5)
    assert (len(renter.service.rented), renter.service.calls.count("submit")) == (1, 1)


def test_another_worker_goes_on_attending_and_rents_nothing_again(renter: Renter) -> None:
    job_id = renter.rent(toy=SLOW)

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 20)
        before = len(renter.losses(job_id))
        latest = renter.service.run_dir(renter.service.only()) / "traincard/latest.json"
        # Written after the events: it may not yet name a step.
        while (json.loads(latest.read_text())["step"] or 0) < before + 20:
            await asyncio.sleep(0.05)
        assert len(renter.losses(job_id)) == before, "nobody looks"
        async with renter.worker():
            return await renter.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt, len(renter.service.rented)) == ("completed", 1, 1)
    _whole(renter, job_id)


def test_nothing_is_concluded_while_the_bucket_is_away(renter: Renter, bucket: S3Server) -> None:
    job_id = renter.rent(toy={**SLOW, "steps": 200})
    # The agent promises a batch every thirty seconds, which is longer than the outage.
    poll_intervals = replace(POLL_INTERVALS, agent={**POLL_INTERVALS.agent, "beat": 10.0})

    async def scenario() -> TrainingJob:
        async with renter.worker(poll_intervals=poll_intervals):
            await renter.at_step(job_id, 20)
            await asyncio.to_thread(bucket.stop)
            # Before each look at the instance, the bucket was asked in vain.
            looks = renter.service.calls.count("status")
            while renter.service.calls.count("status") < looks + 4:
                await asyncio.sleep(0.05)
            away = await asyncio.to_thread(renter.job, job_id)
            assert (away.status, away.attempt) == ("running", 1)
            assert away.summary["cost"]["running"] is True
            await asyncio.to_thread(bucket.start)
            return await renter.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 1), job.error_message
    _whole(renter, job_id, 200)


def test_revoked_credentials_end_no_run_and_the_machine_is_ended_once_there_are_new_ones(
    renter: Renter,
) -> None:
    job_id = renter.rent(toy=SLOW)

    async def scenario() -> TrainingJob:
        database = Database(renter.settings.database)
        async with renter.worker():
            await renter.at_step(job_id, 20)
            renter.service.keys = {"a new one"}
            job = await renter.until(job_id, "completed", "failed")
            assert renter.service.running, "nobody may end it now"
            assert [rental.state for rental in renter.rentals(job_id)] == ["running"]
        assert await reconcile(database, renter.settings) == []
        with renter.installation.session() as session:
            session.query(ProviderCredential).delete()
        renter.connect("toy", {"key": "a new one"})
        ended = await reconcile(database, renter.settings)
        assert [each.provider for each in ended] == ["toy"]
        await database.close()
        return job

    job = asyncio.run(scenario())
    assert job.status == "completed"
    _whole(renter, job_id)
    [rental] = renter.rentals(job_id)
    assert rental.state == "ended"
    assert rental.cost == pytest.approx(renter.service.billed_seconds(), rel=0.01, abs=1.0)


def test_a_machine_that_may_not_live_long_is_replaced_in_time(
    renter: Renter, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.worker.remote import toy_provider

    short = replace(toy_provider.PROVIDER.capabilities, longest_seconds=8.0)
    monkeypatch.setattr(toy_provider, "PROVIDER", replace(toy_provider.PROVIDER, capabilities=short))
    job_id = renter.rent(toy={"steps": 160, "seconds": 0.05, "save_every": 5})
    job = renter.run_until(job_id, "completed", "failed")
    assert job.status == "completed", job.error_message
    assert job.attempt >= 2
    _whole(renter, job_id, 160)
    for rented in renter.service.rented.values():
        assert rented.launch.longest_seconds == 8.0


@pytest.mark.parametrize("scope", ["project", "user"])
def test_budgets_of_projects_and_people_count_all_their_machines(renter: Renter, scope: str) -> None:
    project_id = renter.project.id if scope == "project" else None
    renter.installation.add(Budget(user_id=renter.user.id, project_id=project_id, amount=24.0, warned=[]))
    jobs = [renter.rent(toy={"steps": 100_000, "seconds": 0.02, "save_every": 10}) for _ in range(2)]

    async def scenario() -> list[TrainingJob]:
        async with renter.worker():
            return [await renter.until(job_id, "paused", "failed") for job_id in jobs]

    ended = asyncio.run(scenario())
    assert [(job.status, job.error_code) for job in ended] == [("paused", "budget")] * 2
    assert not renter.service.running
    total = sum(rental.cost for rental in renter.rentals())
    assert 14.0 < total < 34.0
    [budget] = renter.installation.all(Budget)
    assert 50 in budget.warned


def test_the_longest_time_pauses_a_job_and_says_so(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 100_000, "seconds": 0.02, "save_every": 10}, max_hours=12 / 3600)
    job = renter.run_until(job_id, "paused", "failed")
    assert (job.status, job.error_code) == ("paused", "time_limit")


def test_an_agent_whose_worker_is_gone_stops_at_the_budget_by_itself(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 100_000, "seconds": 0.02, "save_every": 10}, budget=12.0)

    async def scenario() -> TrainingJob:
        async with renter.worker(poll_intervals=replace(POLL_INTERVALS, checkpoint=1.0)):
            await renter.at_step(job_id, 5)
        rented = renter.service.only()
        # The machine itself goes later, but goes: the agent needs a while to save and to deliver.
        assert rented.launch.longest_seconds is not None
        assert 0 < rented.launch.longest_seconds - POLL_INTERVALS.last_resort < 13
        there = AgentFiles(renter.service.run_dir(rented))
        deadline = time.monotonic() + 120
        while there.read_exit(1) is None:
            assert time.monotonic() < deadline, "it trains on"
            await asyncio.sleep(0.2)
        assert there.read_exit(1).reason == "time_limit"  # type: ignore[union-attr]
        async with renter.worker():
            return await renter.until(job_id, "paused", "failed", "completed")

    job = asyncio.run(scenario())
    assert (job.status, job.error_code) == ("paused", "budget"), job.error_message
    assert not renter.service.running
