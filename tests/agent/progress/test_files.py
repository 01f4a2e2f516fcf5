"""Checkpoints that scripts write without telling anybody."""

import io
from pathlib import Path

from gpubloom.agent.progress.files import SavedFiles, files_now, find_saved
from gpubloom.traincard import read_all
from gpubloom.traincard.interop.event_files import Scalars, write_scalars, write_version
from tests.agent.runs import Run


def write(path: Path, size: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_a_checkpoint_is_told_once_it_has_settled_and_again_when_it_was_written_anew(tmp_path: Path) -> None:
    saved = SavedFiles(tmp_path, before={})
    file = write(tmp_path / "out" / "ckpt.pt")
    assert list(saved.look(ended=False)) == []
    assert [(each.path, each.size) for each in saved.look(ended=False)] == [(file, 3)]
    assert list(saved.look(ended=False)) == []
    write(file, 5)
    assert list(saved.look(ended=False)) == []
    assert [each.size for each in saved.look(ended=True)] == [5]


def test_a_folder_of_several_files_is_one_checkpoint_with_the_step_in_its_name(tmp_path: Path) -> None:
    write(tmp_path / "out" / "checkpoint-500" / "model.safetensors", 10)
    write(tmp_path / "out" / "checkpoint-500" / "optimizer.pt", 7)
    [saved] = find_saved(tmp_path)
    assert (saved.path, saved.size, saved.step) == (tmp_path / "out" / "checkpoint-500", 17, 500)


def test_data_links_and_what_was_there_before_are_no_checkpoints(tmp_path: Path) -> None:
    write(tmp_path / "data" / "shakespeare" / "train.bin")
    old = write(tmp_path / "pretrained.pt")
    before = files_now(tmp_path)
    (tmp_path / "link.pt").symlink_to(old)
    write(tmp_path / "notes.txt")
    assert find_saved(tmp_path, before) == []


def test_a_followed_script_has_its_checkpoints_in_the_run(run: Run) -> None:
    run.script(
        "import os, time\n"
        "os.makedirs('out')\n"
        "for step in range(1, 11): print(f'iter {step}: loss {1 / step:.4f}, time 10.00ms')\n"
        "open('out/ckpt.pt', 'wb').write(b'weights')\n"
    )
    run.run_agent()
    events = [event for event in read_all(run.path) if event.kind == "checkpoint"]
    assert [(event.step, event.fields["path"], event.fields["size"]) for event in events] == [
        (10, "out/ckpt.pt", 7)
    ]


def test_files_count_although_the_clock_was_put_back_while_the_script_ran(run: Run) -> None:
    write(run.path / "pretrained.pt")
    scalars = io.BytesIO()
    write_version(scalars, 1.0)
    write_scalars(scalars, Scalars(1.0, 5, {"mine": 1.0}))
    run.script(
        "import os, time\n"
        "print('iter 1: loss 0.5000, time 10.00ms')\n"
        "open('ckpt.pt', 'wb').write(b'weights')\n"
        f"open('events.out.tfevents.1', 'wb').write({scalars.getvalue()!r})\n"
        "for name in ('ckpt.pt', 'events.out.tfevents.1'):\n"
        "    os.utime(name, (time.time() - 3600,) * 2)\n"
    )
    run.run_agent()
    events = list(read_all(run.path))
    assert [event.fields["path"] for event in events if event.kind == "checkpoint"] == ["ckpt.pt"]
    assert "train/mine" in {name for event in events if event.kind == "metric" for name, _ in event.series()}


def test_a_link_with_the_name_of_a_tensorboard_file_is_not_read(run: Run, tmp_path: Path) -> None:
    theirs = tmp_path / "somebody-elses"
    with theirs.open("wb") as file:
        write_version(file, 1.0)
        write_scalars(file, Scalars(1.0, 5, {"secret": 1.0}))
    run.script(
        "import os, time\n"
        f"os.symlink({str(theirs)!r}, 'events.out.tfevents.1')\n"
        "os.mkfifo('events.out.tfevents.2')\n"
        "print('iter 1: loss 0.5000, time 10.00ms')\n"
    )
    run.run_agent()
    named = {name for event in read_all(run.path) if event.kind == "metric" for name, _ in event.series()}
    assert named == {"train/loss", "train/step_seconds"}
