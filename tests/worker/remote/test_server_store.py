"""Jobs on rented machines without a bucket: this server itself takes and gives their files."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
import uvicorn

from gpubloom.agent import AgentFiles
from gpubloom.server.app import create_app
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.storage.run_stores import server_store
from gpubloom.storage.layout import JobLayout
from tests.ports import free_port
from tests.server.installation import Installation
from tests.waiting import wait_until
from tests.worker.remote.renter import Renter
from tests.worker.remote.toy_provider import ToyService


@contextmanager
def _serving(renter: Renter, port: int) -> Iterator[None]:
    """The server of this installation, on a port that machines reach."""
    config = uvicorn.Config(create_app(renter.settings), port=port, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield
    server.should_exit = True
    thread.join(30)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def renter(installation: Installation, service: ToyService, port: int) -> Renter:
    """Somebody whose installation has no bucket."""
    renter = Renter(installation, None, service)
    renter.settings = renter.settings.model_copy(
        update={"public_url": f"http://127.0.0.1:{port}", "server_store": "on"}
    )
    return renter


def _finished(renter: Renter, job_id: UUID) -> TrainingJob:
    async def scenario() -> TrainingJob:
        async with renter.worker():
            job = await renter.until(job_id, "completed", "failed", "paused", "cancelled")
            # The worker clears away after the job has ended: no copy of the results takes room twice.
            left = server_store(renter.settings).sizes
            await renter.when(job_id, lambda _: not left(JobLayout(str(job_id), 1).folder))
            return job

    return asyncio.run(scenario())


@pytest.mark.long
def test_a_job_runs_on_a_rented_machine_without_a_bucket(renter: Renter, port: int) -> None:
    job_id = renter.rent(toy={"steps": 40, "seconds": 0.02, "save_every": 10})
    with _serving(renter, port):
        job = _finished(renter, job_id)
    assert job.status == "completed", job.error_message
    assert sorted(renter.losses(job_id)) == list(range(1, 41))
    assert renter.weights(job_id) == sum(range(1, 41))
    assert job.offer is not None
    assert job.offer["store"] == "server"
    assert [rental.store for rental in renter.rentals(job_id)] == ["server"]


@pytest.mark.long
def test_a_command_reaches_a_machine_through_the_server(renter: Renter, port: int) -> None:
    job_id = renter.rent(toy={"steps": 100_000, "seconds": 0.02, "save_every": 50})

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.when(job_id, lambda job: bool(job.summary.get("step")))
            await renter.change(job_id, want="pause", status="pausing")
            return await renter.until(job_id, "paused", "failed")

    with _serving(renter, port):
        assert asyncio.run(scenario()).status == "paused"
    assert not renter.service.running


@pytest.mark.long
def test_a_server_that_is_away_for_a_while_gets_everything_afterwards(renter: Renter, port: int) -> None:
    """The machine goes on training, keeps what it made, and delivers it when the server is back."""
    job_id = renter.rent(toy={"steps": 60, "seconds": 0.05})

    async def begun() -> None:
        async with renter.worker():
            await renter.when(job_id, lambda job: bool(job.summary.get("step")))

    with _serving(renter, port):
        asyncio.run(begun())
    # Neither server nor worker: the training ends meanwhile.
    there = AgentFiles(renter.service.run_dir(renter.service.only()))
    wait_until(there.exit(1).exists)
    with _serving(renter, port):
        job = _finished(renter, job_id)
    assert job.status == "completed", job.error_message
    assert sorted(renter.losses(job_id)) == list(range(1, 61))
    assert len(renter.service.rented) == 1
