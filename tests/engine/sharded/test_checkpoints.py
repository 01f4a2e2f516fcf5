"""Checkpoints of a divided model: complete or absent, for any number of processes, and for one device."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from gpubloom.engine.checkpoint import is_sharded, list_checkpoints
from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.executors.sharded import ShardedExecutor
from tests.engine.sharded.members import run_members
from tests.engine.sharded.saved import hashed, make, restore, save, state_of, train
from tests.errors import raises

# One worker starts the two processes for all.
pytestmark = pytest.mark.xdist_group("two-processes")


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    return train(make(BlockExecutor), range(9))


def checkpoint_of(home: Path) -> Path:
    return list_checkpoints(home / "checkpoints")[-1]


@pytest.mark.long
def test_what_two_processes_saved_continues_on_one_device_and_back(
    two_processes: Path, undisturbed: list[float], tmp_path: Path
) -> None:
    path = checkpoint_of(two_processes)
    assert {"__0_0.distcp", "__1_0.distcp", "training.json", "config.json"} <= {
        file.name for file in path.iterdir()
    }
    assert json.loads((two_processes / "losses.json").read_text()) == pytest.approx(undisturbed[:3], rel=1e-5)
    whole = make(BlockExecutor)
    restore(path, whole)
    weights = hashed(state_of(whole))
    sharded = make(ShardedExecutor)
    restore(save(tmp_path / "whole", whole, 3), sharded)
    assert hashed(state_of(sharded)) == weights
    again = make(BlockExecutor)
    restore(save(tmp_path / "divided", sharded, 3), again)
    assert hashed(state_of(again)) == weights
    for executor in (whole, sharded, again):
        assert train(executor, range(3, 6)) == pytest.approx(undisturbed[3:6], rel=1e-5)


@pytest.mark.long
def test_two_then_one_then_three_processes_train_as_if_nothing_had_happened(
    two_processes: Path, undisturbed: list[float], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(two_processes / "checkpoints", folder)
    losses = json.loads((two_processes / "losses.json").read_text())
    for size, first in ((1, 3), (3, 6)):
        out = tmp_path / f"{size}.json"
        arguments = [str(folder), str(first), str(first + 3), str(out)]
        run_members(size, ["-m", "tests.engine.sharded.resumer", *arguments])
        losses += json.loads(out.read_text())
    assert losses == pytest.approx(undisturbed, rel=1e-5)
    # Three processes wrote the last one.
    assert len(list(list_checkpoints(folder)[-1].glob("__*.distcp"))) == 3


def test_torch_itself_reads_it_and_a_copy_without_hidden_files_continues(
    two_processes: Path, tmp_path: Path
) -> None:
    path = checkpoint_of(two_processes)
    executor = make(BlockExecutor)
    restore(path, executor)
    dcp_to_torch_save(path, tmp_path / "all.pt")
    tensors = torch.load(tmp_path / "all.pt", weights_only=True)
    expected = state_of(executor)["0 weight master"]
    assert torch.equal(tensors["model.embed_tokens.weight"], expected)
    copy = tmp_path / "copy" / path.name
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns(".*"))
    assert is_sharded(copy)
    other = make(BlockExecutor)
    restore(copy, other)
    assert hashed(state_of(other)) == hashed(state_of(executor))


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


class Wicked:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return eval, ("__import__('pathlib').Path('/tmp/wicked').touch()",)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped byte": (lambda path: flip(path / "__1_0.distcp"), "__1_0.distcp"),
    "a missing part": (lambda path: (path / "__0_0.distcp").unlink(), "__0_0.distcp"),
    "no table of contents": (
        lambda path: [(path / name).unlink() for name in (".metadata", "contents.distcp")],
        "contents.distcp",
    ),
    "another table of contents": (
        lambda path: (path / "contents.distcp").write_bytes(pickle.dumps(Wicked())),
        "contents.distcp",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [BlockExecutor, ShardedExecutor])
def test_what_is_damaged_is_refused_in_one_sentence(
    damage: str, kind: type, two_processes: Path, tmp_path: Path
) -> None:
    path = tmp_path / "step-00000003"
    shutil.copytree(checkpoint_of(two_processes), path)
    spoil, expected = DAMAGES[damage]
    spoil(path)
    with raises(ValueError, code="damaged_checkpoint") as refused:
        restore(path, make(kind))
    assert expected in str(refused.value)


def test_a_table_of_contents_runs_nothing(two_processes: Path, tmp_path: Path) -> None:
    from gpubloom.engine.checkpoint.sharded import PartReader

    path = tmp_path / "step-00000003"
    shutil.copytree(checkpoint_of(two_processes), path)
    (path / "contents.distcp").write_bytes(pickle.dumps(Wicked()))
    with raises(ValueError, code="damaged_checkpoint"):
        PartReader(path).shapes()


def test_without_room_for_copies_training_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.engine.checkpoint.sharded.free_host_bytes", lambda budget: 0)
    executor = make(ShardedExecutor)
    train(executor, range(2))
    expected = hashed(state_of(executor))
    path = save(tmp_path, executor, 2)
    train(executor, range(2, 3))
    other = make(ShardedExecutor)
    restore(path, other)
    assert hashed(state_of(other)) == expected != hashed(state_of(executor))


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = make(ShardedExecutor)
    earlier = save(tmp_path, executor, 1)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpubloom.engine.checkpoint.sharded.show_contents", full)
    with pytest.raises(
        OSError, match=r"step-00000002 could not be saved: No space left.*Files that were saved"
    ):
        save(tmp_path, executor, 2)
    assert list(tmp_path.iterdir()) == [earlier]
