"""What a rented machine sends is data of its job: no code, no configuration, nothing outside its folders."""

import asyncio

import pytest

from gpubloom.providers.base import Reservation
from gpubloom.providers.local.sandbox import why_no_sandbox
from gpubloom.worker.confinement import Confinement
from gpubloom.worker.run_directory import AttemptResources, prepare_script
from tests.worker.remote.renter import Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

EVIL = "from pathlib import Path\nPath(__file__).with_name('owned').touch()\n"


@pytest.mark.long
@pytest.mark.parametrize("name", ["train.py", "config.json", "plan.json", "requirements.txt"])
def test_a_machine_that_replaces_a_file_of_the_server_ends_its_attempt_and_changes_nothing(
    renter: Renter, name: str
) -> None:
    job_id = renter.rent(toy={"steps": 5, "hold_at": 3, "writes": {name: EVIL}})
    here = renter.run_dir(job_id) / name

    async def scenario() -> None:
        async with renter.worker():
            await renter.when(
                job_id,
                lambda job: job.status == "failed" or (here.exists() and here.read_text() == EVIL),
            )

    asyncio.run(scenario())
    assert here.read_text() != EVIL
    job = renter.job(job_id)
    assert (job.error_code, job.attempt) == ("refused_data", 1)
    assert name in (job.error_message or "")
    assert not renter.service.running


@pytest.mark.long
def test_what_a_training_wrote_beside_its_results_stays_on_its_machine_and_the_run_goes_on(
    renter: Renter,
) -> None:
    job_id = renter.rent(toy={"steps": 5, "writes": {"cache.py": EVIL, "notes.txt": "words"}})

    async def scenario() -> str:
        async with renter.worker():
            return (await renter.until(job_id, "completed", "failed")).status

    assert asyncio.run(scenario()) == "completed"
    assert renter.weights(job_id) == 15
    assert not [name for name in ("cache.py", "notes.txt") if (renter.run_dir(job_id) / name).exists()]


@pytest.mark.long
def test_a_scripts_results_arrive_and_its_code_stays_as_its_owner_brought_it(renter: Renter) -> None:
    script = (
        "import os\n"
        "os.mkdir('out')\n"
        "for name in ('train.py', 'package/module.py', 'out/weights.bin'):\n"
        "    open(name, 'w').write('evil')\n"
    )
    files = {"train.py": script, "package/module.py": "x = 1\n"}
    job_id = renter.rent_script(files, sandboxed=False)

    async def scenario() -> str:
        async with renter.worker():
            return (await renter.until(job_id, "completed", "failed")).status

    assert asyncio.run(scenario()) == "completed", renter.output(job_id)
    work = renter.run_dir(job_id) / "work"
    assert {name: (work / name).read_text() for name in files} == files
    assert (work / "out/weights.bin").read_text() == "evil"


@pytest.mark.skipif(why_no_sandbox() is not None, reason="no sandbox here")
def test_a_script_runs_in_the_sandbox_once_a_machine_has_sent_files_into_its_folder(renter: Renter) -> None:
    job_id = renter.rent_script({"train.py": "x = 1\n"}, sandboxed=False)
    renter.installation.change(renter.job(job_id), target="local", attempt=2)
    run_dir, confinement = renter.run_dir(job_id), Confinement(renter.settings.home)
    with Reservation([], [], {}) as nothing:
        assert (
            prepare_script(run_dir, renter.job(job_id), AttemptResources(nothing, confinement)).confinement
            is None
        )
        (run_dir / ".arriving").mkdir()
        (run_dir / ".arriving/received-1.json").write_text("{}")
        spec = prepare_script(run_dir, renter.job(job_id), AttemptResources(nothing, confinement))
    assert spec.confinement is not None
    assert "sandbox" in spec.note
