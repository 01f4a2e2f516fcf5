"""A worker follows real agents that run toy trainings, on both databases."""

import asyncio
import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.agent.spec import JobSpec
from gpubloom.providers.base import GracePeriod, Reservation
from gpubloom.providers.local.provider import LocalProvider
from gpubloom.server.clock import now
from gpubloom.server.jobs import run_watch
from gpubloom.server.jobs.lease import Claimant
from gpubloom.server.jobs.tables import Checkpoint, JobEvent, TrainingJob
from gpubloom.worker import loop
from tests.deletion import delete_in_use
from tests.worker.machine import Machine

SUM_OF_40 = 820


def test_a_queued_job_is_trained_and_every_step_is_stored_once(machine: Machine) -> None:
    job_id = machine.add_job()

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(job_id, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.status, job.error_message, job.attempt) == ("completed", None, 1)
    assert machine.losses(job_id) == {step: [(1, 1.0 / step)] for step in range(1, 41)}
    assert machine.weights(job_id) == SUM_OF_40
    assert {row.step for row in machine.installation.all(Checkpoint)} == set(range(5, 41, 5))
    assert (job.lease_token, job.worker) == (None, None)
    assert job.start_time is not None
    assert job.end_time is not None
    positions = sorted(event.position for event in machine.installation.all(JobEvent))
    assert positions == list(range(1, job.position + 1))


def test_a_training_that_fails_is_not_tried_again_and_its_words_are_kept(machine: Machine) -> None:
    job_id = machine.add_job(toy={"fails": "The data is made of cheese."})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(job_id, "failed", "completed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.attempt, job.error_code) == (1, "training_failed")
    assert "The data is made of cheese." in (job.error_message or "")


@pytest.mark.long
def test_pause_saves_and_frees_the_device_and_resume_goes_on_exactly_there(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 7})
    waiting = machine.add_job(toy={"steps": 3})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 7)
            assert (await asyncio.to_thread(machine.job, waiting)).status == "queued"
            await machine.change(job_id, status="pausing", want="pause")
            await machine.until(job_id, "paused")
            await machine.until(waiting, "completed")
            machine.let_go(job_id)
            await machine.change(job_id, status="queued", want="run")
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    assert machine.weights(job_id) == SUM_OF_40
    losses = machine.losses(job_id)
    assert sorted(losses) == list(range(1, 41))
    assert all(len(values) == 1 for values in losses.values()), "a paused run repeats no step"
    assert machine.job(job_id).attempt == 2


@pytest.mark.long
def test_live_settings_and_saves_reach_the_run_and_are_marked(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 3, "save_every": 1000})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 3)
            await machine.change(job_id, settings={"learning_rate": 0.25}, saves=1)
            await machine.when(job_id, lambda job: bool(job.summary.get("marks")))
            machine.let_go(job_id)
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert job.summary["values"]["train/learning_rate"]["value"] == 0.25
    assert any(mark["kind"] == "applied" for mark in job.summary["marks"])
    assert len(machine.installation.all(Checkpoint)) == 1


def test_cancel_ends_a_run_that_listens(machine: Machine) -> None:
    job_id = machine.add_job(toy={"seconds": 0.05, "steps": 10_000})

    async def scenario() -> None:
        async with machine.worker():
            await machine.at_step(job_id, 2)
            await machine.change(job_id, status="cancelling", want="cancel")
            await machine.until(job_id, "cancelled")

    asyncio.run(scenario())
    assert not machine.agent(job_id).agent.lives


@pytest.mark.long
def test_cancel_ends_a_run_that_listens_to_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubloom.providers.local.provider.GracePeriod", lambda: GracePeriod(0.3, 0.8))
    job_id = machine.add_job(toy={"seconds": 0.05, "steps": 10_000, "ignores_control": True})

    async def scenario() -> None:
        async with machine.worker():
            await machine.at_step(job_id, 2)
            await machine.change(job_id, status="cancelling", want="cancel")
            await machine.until(job_id, "cancelled")

    asyncio.run(scenario())
    assert not machine.agent(job_id).training.lives


@pytest.mark.long
def test_a_killed_training_goes_on_from_its_newest_checkpoint(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 12})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 12)
            machine.let_go(job_id)
            machine.kill_training(job_id)
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    assert machine.weights(job_id) == SUM_OF_40
    assert machine.job(job_id).attempt == 2
    assert sorted(machine.losses(job_id)) == list(range(1, 41))


