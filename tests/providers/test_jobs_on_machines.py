"""A job by bucket on machines of Lambda, RunPod and Paperspace: sent, run by the agent, received, ended."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.providers.cloud import Launch
from gpubloom.providers.registry import provider_spec
from gpubloom.storage import StorageSettings, Store
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.paperspace_service import PaperspaceService
from tests.providers.services.runpod_service import RunPodService
from tests.providers.services.web import WebService
from tests.storage.instances import Instance as Received
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server
from tests.waiting import wait_until

# Knows nothing of us, and says how far it is.
TRAIN = """\
import pathlib, time
for step in range(1, 21):
    print(f"step {step}: loss {2 / step:.4f}", flush=True)
    time.sleep(0.05)
pathlib.Path("model").mkdir()
pathlib.Path("model/weights.bin").write_bytes(bytes(range(256)) * 64)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with S3Server(tmp_path / "s3") as server:
        yield Store(StorageSettings("bucket", KEY, SECRET, server.address, prefix="bloom"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kind", "gpu"),
    [
        ("lambda", LambdaService, "A10"),
        ("runpod", RunPodService, "RTX 4090"),
        pytest.param("paperspace", PaperspaceService, "RTX A4000", marks=pytest.mark.long),
    ],
)
def test_a_script_runs_there_and_all_it_made_arrives(
    name: str,
    kind: type[WebService],
    gpu: str,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Received(store, tmp_path, {"train.py": TRAIN})
    sent = job.send()

    async def story(service: WebService) -> None:
        rented = provider_spec(name).open(service.credentials)
        launch = Launch(f"bloom-{name}-a1", gpu, 1, sent.command, sent.address, longest_seconds=600)
        machine = await rented.submit(launch)
        job.output.touch()
        arrival = await asyncio.to_thread(job.until, "ended")
        assert arrival.exit is not None, service.instances[machine.id].log
        assert arrival.exit.code == 0, service.instances[machine.id].log
        if name == "runpod":
            # A pod deletes itself.
            await asyncio.to_thread(wait_until, lambda: service.instances[machine.id].ended)
        else:
            # A machine does not end by itself: whoever rented it does that.
            assert (await rented.status(machine.id)).state == "running"
        await rented.cancel(machine.id)
        assert (await rented.status(machine.id)).state == "ended"
        await rented.close()

    with kind() as service:
        monkeypatch.setenv(service.address_variable, service.url)
        asyncio.run(story(service))
        [rental] = service.instances.values()
        wait_until(lambda: rental.machine.processes() == [])
        assert service.running == []
        assert 0 < service.billed_seconds(rental.id) < 120
    assert (job.run_dir / "model/weights.bin").read_bytes() == bytes(range(256)) * 64
