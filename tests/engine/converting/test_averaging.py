"""The mean of checkpoints: figures, the manifest of its sources, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.converting.averaging import average
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.runs import Run
from tests.errors import raises


@pytest.fixture
def checkpoints(make_run: Callable[..., Run]) -> list[Path]:
    run = make_run(max_steps=6, checkpoint={"every_steps": 2, "keep_last": 3})
    run.train()
    return list_checkpoints(run.folder / "checkpoints")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


@pytest.mark.long
def test_every_tensor_is_the_mean_and_the_manifest_names_the_sources(
    checkpoints: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "mean"
    printed = CliRunner().invoke(
        app, ["runs", "average-checkpoints", *map(str, checkpoints), "--into", str(target)]
    )
    assert printed.exit_code == 0, printed.output
    parts, mean = [weights(path) for path in checkpoints], weights(target)
    assert mean.keys() == parts[0].keys()
    for name, tensor in mean.items():
        expected = torch.stack([part[name].double() for part in parts]).mean(0).float()
        assert torch.equal(tensor, expected), name
    assert not torch.equal(mean["model.embed_tokens.weight"], parts[0]["model.embed_tokens.weight"])
    manifest = json.loads((target / "averaged.json").read_text())
    assert [source["step"] for source in manifest["sources"]] == [2, 4, 6]
    assert find_model(target).folder == target
    assert not (target / "training.json").exists()


def test_the_mean_of_equal_weights_has_their_bits(checkpoints: list[Path], tmp_path: Path) -> None:
    average(checkpoints[:2], tmp_path / "one")
    average(checkpoints[:2], tmp_path / "two")
    average([tmp_path / "one", tmp_path / "two"], tmp_path / "again")
    assert all(
        torch.equal(weights(tmp_path / "one")[name], each)
        for name, each in weights(tmp_path / "again").items()
    )


def test_checkpoints_of_another_shape_are_refused(
    checkpoints: list[Path], make_run: Callable[..., Run], tmp_path: Path
) -> None:
    other = make_run("other", max_steps=2, model={"preset": "nano", "context_length": 32, "hidden_size": 96})
    other.train()
    (path,) = list_checkpoints(other.folder / "checkpoints")
    with raises(ValueError, code="checkpoints_differ"):
        average([checkpoints[0], path], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_changed_config_a_damaged_file_and_a_single_checkpoint_are_refused(
    checkpoints: list[Path], tmp_path: Path
) -> None:
    with raises(ValueError, code="too_few_checkpoints"):
        average(checkpoints[:1], tmp_path / "mean")
    with raises(ValueError, code="same_checkpoint_twice"):
        average([checkpoints[0], checkpoints[0]], tmp_path / "mean")
    file = checkpoints[1] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    with raises(ValueError, code="damaged_checkpoint"):
        average(checkpoints[:2], tmp_path / "mean")
    (checkpoints[1] / "checksums.json").unlink()
    with raises(ValueError, code="incomplete_checkpoint"):
        average(checkpoints[:2], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
