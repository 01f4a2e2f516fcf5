"""What goes wrong on a bare machine before the job runs: a sentence on the job's page, or patience."""

import asyncio
import sys
import time

import pytest

from gpubloom.server.jobs.summary import StartState, read_summary
from gpubloom.server.jobs.tables import TrainingJob
from tests.bare import recipe
from tests.bare.machine import Image
from tests.bare.mirror import Mirror
from tests.bare.services import BareLambda, BareRunPod
from tests.worker.remote.shopper import Shopper

pytest.importorskip("obstore")
pytestmark = [pytest.mark.xdist_group("bare"), pytest.mark.long, pytest.mark.timeout(900)]

SHORT = "import sys, numpy\nfor step in range(5):\n    print(f'iter {step}: loss {1 / (step + 1):.4f}')\n"


def ended(shopper: Shopper, cloud: BareLambda | BareRunPod, *packages: str) -> TrainingJob:
    """What became of a short script."""

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            offer = {"provider": cloud.provider, "gpu": cloud.gpu}
            job_id = await shopper.submit(files=None, code=SHORT, packages=list(packages), offer=offer)
            return await shopper.until(job_id, "completed", "failed")

    return asyncio.run(scenario())


def start_of(job: TrainingJob) -> StartState:
    start = read_summary(job.summary).start
    assert start is not None
    return start


def failure_of(job: TrainingJob, code: str) -> str:
    """The sentence of a failed start: the same on the page of the job and as its error."""
    assert (job.status, job.error_code) == ("failed", code), job.error_message
    start = start_of(job)
    assert (start.failure_code, start.failure) == (code, job.error_message)
    assert start.failure is not None
    return start.failure


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "version mismatch"),
        ("sleep 600", "nvidia-smi does not answer"),
    ],
    ids=["fails", "hangs"],
)
def test_a_broken_driver_is_named_within_a_minute(
    shopper: Shopper, cloud: BareLambda | BareRunPod, image: Image, program: str, said: str
) -> None:
    image.files["usr/local/bin/nvidia-smi"] = f"#!/bin/sh\n{program}\n"
    job = ended(shopper, cloud, "numpy")
    assert said in failure_of(job, "broken_driver")
    # Another machine was tried once; each said so within a minute of its start.
    assert len(cloud.instances) == 2
    machine = next(stage for stage in start_of(job).stages if stage.name == "machine")
    assert machine.seconds is not None
    assert machine.seconds <= 60
    assert not cloud.running


def test_a_disk_that_is_too_small_is_named_before_anything_is_installed(
    shopper: Shopper, cloud: BareLambda | BareRunPod, image: Image, mirror: Mirror
) -> None:
    image.prepare = 'mount -t tmpfs -o size=64m tmpfs "root$home"'
    before = len(mirror.asked)
    assert "0 GB free" in failure_of(ended(shopper, cloud, "numpy"), "disk_full")
    assert mirror.asked[before:] == []
    assert len(cloud.instances) == 1
    assert not cloud.running


def test_a_disk_that_fills_up_while_packages_are_installed_is_named(
    shopper: Shopper, cloud: BareLambda | BareRunPod, image: Image
) -> None:
    # A file system of 13 GB without content. Space is taken from it once packages are installed.
    image.prepare = (
        'truncate -s 14G disk; mkfs.ext4 -q -m 0 disk; mount -o loop disk "root$home"; '
        '(while ! grep -q "packages +" "root$home/report" 2>/dev/null; do sleep 0.1; done; '
        'free=$(df -Pk "root$home" | awk "NR == 2 { print \\$4 }"); '
        'fallocate -l "$((free - 40000))K" "root$home/ballast") >/dev/null 2>&1 &'
    )
    failure = failure_of(ended(shopper, cloud, "numpy", "torch"), "disk_full")
    assert "0 GB free" in failure
    assert not cloud.running


def test_a_slow_network_takes_longer_and_nothing_else(
    shopper: Shopper, cloud: BareLambda | BareRunPod, image: Image
) -> None:
    # 16 Mbit/s for each connection; uv, Python and NumPy are 70 MB.
    image.bytes_per_second = 2e6
    began = time.monotonic()
    job = ended(shopper, cloud, "numpy")
    assert job.status == "completed", job.error_message
    assert time.monotonic() - began > 20, "the network was slow"
    assert len(cloud.instances) == 1
    assert sorted(shopper.losses(job.id)) == list(range(5))


def test_a_lock_of_apt_is_waited_for_on_an_image_without_python(
    shopper: Shopper, cloud: BareLambda | BareRunPod, image: Image, mirror: Mirror
) -> None:
    image.root = recipe.root("no_python")
    image.files["etc/apt/sources.list"] = f"deb {mirror.url}/debian {recipe.SUITE} main\n"
    # As the updates of a machine that has just booted: dpkg's lock is held, and released after a while.
    image.prepare = (
        f'{sys.executable} -c \'import fcntl, time; lock = open("root/var/lib/dpkg/lock-frontend", "w"); '
        "fcntl.lockf(lock, fcntl.LOCK_EX); time.sleep(40)' >/dev/null 2>&1 &"
    )
    job = ended(shopper, cloud, "numpy")
    assert job.status == "completed", job.error_message
    told = [line.text for line in start_of(job).log]
    assert "waiting for the lock of apt-get, which another program holds" in told
    assert len(cloud.instances) == 1
    assert sorted(shopper.losses(job.id)) == list(range(5))
