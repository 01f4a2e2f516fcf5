"""A folder as people bring it, as a training at Replicate: from the API to the bill."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.server.jobs.tables import TrainingJob
from tests.providers.services.replicate_service import ReplicateService
from tests.server.installation import Installation
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote import shopper as shopping
from tests.worker.remote.shopper import Shopper
from tests.worker.remote.toy_provider import ToyService

pytest.importorskip("obstore")
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.long, pytest.mark.timeout(400)]
OFFER = {"provider": "replicate", "gpu": "L40S", "kind": "per_second"}


@pytest.fixture
def replicate(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicateService]:
    monkeypatch.setattr("tests.worker.machine.PATIENCE_SECONDS", 200)
    monkeypatch.setattr(shopping, "SERVICES", {"replicate": ReplicateService})
    with ReplicateService() as service:
        monkeypatch.setenv("BLOOM_REPLICATE_URL", service.url)
        yield service


def test_a_script_trains_at_replicate_and_its_bill_is_what_replicate_counts(
    installation: Installation,
    bucket: S3Server,
    service: ToyService,
    replicate: ReplicateService,
    tmp_path: Path,
) -> None:
    with Shopper(installation, bucket, service).shopping(tmp_path) as shopper:
        shopper.connect_by_http("replicate", replicate.credentials)

        async def scenario() -> TrainingJob:
            async with shopper.worker():
                job_id = await shopper.submit("--max_iters=300", "--eval_interval=20", offer=OFFER)
                job = await shopper.until(job_id, "completed", "failed")
                assert job.status == "completed", job.error_message
                assert "out/ckpt.pt" in await shopper.artifacts(job_id)
            return job

        job = asyncio.run(scenario())
        assert sorted(shopper.losses(job.id)) == list(range(301))
        assert not replicate.running
        [identifier] = replicate.instances
        [rental] = shopper.rentals(job.id)
        assert rental.billed_from is not None
        assert rental.billed_to is not None
        seconds = (rental.billed_to - rental.billed_from).total_seconds()
        assert seconds == pytest.approx(replicate.billed_seconds(identifier), rel=0.01, abs=0.5)
        assert rental.cost == pytest.approx(rental.billed_seconds * rental.hourly / 3600, rel=0.01)
