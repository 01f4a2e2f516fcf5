"""Saving while training goes on: nothing changes, nothing is lost, one at a time, whole or absent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubloom.engine import Trainer
from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.checkpoint.manager import CheckpointManager
from gpubloom.engine.shards.safetensors_file import TensorFileWriter
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig
from gpubloom.traincard import ControlFile
from tests.engine.runs import Run, read_events, read_losses
from tests.errors import raises
from tests.small_disk import remount, small_disk


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint takes much longer to write than a step to train."""
    quick = TensorFileWriter.write

    def slow(self: TensorFileWriter, data: memoryview) -> None:
        time.sleep(0.02)
        quick(self, data)

    monkeypatch.setattr(TensorFileWriter, "write", slow)


def names(run: Run) -> list[str]:
    return [path.name for path in list_checkpoints(run.folder / "checkpoints")]


@pytest.mark.long
@pytest.mark.usefixtures("slow_disk")
def test_training_while_saving_gives_the_same_bits_as_training_without(make_run: Callable[..., Run]) -> None:
    saving = make_run("saving", max_steps=12, checkpoint={"every_steps": 5})
    quiet = make_run("quiet", max_steps=12)
    saving.train(), quiet.train()
    assert len(saving.events("checkpoint")) == 3
    assert saving.losses() == quiet.losses()
    assert saving.weights() == quiet.weights()


@pytest.mark.long
@pytest.mark.usefixtures("slow_disk")
def test_steps_go_on_before_the_checkpoint_is_complete_and_resuming_from_it_repeats_them_exactly(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=20, checkpoint={"every_steps": 5})
    steps_at_completion: list[int] = []
    finish = CheckpointManager.finish

    def record(self: CheckpointManager) -> None:
        if self._saving is not None:
            steps_at_completion.append(self._executor.updates - self._saving.progress.step)
        finish(self)

    monkeypatch.setattr(CheckpointManager, "finish", record)
    run.train(stop_at=14)
    assert steps_at_completion[0] > 0, "no step was trained while the first checkpoint was saved"
    monkeypatch.undo()
    for path in list_checkpoints(run.folder / "checkpoints")[1:]:
        subprocess.run(["rm", "-r", str(path)], check=True)
    run.train(resume=True)
    assert run.events("resumed")[0]["from_step"] < 14
    whole = make_run("whole", max_steps=20)
    whole.train()
    assert run.losses() == whole.losses()
    assert run.weights() == whole.weights()


