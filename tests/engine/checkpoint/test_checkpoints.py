"""Checkpoints: whole or absent, damage is named, what does not fit is refused."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gpubloom.engine.checkpoint import list_checkpoints
from tests.engine.runs import Run
from tests.errors import raises


@pytest.fixture
def run(make_run: Callable[..., Run]) -> Run:
    """Paused at step 6, with checkpoints at 3 and 6."""
    run = make_run(max_steps=12, checkpoint={"every_steps": 3})
    run.train(stop_at=6)
    return run


def newest(run: Run) -> Path:
    return list_checkpoints(run.folder / "checkpoints")[-1]


def test_a_checkpoint_is_a_model_folder_with_checksums_and_without_pickle(run: Run) -> None:
    files = {path.name for path in newest(run).iterdir()}
    assert files == {
        "checksums.json",
        "config.json",
        "model.safetensors",
        "optimizer.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
        "training.safetensors",
    }
    recorded = json.loads((newest(run) / "checksums.json").read_text())["sha256"]
    assert set(recorded) == files - {"checksums.json"}


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "training.json", "config.json"]
)
def test_a_flipped_byte_is_found_and_its_file_and_checksum_named(run: Run, name: str) -> None:
    path = newest(run) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with raises(
        ValueError,
        code="damaged_checkpoint",
        match=f"step-00000006.*{name}",
    ):
        run.train(resume=True)
    assert path.read_bytes() == bytes(content)


def test_a_missing_file_is_named(run: Run) -> None:
    (newest(run) / "optimizer.safetensors").unlink()
    with raises(ValueError, code="damaged_checkpoint"):
        run.train(resume=True)


def test_deleting_a_damaged_checkpoint_resumes_from_the_one_before(
    run: Run, make_run: Callable[..., Run]
) -> None:
    shutil.rmtree(newest(run))
    assert run.train(resume=True).status == "completed"
    assert run.events("resumed")[0]["from_step"] == 3
    whole = make_run("whole", max_steps=12, checkpoint={"every_steps": 3})
    whole.train()
    assert run.losses() == whole.losses()
    assert run.weights() == whole.weights()


def test_a_checkpoint_of_another_architecture_is_refused_and_the_difference_named(
    run: Run, make_run: Callable[..., Run]
) -> None:
    other = make_run("run", max_steps=12, model={"preset": "nano", "context_length": 32, "layers": 3})
    with raises(
        ValueError,
        code="checkpoint_mismatch",
        match="num_hidden_layers 2 .* 3",
    ):
        other.train(resume=True)


def test_changed_data_is_refused(run: Run, text_file: Path) -> None:
    text_file.write_text(text_file.read_text().replace("fox", "cat"))
    with raises(ValueError, code="data_changed", match="step-00000006"):
        run.train(resume=True)


def test_what_a_killed_trainer_was_writing_is_removed(run: Run) -> None:
    leftover = run.folder / "checkpoints" / ".writing-step-00000009"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    run.train(resume=True)
    assert not leftover.exists()


def test_a_checkpoint_says_where_training_stood(run: Run) -> None:
    progress = json.loads((newest(run) / "training.json").read_text())
    assert progress["step"] == progress["updates"] == 6
    assert progress["tokens_seen"] == 6 * 8 * 32
    assert progress["loss_scale"] == {}


def test_a_checkpoint_says_how_long_what_and_with_which_optimizations_it_was_trained(run: Run) -> None:
    told = [event["metadata"] for event in run.events("checkpoint")]
    stored = json.loads((newest(run) / "training.json").read_text())["metadata"]
    assert told[-1] == stored
    assert 0 < told[0]["training_seconds"] < told[1]["training_seconds"]
    assert stored["trained_parameters"] == stored["parameters"] > 1_000
    assert (stored["method"], stored["precision"]) == ("full", "fp32")
    assert "chunked loss" in stored["optimizations"]
    assert "compiled layers" not in stored["optimizations"]
    run.train(resume=True)
    later = run.events("checkpoint")[-1]["metadata"]["training_seconds"]
    assert later > stored["training_seconds"]


def test_a_checkpoint_of_an_earlier_version_without_metadata_continues(run: Run) -> None:
    path = newest(run)
    progress = json.loads((path / "training.json").read_text())
    del progress["metadata"]
    (path / "training.json").write_text(json.dumps(progress))
    checksums = json.loads((path / "checksums.json").read_text())
    checksums["sha256"]["training.json"] = sha256((path / "training.json").read_bytes()).hexdigest()
    (path / "checksums.json").write_text(json.dumps(checksums))
    run.train(resume=True)
    assert sorted(run.losses()) == list(range(1, 13))
    assert run.events("checkpoint")[-1]["metadata"]["training_seconds"] > 0
