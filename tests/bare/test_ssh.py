"""Jobs on bare machines without a bucket and without a public address: this server connects over SSH.

Lambda: a machine with Debian's SSH server, whose host key and authorized key come with the user data. RunPod:
a container without one, which installs it. What the machines reach is the package mirror, nothing else.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.jobs.tables import TrainingJob
from tests.bare import recipe
from tests.bare.jobs import log_of, lose_a_machine, train_the_template, tune_with_the_engine
from tests.bare.machine import Image
from tests.bare.mirror import Mirror
from tests.bare.services import BareLambda, BareRunPod
from tests.server.installation import Installation
from tests.storage.ssh_machine import sshd_program
from tests.worker.remote.renter import SSH_POLL_INTERVALS
from tests.worker.remote.shopper import Shopper
from tests.worker.remote.toy_provider import ToyService

pytestmark = [pytest.mark.xdist_group("bare"), pytest.mark.long, pytest.mark.timeout(1500)]

SHORT = "import sys, numpy\nfor step in range(5):\n    print(f'iter {step}: loss {1 / (step + 1):.4f}')\n"


@pytest.fixture
def image(mirror: Mirror) -> Image:
    """Nothing of this server is reachable from a machine."""
    made = Image(recipe.root(), [mirror.port])
    made.files["etc/apt/sources.list"] = f"deb {mirror.url}/debian {recipe.SUITE} main\n"
    return made


@pytest.fixture
def shopper(
    installation: Installation,
    service: ToyService,
    cloud: BareLambda | BareRunPod,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shopper]:
    sshd_program()
    if cloud.provider == "lambda":
        cloud.image.root = recipe.root("ssh_server")
    cloud.image.ssh = True
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 900)
    with Shopper(installation, None, service).shopping(tmp_path) as shopper:
        shopper.poll_intervals = SSH_POLL_INTERVALS
        shopper.connect_by_http(cloud.provider, cloud.credentials)
        yield shopper


def test_a_key_of_the_service_is_enough_on_a_bare_machine(
    shopper: Shopper, cloud: BareLambda | BareRunPod
) -> None:
    async def scenario() -> TrainingJob:
        async with shopper.worker():
            offer = {"provider": cloud.provider, "gpu": cloud.gpu}
            job_id = await shopper.submit(files=None, code=SHORT, packages=["numpy"], offer=offer)
            return await shopper.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert job.status == "completed", f"{job.error_message}\n{log_of(cloud)}"
    assert job.offer is not None
    assert job.offer["store"] == "ssh"
    assert sorted(shopper.losses(job.id)) == list(range(5))
    start = read_summary(job.summary).start
    assert start is not None
    assert {stage.state for stage in start.stages} == {"done"}
    assert not cloud.running


@pytest.mark.parametrize("work", [train_the_template, tune_with_the_engine, lose_a_machine])
def test_the_three_jobs_run_over_ssh(
    shopper: Shopper, cloud: BareLambda | BareRunPod, work: Callable[..., TrainingJob]
) -> None:
    job = work(shopper, cloud)
    assert job.offer is not None
    assert job.offer["store"] == "ssh"


def test_a_broken_driver_is_told_over_ssh(
    shopper: Shopper, cloud: BareLambda | BareRunPod, image: Image
) -> None:
    image.files["usr/local/bin/nvidia-smi"] = "#!/bin/sh\necho 'Failed to initialize NVML'; exit 18\n"

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            offer = {"provider": cloud.provider, "gpu": cloud.gpu}
            job_id = await shopper.submit(files=None, code=SHORT, packages=[], offer=offer)
            return await shopper.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert (job.status, job.error_code) == ("failed", "broken_driver"), job.error_message
    assert not cloud.running
