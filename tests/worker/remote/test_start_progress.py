"""The start of a rented machine as the owner of its job sees it: stages, log, and why it failed."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gpubloom.providers.cloud import Fault
from gpubloom.server.jobs.summary import StartState, read_summary
from gpubloom.server.jobs.tables import TrainingJob
from tests.worker.remote.renter import POLL_INTERVALS, Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")


def _start(job: TrainingJob) -> StartState:
    start = read_summary(job.summary).start
    assert start is not None
    return start


def _ended(renter: Renter, **job: Any) -> TrainingJob:
    job_id = renter.rent(toy={"steps": 5, "seconds": 0.02}, **job)
    return renter.run_until(job_id, "completed", "failed")


@pytest.mark.long
def test_a_start_is_told_stage_by_stage(renter: Renter) -> None:
    renter.service.printed = ["Pulling the image"]
    job = _ended(renter)
    assert job.status == "completed", job.error_message
    start = _start(job)
    assert (start.state, start.attempt, start.provider, start.failure) == ("running", 1, "toy", None)
    assert [(stage.name, stage.state) for stage in start.stages] == [
        (name, "done") for name in ("requested", "machine", "packages", "data", "start")
    ]
    assert start.stages[0].text == "toy-0"
    assert "files" in start.stages[3].text
    assert start.stages[3].seconds is not None
    assert {line.stage for line in start.log} >= {"data", "start"}


REPORT = b"1790000000 machine + the machine is up\n1790000001 machine - driver 580\n"


@pytest.mark.parametrize(
    ("line", "code", "machines"),
    [
        (b"1790000002 packages ! disk_full The disk is full. Choose a larger one.", "disk_full", 1),
        (
            b"1790000002 data ! address_expired The address is no longer valid. Resume the job.",
            "address_expired",
            1,
        ),
        # Another machine may be fine: one more is tried.
        (b"1790000002 machine ! broken_driver The driver does not work. Start again.", "broken_driver", 2),
    ],
)
def test_a_start_that_fails_ends_the_attempt_with_the_reason(
    renter: Renter, line: bytes, code: str, machines: int
) -> None:
    renter.service.start_report = REPORT + line
    job = _ended(renter)
    assert (job.status, job.error_code) == ("failed", code)
    sentence = line.decode().partition(f"{code} ")[2]
    assert job.error_message == sentence
    start = _start(job)
    assert (start.state, start.failure_code, start.failure) == ("failed", code, sentence)
    assert [stage.state for stage in start.stages if stage.state == "failed"] == ["failed"]
    assert start.log[-1].text == sentence
    # By the clock of this server, whatever the machine's says.
    assert start.log[-1].seconds < 3600
    assert len(renter.service.rented) == machines
    assert not renter.service.running


@pytest.mark.long
def test_a_machine_without_a_sign_is_ended_and_the_page_says_so(renter: Renter) -> None:
    renter.service.start_report = b""
    renter.service.printed = ["bash: python3: command not found"]
    renter.poll_intervals = replace(POLL_INTERVALS, first_word=1.5)
    job = _ended(renter)
    assert (job.status, job.error_code) == ("failed", "agent_silent")
    start = _start(job)
    assert start.failure == job.error_message
    # What the service showed is kept.
    assert [(line.stage, line.text) for line in start.log] == [
        ("console", "bash: python3: command not found")
    ]
    assert not renter.service.running


@pytest.mark.parametrize("kind", ["bad_credentials", "inactive_account", "quota"])
def test_what_a_service_refuses_is_said_in_its_sentence(renter: Renter, kind: Any) -> None:
    sentence = f"This is why ({kind}). Do that next."
    renter.service.faults["submit"] = [Fault(kind, sentence)]
    job = _ended(renter)
    assert (job.status, job.error_code, job.error_message) == ("failed", kind, sentence)
    start = _start(job)
    assert (start.state, start.failure) == ("failed", sentence)
    assert start.stages[0].state == "failed"


def test_a_secret_that_was_deleted_after_the_job_was_made_is_named(renter: Renter) -> None:
    job = _ended(renter, secrets=["WANDB_API_KEY"])
    assert (job.status, job.error_code) == ("failed", "secret_missing")
    assert "WANDB_API_KEY" in (job.error_message or "")
    assert "Settings" in (job.error_message or ""), "the next step"
    assert not renter.service.rented


@pytest.mark.long
def test_no_capacity_is_said_while_the_job_waits(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 5, "seconds": 0.02})
    renter.service.faults["submit"] = [
        Fault("no_capacity", "Nothing is free. Wait, or choose another offer.")
    ]

    async def scenario() -> str | None:
        async with renter.worker():
            waiting = await renter.when(job_id, lambda job: bool(job.summary.get("waiting")))
            await renter.until(job_id, "completed")
            return read_summary(waiting.summary).waiting

    told = asyncio.run(scenario())
    assert told is not None
    assert told.startswith("Nothing is free. Wait, or choose another offer.")
