"""Leases whose holder is dead: released by every worker of the machine as long as it runs."""

import asyncio
import socket
import subprocess
import sys
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker.loop import machine_name
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.worker.machine import Machine


def _dead_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def _held_by(machine: Machine, worker: str) -> dict[str, Any]:
    """The fields of a job whose worker started it and will not let its lease run out for an hour."""
    return {
        "status": "running",
        "attempt": 1,
        "machine": machine_name(machine.settings.home),
        "worker": worker,
        "lease_token": uuid4(),
        "lease_expires": now() + timedelta(hours=1),
    }


@pytest.mark.long
def test_a_worker_that_runs_already_takes_over_the_job_of_a_worker_that_died(machine: Machine) -> None:
    first = machine.add_job(toy={"steps": 3})

    async def scenario() -> TrainingJob:
        async with machine.worker():
            await machine.until(first, "completed", "failed")
            held = _held_by(machine, f"{socket.gethostname()}:{_dead_process()}")
            job_id = await asyncio.to_thread(lambda: machine.add_job(toy={"steps": 3}, **held))
            return await machine.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 1), job.error_message


@pytest.mark.long
def test_the_lease_of_a_worker_on_another_host_with_the_same_home_is_left_to_it(machine: Machine) -> None:
    held = _held_by(machine, f"another-host:{_dead_process()}")
    job_id: UUID = machine.add_job(toy={"steps": 3}, **held)
    other = machine.add_job(toy={"steps": 3})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(other, "completed", "failed")
            later = await asyncio.to_thread(lambda: machine.add_job(toy={"steps": 3}))
            await machine.until(later, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.status, job.lease_token) == ("running", held["lease_token"])
    assert job.lease_expires == held["lease_expires"]
