"""The mean of checkpoints: figures, the manifest of its sources, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.engine.adapter_folder import read_adapter
from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.converting.averaging import average
from gpubloom.engine.converting.convert import convert, open_source
from gpubloom.engine.serving.resolved_model import find_model
from gpubloom.plan import TrainConfig
from tests.engine.exporting.tasks import export
from tests.engine.runs import Run, in_shards
from tests.errors import printed, raises
from tests.tiny_models import make_tiny_model


@pytest.fixture
def checkpoints(make_run: Callable[..., Run]) -> list[Path]:
    run = make_run(max_steps=6, checkpoint={"every_steps": 2, "keep_last": 3})
    run.train()
    return list_checkpoints(run.folder / "checkpoints")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


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
    assert same_weights(tmp_path / "one", tmp_path / "again")


@pytest.mark.long
def test_an_export_task_writes_the_mean_that_the_command_line_writes(
    checkpoints: list[Path], tmp_path: Path
) -> None:
    average(checkpoints, tmp_path / "mean")
    first, *others = map(str, checkpoints)
    home = tmp_path / "task"
    result = export(home, model=first, average_with=others, dtype="fp32", prompts=["To be"])
    assert same_weights(home / "model", tmp_path / "mean")
    manifests = [(folder / "averaged.json").read_bytes() for folder in (home / "model", tmp_path / "mean")]
    assert manifests[0] == manifests[1]
    assert (result["same"], result["of"]) == (1, 1), "the mean itself answers as its export does"
    assert "averaged.json" in {file["path"] for file in result["files"]}
    assert not (home / "weights").exists()


@pytest.mark.long
def test_an_export_task_writes_the_same_mean_of_sharded_checkpoints(
    checkpoints: list[Path], tmp_path: Path
) -> None:
    average(checkpoints, tmp_path / "mean")
    first, *others = map(in_shards, checkpoints)
    home = tmp_path / "task"
    result = export(home, model=first, average_with=others, dtype="fp32", prompts=["To be"])
    assert same_weights(home / "model", tmp_path / "mean")
    assert (result["same"], result["of"]) == (1, 1)
    manifest = json.loads((home / "model" / "averaged.json").read_text())
    parts = [set(source["sha256"]) for source in manifest["sources"]]
    assert parts == [{"__0_0.distcp", "contents.distcp"}] * 3


@pytest.mark.long
def test_an_export_task_reads_a_sharded_checkpoint(checkpoints: list[Path], tmp_path: Path) -> None:
    before = weights(checkpoints[0])
    home = tmp_path / "task"
    result = export(home, model=in_shards(checkpoints[0]), dtype="fp32", prompts=["To be"])
    after = weights(home / "model")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (result["same"], result["of"]) == (1, 1)
    assert not (home / "weights").exists()


def test_a_disk_without_room_is_refused_with_both_sizes(
    checkpoints: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(checkpoints[0])
    needed = 4 * sum(tensor.numel() for tensor in weights(checkpoints[0]).values())
    needed += sum(file.stat().st_size for file in source.auxiliary_files)
    free = needed - 1
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real._replace(free=free))
    with raises(ValueError, code="disk_full") as refused:
        average(checkpoints, tmp_path / "new" / "mean")
    assert f"{needed / 1e9:,.3f} GB" in str(refused.value)
    assert f"{free / 1e9:,.3f} GB" in str(refused.value)
    with raises(ValueError, code="disk_full"):
        convert(Path(in_shards(checkpoints[0])), tmp_path / "whole", "safetensors")
    assert not (tmp_path / "new").exists()
    free = needed
    average(checkpoints, tmp_path / "new" / "mean")


@pytest.mark.long
def test_an_export_of_a_mean_needs_room_for_both_copies(
    checkpoints: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The mean is written by then; what it takes is no longer free."""
    real, mean = shutil.disk_usage(tmp_path), open_source(checkpoints[0]).bytes_in_fp32()
    home = tmp_path / "task"
    free = mean + 1_000

    def usage(_: Path) -> object:
        return real._replace(free=free - mean if (home / "weights").exists() else free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(SystemExit):
        export(home, model=str(checkpoints[0]), average_with=[str(checkpoints[1])], prompts=["To be"])
    assert printed(said := capsys.readouterr().err) == ["disk_full"]
    assert "The export needs" in said
    assert not (home / "weights").exists()
    assert not (home / "model").exists()


@pytest.mark.long
def test_the_mean_of_adapters_is_exported_with_the_base_model_of_the_run(tmp_path: Path) -> None:
    base = make_tiny_model(tmp_path / "base")
    (tmp_path / "data.txt").write_text("To be, or not to be, that is the question. " * 200)
    config = TrainConfig.model_validate(
        {
            "method": "lora",
            "device": "cpu",
            "batch_size": 2,
            "max_steps": 4,
            "model": {"path": str(base), "context_length": 32},
            "data": {"train_path": str(tmp_path / "data.txt")},
            "checkpoint": {"every_steps": 2, "keep_last": 2},
        }
    )
    run = Run(tmp_path / "run", config)
    run.folder.mkdir()
    (run.folder / "config.json").write_text(config.to_json())
    run.train()
    saved = list_checkpoints(run.folder / "checkpoints")
    average(saved, tmp_path / "mean")
    home = tmp_path / "task"
    first, *others = map(str, saved)
    result = export(home, model=first, average_with=others, form="adapter", dtype="fp32", prompts=["To be"])
    ours, mean = read_adapter(home / "model").tensors, read_adapter(tmp_path / "mean").tensors
    assert ours.keys() == mean.keys()
    assert all(torch.equal(ours[name], mean[name]) for name in mean)
    assert (result["same"], result["of"]) == (1, 1)


@pytest.mark.long
def test_an_export_of_a_damaged_checkpoint_writes_nothing(
    checkpoints: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = checkpoints[1] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(SystemExit):
        export(tmp_path / "task", model=str(checkpoints[0]), average_with=[str(checkpoints[1])])
    assert "error[damaged_checkpoint]" in capsys.readouterr().err
    assert not (tmp_path / "task" / "model").exists()
    assert not (tmp_path / "task" / "weights").exists()


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
