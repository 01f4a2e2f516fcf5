"""A machine that sends nonsense: its attempt ends, its instance is terminated, and its job says why."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.storage import Store
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.sync.upload_batch import UploadBatch
from tests.storage.hostile import exit_batch, signed
from tests.worker.remote.renter import POLL_INTERVALS, Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

# The agent announces its next batch for in a minute: a killed one is not yet missed when the test goes on.
PATIENT = replace(POLL_INTERVALS, agent={**POLL_INTERVALS.agent, "beat": 20.0})
TOY = {"steps": 100_000, "seconds": 0.05, "save_every": 1_000}
Make = Callable[[str, int], bytes]


def nested(job_id: str, number: int) -> bytes:
    return signed(b"[" * 200_000)


def no_object(job_id: str, number: int) -> bytes:
    header = {"v": 1, "job": job_id, "attempt": 1, "number": number, "next_in": 1.0, "ended": True}
    body = {"sha256": "0" * 64, "entries": [], "tree": []}
    return signed(json.dumps({**header, **body}).encode())


def another_job(job_id: str, number: int) -> bytes:
    return UploadBatch("job-2", 1, number, 10.0).to_bytes()


def odd_name(job_id: str, number: int) -> bytes:
    return UploadBatch(job_id, 1, number, 10.0, [{"kind": "remove", "path": "\udcff"}]).to_bytes()


def exit_record(job_id: str, number: int) -> bytes:
    return exit_batch(1, number, b'{"attempt": 1, "reason": "ended", "code": "0"}', job_id)


async def replace_agent(renter: Renter, job_id: UUID, make: Make) -> None:
    """Kills the agent of a running attempt, and sends a batch in its place."""
    await renter.at_step(job_id, 3)
    for process in renter.service.only().machine.processes():
        # Not the shell that is the machine: the provider still has an instance.
        if any("bloom-agent" in word for word in process.cmdline()):
            process.kill()
    store = Store(renter.settings.storage)  # type: ignore[arg-type]
    layout = JobLayout(str(job_id), 1)
    while store.sizes(layout.batches):
        await asyncio.sleep(0.05)
    record = renter.run_dir(job_id) / ".arriving/received-1.json"
    number = json.loads(record.read_text())["applied"] + 1
    # In a thread: it may write to the database, for which the worker in this one may hold the lock.
    store.put(layout.slot(number), await asyncio.to_thread(make, str(job_id), number))


def run(renter: Renter, make: Make) -> TrainingJob:
    job_id = renter.rent(toy=TOY)

    async def scenario() -> TrainingJob:
        async with renter.worker(poll_intervals=PATIENT):
            await replace_agent(renter, job_id, make)
            return await renter.until(job_id, "completed", "failed", "cancelled", "paused")

    return asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.parametrize("make", [nested, no_object, another_job, odd_name, exit_record])
def test_a_malformed_batch_ends_the_attempt_and_terminates_the_instance(renter: Renter, make: Make) -> None:
    job = run(renter, make)
    assert (job.status, job.error_code, job.attempt) == ("failed", "refused_data", 1), job.error_message
    assert (job.error_message or "").startswith("The rented instance sent data that was not accepted: ")
    assert not renter.service.running
    assert [rental.state for rental in renter.rentals(job.id)] == ["ended"]


@pytest.mark.long
def test_a_job_that_is_being_cancelled_ends_although_its_exit_record_is_malformed(renter: Renter) -> None:
    def cancelled(job_id: str, number: int) -> bytes:
        renter.installation.change(renter.job(UUID(job_id)), status="cancelling", want="cancel")
        return exit_record(job_id, number)

    job = run(renter, cancelled)
    assert job.status == "cancelled"
    assert not renter.service.running
    assert [rental.state for rental in renter.rentals(job.id)] == ["ended"]


@pytest.mark.long
@pytest.mark.parametrize(
    "line",
    [
        {"seq": 900_000, "t": 1.0, "kind": "metric", "step": 1, "values": {"lo\0ss": 1.0, "\ud800": 2.0}},
        {"seq": 900_000, "t": 1.0, "kind": "start", "v": 99},
    ],
    ids=["names", "version"],
)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], indirect=True)
def test_events_that_cannot_be_read_end_the_attempt_and_terminate_the_instance(
    renter: Renter, line: dict[str, object]
) -> None:
    def events(job_id: str, number: int) -> bytes:
        tail = renter.run_dir(UUID(job_id)) / "traincard/events.jsonl"
        content = json.dumps(line).encode() + b"\n"
        entry = {"kind": "grow", "path": "traincard/events.jsonl", "offset": tail.stat().st_size}
        entries = [{**entry, "size": len(content)}]
        return UploadBatch(job_id, 1, number, 60.0, entries, content).to_bytes()

    job = run(renter, events)
    assert (job.status, job.error_code) == ("failed", "unreadable_run"), job.error_message
    assert not renter.service.running