@pytest.mark.long
def test_a_killed_agent_never_leaves_two_on_one_run(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 8})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 8)
            first = machine.agent(job_id)
            machine.kill_agent(job_id)
            await machine.when(job_id, lambda job: job.attempt == 2)
            machine.let_go(job_id)
            assert not first.training.lives, "the first training must be gone before the second starts"
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    assert machine.weights(job_id) == SUM_OF_40


def test_a_run_outlives_its_worker_and_the_next_one_takes_it_up(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 5})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 5)
        assert machine.agent(job_id).training.lives
        machine.let_go(job_id)
        async with machine.worker():
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert job.attempt == 1, "nothing was started again"
    assert machine.losses(job_id) == {step: [(1, 1.0 / step)] for step in range(1, 41)}


@pytest.mark.long
def test_a_run_that_is_killed_again_and_again_fails_and_says_so(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 2, "save_every": 1000}, max_attempts=2)

    async def scenario() -> None:
        async with machine.worker():
            for attempt in (1, 2):
                await machine.when(
                    job_id, lambda job, attempt=attempt: job.attempt == attempt and job.status == "running"
                )
                await machine.spoke(job_id, attempt)
                machine.kill_training(job_id)
            await machine.until(job_id, "failed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert job.error_code == "too_many_attempts"
    assert "SIGKILL" in (job.error_message or "")
    assert "2 times in a row" in (job.error_message or "")


def test_a_deleted_run_directory_fails_the_job(machine: Machine) -> None:
    job_id = machine.add_job(toy={"seconds": 0.05, "steps": 10_000})

    async def scenario() -> None:
        async with machine.worker():
            await machine.at_step(job_id, 2)
            delete_in_use(machine.run_dir(job_id))
            await machine.until(job_id, "failed")

    asyncio.run(scenario())
    assert machine.job(job_id).error_message == "The run directory is gone."


def test_a_run_directory_that_vanished_while_nobody_looked_is_not_begun_again(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 2})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 2)
        machine.kill_training(job_id)
        while machine.agent(job_id).agent.lives:
            await asyncio.sleep(0.05)
        shutil.rmtree(machine.run_dir(job_id))
        async with machine.worker():
            await machine.until(job_id, "failed", "completed")

    asyncio.run(scenario())
    assert machine.job(job_id).error_message == "The run directory is gone."


def test_a_run_that_cannot_be_prepared_fails_with_the_reason_instead_of_staying_stuck(
    machine: Machine,
) -> None:
    job_id = machine.add_job()
    # A folder of that name cannot be replaced by the file.
    (machine.run_dir(job_id) / "config.json").mkdir()

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(job_id, "failed", "completed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.error_code, job.lease_token) == ("worker_error", None)
    assert "config.json" in (job.error_message or "")


def test_a_job_whose_starter_died_before_it_could_say_so_is_shown_as_running(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 2})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 2)
        await machine.change(job_id, status="provisioning", start_time=None)
        async with machine.worker():
            await machine.until(job_id, "running")
            machine.let_go(job_id)
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    assert machine.job(job_id).start_time is not None


@pytest.mark.long
@pytest.mark.parametrize("loses_its_lease", [False, True])
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_start_that_takes_longer_than_a_lease_happens_once_and_is_followed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, loses_its_lease: bool
) -> None:
    if not loses_its_lease:
        monkeypatch.setattr("gpubloom.server.jobs.lease.LEASE", timedelta(seconds=2))
        monkeypatch.setattr("gpubloom.worker.held_job.RENEW_EVERY_SECONDS", 0.3)
    monkeypatch.setattr("gpubloom.worker.loop.ABANDONED_EVERY_SECONDS", 0.2)
    submit, claim_abandoned = LocalProvider.submit, loop.claim_abandoned
    starts: list[str] = []
    looks = 0

    async def count_looks(session: AsyncSession, claimant: Claimant) -> TrainingJob | None:
        nonlocal looks
        looks += 1
        return await claim_abandoned(session, claimant)

    monkeypatch.setattr(loop, "claim_abandoned", count_looks)

    async def slow(provider: LocalProvider, spec: JobSpec, reservation: Reservation) -> None:
        starts.append(spec.job_id)
        begun = await asyncio.to_thread(machine.job, job_id)
        if loses_its_lease:
            # As when this process got no time for longer than a lease: until somebody claimed the job again.
            while (await asyncio.to_thread(machine.job, job_id)).lease_token == begun.lease_token:
                await machine.change(job_id, lease_expires=now() - timedelta(seconds=1))
                await asyncio.sleep(0.05)
        else:
            # Until the lease that it began with is over, and the worker has looked for abandoned jobs since.
            assert begun.lease_expires is not None
            while now() < begun.lease_expires:
                await asyncio.sleep(0.05)
            before = looks
            while looks < before + 2:
                await asyncio.sleep(0.05)
        await submit(provider, spec, reservation)

    monkeypatch.setattr(LocalProvider, "submit", slow)
    job_id = machine.add_job(toy={"hold_at": 5})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(job_id, "running", "failed")
            machine.let_go(job_id)
            await machine.until(job_id, "completed", "failed")

    asyncio.run(scenario())
    assert machine.job(job_id).status == "completed"
    assert starts == [str(job_id)]
    assert machine.losses(job_id) == {step: [(1, 1.0 / step)] for step in range(1, 41)}


