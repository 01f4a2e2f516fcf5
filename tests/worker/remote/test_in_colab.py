"""A folder as people bring it, in sessions of Colab that are taken away: from the API to the end."""

import asyncio
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.server.jobs.tables import TrainingJob
from tests.providers.services import colab_program
from tests.server.installation import Installation
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote import shopper as shopping
from tests.worker.remote.shopper import Shopper
from tests.worker.remote.toy_provider import ToyService

pytest.importorskip("obstore")
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.long, pytest.mark.timeout(400)]
OFFER = {"provider": "colab", "gpu": "T4", "kind": "monthly_units"}


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder where the stand-in of Google's command keeps its sessions."""
    state = tmp_path / "colab"
    state.mkdir()
    monkeypatch.setattr("tests.worker.machine.PATIENCE_SECONDS", 200)
    monkeypatch.setattr(shopping, "SERVICES", {"colab": None})
    monkeypatch.setenv("COLAB_STATE", str(state))
    monkeypatch.setenv("BLOOM_COLAB_CLI", shlex.join([sys.executable, colab_program.__file__]))
    yield state
    for session in state.glob("sessions/*"):
        colab_program.take_away(session)


def test_a_script_goes_on_in_another_session_when_colab_takes_one_away(
    installation: Installation, bucket: S3Server, service: ToyService, colab: Path, tmp_path: Path
) -> None:
    with Shopper(installation, bucket, service).shopping(tmp_path) as shopper:
        shopper.connect_by_http("colab", {})

        async def scenario() -> TrainingJob:
            async with shopper.worker():
                job_id = await shopper.submit("--max_iters=300", "--eval_interval=20", offer=OFFER)
                await shopper.trained(job_id, 40)
                [session] = colab.glob("sessions/*")
                await asyncio.to_thread(colab_program.take_away, session)
                job = await shopper.until(job_id, "completed", "failed")
                assert job.status == "completed", job.error_message
                assert job.attempt == 2
                assert "out/ckpt.pt" in await shopper.artifacts(job_id)
            return job

        job = asyncio.run(scenario())
        assert sorted(shopper.losses(job.id))[-1] == 300
        assert [rental.state for rental in shopper.rentals(job.id)] == ["ended", "ended"]
    assert not list(colab.glob("sessions/*"))
    assert "X-Amz-Signature" not in (colab / "history.jsonl").read_text()