@pytest.mark.long
@pytest.mark.usefixtures("slow_disk")
def test_a_second_checkpoint_waits_for_the_first_and_none_is_left_out(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    quick = TensorFileWriter.write

    def count(self: TensorFileWriter, data: memoryview) -> None:
        together.append(len(list(self.path.parent.parent.glob(".writing-step-*"))))
        quick(self, data)

    monkeypatch.setattr(TensorFileWriter, "write", count)
    run = make_run(max_steps=4, checkpoint={"every_steps": 1, "keep_last": 9})
    run.train()
    assert names(run) == [f"step-0000000{step}" for step in range(1, 5)]
    # The final model is written beside an empty folder of checkpoints on their way.
    assert max(together) == 1
    assert [event["step"] for event in run.events("checkpoint")] == [1, 2, 3, 4]


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize("want", ["pause", "cancel"])
def test_a_pause_and_a_cancel_wait_for_the_checkpoint_that_is_being_saved(
    make_run: Callable[..., Run], want: str
) -> None:
    run = make_run(max_steps=60, checkpoint={"every_steps": 3})
    thread = threading.Thread(target=run.train)
    thread.start()
    while not list((run.folder / "checkpoints").glob(".writing-step-*")):
        time.sleep(0.001)
    ControlFile(run.folder).want(want)  # type: ignore[arg-type]
    thread.join(120)
    assert run.events("end")[-1]["status"] == {"pause": "paused", "cancel": "cancelled"}[want]
    assert not list((run.folder / "checkpoints").glob(".writing-*"))
    told = [event["step"] for event in run.events("checkpoint")]
    assert told[0] == 3
    assert [f"step-{step:08d}" for step in told][-len(names(run)) :] == names(run)


@pytest.mark.usefixtures("slow_disk")
def test_a_loss_that_is_no_number_does_not_cost_the_checkpoint_that_is_being_saved(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=9, checkpoint={"every_steps": 2})
    original = Trainer.train_step

    def poison(self: Trainer, batch: object) -> float:
        if self.step == 2:
            monkeypatch.setattr(self.executor, "forward_backward", lambda batch: float("nan"))
        return original(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "train_step", poison)
    with raises(FloatingPointError, code="not_finite", match="step 3.*step-00000002"):
        run.train()
    assert names(run) == ["step-00000002"]
    assert [event["step"] for event in run.events("checkpoint")] == [2]


def test_a_disk_without_room_for_one_checkpoint_is_named_before_the_first_step(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    with small_disk(tmp_path / "tiny-disk", "256k") as tiny:
        run = make_run("tiny", max_steps=3, checkpoint={"directory": str(tiny)})
        with raises(InputError, code="disk_full", match="A checkpoint of this run needs .* GB"):
            run.train()
        assert run.events("step") == []
        assert run.events("end")[-1]["status"] == "failed"
        subprocess.run(["mount", "-o", "remount,size=50m", str(tiny)], check=True)
        assert run.train().status == "completed"


def test_a_checkpoint_folder_that_cannot_be_written_is_named_before_the_first_step(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    file = tmp_path / "file"
    file.touch()
    run = make_run("tiny", max_steps=3, checkpoint={"directory": str(file)})
    with raises(InputError, code="cannot_write", match="/file: it is not a folder"):
        run.train()
    assert run.events("step") == []

    with small_disk(tmp_path / "read-only", "50m") as folder:
        remount(folder, read_only=True)
        run = make_run("read-only-run", max_steps=3, checkpoint={"directory": str(folder / "new")})
        with raises(InputError, code="cannot_write", match="/read-only: nothing can be written there"):
            run.train()
        assert run.events("step") == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Room for one checkpoint of the small model and half of another."""
    with small_disk(tmp_path / "disk", "2m") as folder:
        yield folder


def test_a_full_disk_is_said_in_a_sentence_and_leaves_the_earlier_checkpoints_alone(
    disk: Path, make_run: Callable[..., Run]
) -> None:
    settings = {"every_steps": 3, "directory": str(disk)}
    run = make_run("full", max_steps=30, checkpoint=settings)
    with pytest.raises(
        OSError, match=r"could not be saved: No space left on device\. Files that were saved earlier"
    ) as error:
        run.train()
    assert str(disk / "full" / "step-0") in str(error.value)
    said = [event["line"] for event in run.events("log")]
    assert any(f"{disk / 'full'} has room for 1 of the 3 checkpoints" in message for message in said)
    left = [path.name for path in (disk / "full").iterdir()]
    assert left == ["step-00000003"]
    assert run.events("end")[-1]["status"] == "failed"
    subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
    assert run.train(resume=True).status == "completed"
    assert run.events("resumed")[0]["from_step"] == 3
    whole = make_run("whole", max_steps=30)
    whole.train()
    assert run.losses() == whole.losses()
    assert run.weights() == whole.weights()


def test_a_full_disk_at_the_end_leaves_no_half_model(disk: Path, make_run: Callable[..., Run]) -> None:
    run = make_run("disk/run", max_steps=3)
    run.folder.mkdir()
    (disk / "ballast").write_bytes(b"x" * 550_000)
    with pytest.raises(OSError, match=r"/run/model could not be saved: No space left on device"):
        run.train()
    assert not (run.folder / "model").exists()
    assert not list(run.folder.rglob(".writing-*"))


STUCK_RUN = """
import sys, time
from pathlib import Path
from gpubloom.engine.shards.safetensors_file import TensorFileWriter
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig
from tests.engine.runs import Run

quick = TensorFileWriter.write
def stuck(self, data):
    while "step-00000020" in str(self.path) and self.path.name == "optimizer.safetensors" and self._written:
        time.sleep(60)
    quick(self, data)
TensorFileWriter.write = stuck
Run(Path(sys.argv[1]), TrainConfig.read(Path(sys.argv[2]))).train()
"""


@pytest.mark.long
def test_killed_while_saving_leaves_the_checkpoint_before_and_resumes_exactly(
    tmp_path: Path, make_config: Callable[..., TrainConfig]
) -> None:
    config = make_config(max_steps=40, checkpoint={"every_steps": 10})
    (tmp_path / "config.json").write_text(config.to_json())
    run, whole = Run(tmp_path / "killed", config), Run(tmp_path / "whole", config)
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK_RUN, str(run.folder), str(tmp_path / "config.json")],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    half = run.folder / "checkpoints" / ".writing-step-00000020"
    deadline = time.monotonic() + 120
    # Some of its tensors are written, others are not.
    while not (half / "optimizer.safetensors").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert half.exists()
    assert names(run) == ["step-00000010"]
    assert run.train(resume=True).status == "completed"
    assert not half.exists()
    assert read_events(run.folder, "resumed")[0]["from_step"] == 10
    whole.train()
    assert read_losses(run.folder) == read_losses(whole.folder)
    assert run.weights() == whole.weights()
