"""A Reporter in a script on a rented machine: gpubloom comes with the script, and its events come back."""

import asyncio

import pytest
from sqlalchemy import select

from gpubloom.server.jobs.tables import Checkpoint
from tests.worker.remote.renter import Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

SCRIPT = """\
import time
from pathlib import Path
from {package} import Reporter
import gpubloom
print("gpubloom of", gpubloom.__file__)
with Reporter({folder}) as reporter:
    reporter.phase("train")
    for step in range(1, 11):
        reporter.metric("loss", 3 - step / 10, step)
        reporter.progress(step, total_steps=10)
    Path("weights.pt").write_bytes(b"weights")
    reporter.checkpoint("weights.pt", step=10)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "folder"), [("gpubloom.traincard", ""), ("metaflow_traincard", "'results'")]
)
def test_the_curves_of_a_rented_script_come_from_its_reporter(
    renter: Renter, package: str, folder: str
) -> None:
    files = {"train.py": SCRIPT.format(package=package, folder=folder)}
    # Detection says that the script needs gpubloom; no package index is asked for it.
    job_id = renter.rent_script(files, packages=["gpubloom"])

    async def scenario() -> str:
        async with renter.worker():
            return (await renter.until(job_id, "completed", "failed")).status

    assert asyncio.run(scenario()) == "completed", renter.output(job_id)
    assert sorted(renter.losses(job_id)) == list(range(1, 11))
    assert "/attempt-1/site/gpubloom/__init__.py" in renter.output(job_id)
    with renter.installation.session() as session:
        [saved] = session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id))
        assert (saved.path, saved.step) == ("work/weights.pt", 10)
