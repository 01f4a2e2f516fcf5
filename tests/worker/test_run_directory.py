"""The files that the server owns are written before every start, whatever lies in their place."""

import asyncio
from pathlib import Path

import pytest

from tests.server.installation import Installation
from tests.worker.machine import Machine

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)

EVIL = "from pathlib import Path\nPath(__file__).with_name('owned').touch()\n"
TRAINING_FILES = ("train.py", "config.json", "plan.json", "requirements.txt")
TASK_FILES = ("task.py", "task.json", "requirements.txt")


@on_sqlite
@pytest.mark.parametrize("names", [TRAINING_FILES, TASK_FILES], ids=["training", "task"])
def test_an_attempt_starts_from_the_servers_files_and_writes_through_no_link(
    installation: Installation, tmp_path: Path, names: tuple[str, ...]
) -> None:
    machine = Machine(installation)
    job_id = machine.add_job(toy={"steps": 3}) if "train.py" in names else machine.add_task("evaluate")
    run_dir, outside = machine.run_dir(job_id), tmp_path / "outside"
    outside.write_text(EVIL)
    for index, name in enumerate(names):
        if index % 2:
            (run_dir / name).write_text(EVIL)
        else:
            (run_dir / name).symlink_to(outside)

    async def scenario() -> str:
        async with machine.worker():
            return (await machine.until(job_id, "completed", "failed")).status

    assert asyncio.run(scenario()) == "completed", machine.output(job_id)
    assert outside.read_text() == EVIL
    for name in names:
        assert not (run_dir / name).is_symlink()
        assert (run_dir / name).read_text() != EVIL
    assert not (run_dir / "owned").exists()