def test_damaged_events_are_skipped_and_counted(machine: Machine) -> None:
    job_id = machine.add_job(toy={"hold_at": 2})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 2)
            machine.let_go(job_id)
            with (machine.run_dir(job_id) / "traincard/events.jsonl").open("ab") as stream:
                stream.write(b'\xff\xfe{"not": json\n')
            await machine.until(job_id, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.status, job.summary["damaged_lines"]) == ("completed", 1)


@pytest.mark.long
def test_an_extended_job_trains_on_from_where_it_ended(machine: Machine) -> None:
    job_id = machine.add_job()

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(job_id, "completed")
            toy = machine.run_dir(job_id) / "toy.json"
            toy.write_text(json.dumps({"steps": 50}))
            config = {**(await asyncio.to_thread(machine.job, job_id)).config, "epochs": 20}
            await machine.change(job_id, status="queued", config=config, end_time=None)
            await machine.when(job_id, lambda job: job.attempt == 2 and job.status == "completed")

    asyncio.run(scenario())
    assert machine.weights(job_id) == sum(range(51))
    assert json.loads((machine.run_dir(job_id) / "config.json").read_text())["epochs"] == 20
    assert (machine.run_dir(job_id) / "config.before-2.json").exists()


def test_what_is_wrong_with_a_run_is_said_on_its_job_until_it_is_over(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watch, "LOOK_EVERY_SECONDS", 0.2)
    job_id = machine.add_job(toy={"hold_at": 3, "nan_from": 3})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(job_id, 3)
            await machine.when(job_id, lambda job: bool(job.summary.get("findings")))
            machine.let_go(job_id)
            await machine.until(job_id, "completed")

    asyncio.run(scenario())
    (finding,) = machine.job(job_id).summary["findings"]
    assert (finding["kind"], finding["severity"]) == ("diverging", "critical")
    assert "train/loss has been NaN since step 3" in finding["sentence"]


@pytest.fixture
def slow_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A hub that sends a byte now and then, for ever; set once somebody fetches from it."""
    asked, over = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Tests are quiet."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            asked.set()
            with contextlib.suppress(OSError):
                while not over.wait(0.05):
                    self.wfile.write(b"x")

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving.daemon_threads = True
    threading.Thread(target=serving.serve_forever, args=(0.05,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{serving.server_port}")
    monkeypatch.setenv("BLOOM_EGRESS_ALLOW", "127.0.0.1")
    yield asked
    over.set()
    serving.shutdown()
    serving.server_close()


def test_a_job_whose_data_never_arrives_can_be_cancelled_and_frees_its_device(
    machine: Machine, slow_hub: threading.Event
) -> None:
    job_id = machine.add_job()
    data = {"train_path": "hf://datasets/ann/poems/one.txt"}
    job = machine.job(job_id)
    machine.installation.change(job, config={**job.config, "data": {**job.config["data"], **data}})

    async def scenario() -> TrainingJob:
        async with machine.worker():
            await asyncio.to_thread(slow_hub.wait)
            await machine.change(job_id, status="cancelling", want="cancel")
            cancelled = await machine.until(job_id, "cancelled", "failed")
            following = await asyncio.to_thread(machine.add_job)
            await machine.until(following, "completed")
        return cancelled

    job = asyncio.run(scenario())
    assert (job.status, job.error_code) == ("cancelled", None)
