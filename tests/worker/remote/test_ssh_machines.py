"""Jobs on rented machines with nothing but the key of a service: this server connects over SSH, and pulls.

The machines are pods of the fake RunPod. Each one starts OpenSSH's server, with the keys of its user data.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpubloom.agent import AgentFiles
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.jobs.tables import TrainingJob
from tests.providers.services.runpod_service import RunPodService
from tests.server.installation import Installation
from tests.storage.ssh_machine import sshd_program
from tests.waiting import wait_until
from tests.worker.remote.renter import SSH_POLL_INTERVALS
from tests.worker.remote.shopper import OFFERS, Shopper
from tests.worker.remote.toy_provider import ToyService

# Imports nothing that takes a while.
COUNTING = """\
import time
for step in range(100_000):
    print(f"iter {step}: loss {1 / (step + 1):.6f}", flush=True)
    time.sleep(0.2)
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def runpod(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodService]:
    sshd_program()
    with RunPodService() as service:
        monkeypatch.setenv(service.address_variable, service.url)
        yield service


@pytest.fixture
def shopper(
    installation: Installation,
    service: ToyService,
    runpod: RunPodService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shopper]:
    """Somebody whose installation has neither a bucket nor a public address."""
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 400)
    with Shopper(installation, None, service).shopping(tmp_path) as shopper:
        shopper.poll_intervals = SSH_POLL_INTERVALS
        shopper.connect_by_http("runpod", runpod.credentials)
        yield shopper


def _folder_of(runpod: RunPodService, number: int) -> Path:
    return list(runpod.instances.values())[number].machine.folder


def test_a_key_of_the_service_is_enough(shopper: Shopper, runpod: RunPodService) -> None:
    async def scenario() -> TrainingJob:
        async with shopper.worker():
            code = COUNTING.replace("100_000", "30") + "open('result.txt', 'w').write('done')\n"
            job_id = await shopper.submit(files=None, code=code, offer=OFFERS["runpod"])
            job = await shopper.until(job_id, "completed", "failed")
            assert job.status == "completed", f"{job.error_message}\n{shopper.output(job_id)}"
            assert "result.txt" in await shopper.artifacts(job_id)
            # The worker clears away after the job has ended.
            staged = shopper.settings.home / "run-staged" / "jobs" / str(job_id)
            await shopper.when(job_id, lambda _: not staged.exists())
        return job

    job = asyncio.run(scenario())
    assert sorted(shopper.losses(job.id)) == list(range(30))
    assert job.offer is not None
    assert job.offer["store"] == "ssh"
    start = read_summary(job.summary).start
    assert start is not None
    assert {stage.state for stage in start.stages} == {"done"}
    assert not runpod.running
    # What may sign in there runs one program; no key of the server is on the machine.
    folder = _folder_of(runpod, 0)
    [line] = (folder / ".ssh/authorized_keys").read_text().splitlines()
    assert line.startswith('restrict,command="/bin/sh ')
    begins = b"BEGIN OPENSSH " + b"PRIVATE KEY"
    private = {path.name for path in folder.rglob("*") if path.is_file() and begins in path.read_bytes()}
    assert private <= {"host-key", "ssh_host_ed25519_key", "bloom.sh"}


def test_a_lost_machine_is_replaced_and_a_command_reaches_the_new_one(
    shopper: Shopper, runpod: RunPodService
) -> None:
    async def scenario() -> TrainingJob:
        async with shopper.worker():
            job_id = await shopper.submit(files=None, code=COUNTING, offer=OFFERS["runpod"])
            await shopper.trained(job_id, 3)
            [first] = runpod.instances
            await asyncio.to_thread(runpod.preempt, first)
            await shopper.trained(job_id, 3, attempt=2)
            await shopper.ask("POST", f"/api/jobs/{job_id}/cancel")
            return await shopper.until(job_id, "cancelled", "failed", "completed")

    ended = asyncio.run(scenario())
    assert (ended.status, ended.attempt, len(runpod.instances)) == ("cancelled", 2, 2), ended.error_message
    assert not runpod.running


def test_results_wait_on_the_machine_while_the_server_is_off(shopper: Shopper, runpod: RunPodService) -> None:
    async def begun() -> Any:
        async with shopper.worker():
            code = COUNTING.replace("100_000", "60")
            job_id = await shopper.submit(files=None, code=code, offer=OFFERS["runpod"])
            await shopper.trained(job_id, 5)
            return job_id

    job_id = asyncio.run(begun())
    runs = list((_folder_of(runpod, 0) / "bloom").rglob("attempt-1/run"))
    there = AgentFiles(runs[0])
    wait_until(there.exit(1).exists, "the training ends without a server", 300)
    # The pod has not deleted itself: what it holds was not fetched yet.
    assert runpod.running

    async def fetched() -> TrainingJob:
        async with shopper.worker():
            return await shopper.until(job_id, "completed", "failed")

    job = asyncio.run(fetched())
    assert job.status == "completed", job.error_message
    assert sorted(shopper.losses(job_id)) == list(range(60))
    assert not runpod.running
