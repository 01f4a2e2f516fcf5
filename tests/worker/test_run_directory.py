"""The files that the server owns are written before every start, whatever lies in their place."""

import asyncio
import os
from pathlib import Path

import pytest

from gpubloom.worker.inputs import stage_inputs
from gpubloom.worker.run_directory import read_result
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


@pytest.mark.timeout(30)
def test_a_result_is_not_read_through_a_link_or_from_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "private.json").write_text('{"token": "private"}')
    (tmp_path / "result.json").symlink_to(tmp_path / "private.json")
    assert read_result(tmp_path) is None
    (tmp_path / "result.json").unlink()
    os.mkfifo(tmp_path / "result.json")
    assert read_result(tmp_path) is None


@pytest.mark.parametrize("where", ["inputs", "inputs/train", "inputs/train/words.txt"])
def test_inputs_are_not_written_through_a_link(tmp_path: Path, where: str) -> None:
    outside, run_dir, words = tmp_path / "outside", tmp_path / "run", tmp_path / "words.txt"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    words.write_text("to be or not to be\n")
    (run_dir / where).parent.mkdir(parents=True)
    (run_dir / where).symlink_to(outside / "kept" if where.endswith(".txt") else outside)
    config = {"data": {"train_path": str(words)}}
    if where.endswith(".txt"):
        stage_inputs(run_dir, config)
        assert (run_dir / where).read_text() == words.read_text(), "the link is replaced"
    else:
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            stage_inputs(run_dir, config)
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"


@on_sqlite
def test_a_training_on_this_machine_does_not_find_the_originals_of_its_inputs(
    installation: Installation, tmp_path: Path
) -> None:
    """They were linked for an attempt on a rented machine; written to here, the original would change."""
    machine = Machine(installation)
    job_id = machine.add_job(toy={"steps": 3})
    words = tmp_path / "words.txt"
    words.write_text("to be or not to be\n")
    stage_inputs(machine.run_dir(job_id), {"data": {"train_path": str(words)}})
    assert words.stat().st_nlink == 2

    async def scenario() -> str:
        async with machine.worker():
            return (await machine.until(job_id, "completed", "failed")).status

    assert asyncio.run(scenario()) == "completed", machine.output(job_id)
    assert words.stat().st_nlink == 1
    assert words.read_text() == "to be or not to be\n"
