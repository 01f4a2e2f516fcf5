"""Every form of a model or checkpoint becomes every other and comes back with the same bits."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.converting import convert
from gpubloom.engine.converting import tensor_formats as writing_forms
from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.checkpoint import placements
from tests.engine.checkpoint.placements import make_executor
from tests.engine.checkpoint.test_adapters import adapted
from tests.engine.sharded.saved import hashed, make, restore, save, state_of, train
from tests.errors import raises


@pytest.fixture(autouse=True)
def _leave_the_group() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained() -> BlockExecutor:
    executor: BlockExecutor = make(BlockExecutor)
    train(executor, range(3))
    return executor


@pytest.fixture(scope="module")
def checkpoint(trained: BlockExecutor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("saved"), trained, 3)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("form", ["torch", "json", "sharded"])
def test_a_checkpoint_comes_back_from_every_form_with_the_same_bits(
    form: Any, checkpoint: Path, trained: BlockExecutor, tmp_path: Path
) -> None:
    there = convert(checkpoint, tmp_path / form, form)
    assert (there.source_form, there.can_continue) == ("block", True)
    back = convert(tmp_path / form, tmp_path / "step-00000003", "block")
    assert back.source_form == form
    for name in ("model.safetensors", "optimizer.safetensors", "training.json", "tokenizer.json"):
        assert sha256(tmp_path / "step-00000003" / name) == sha256(checkpoint / name), name
    executor = make(BlockExecutor)
    restore(tmp_path / "step-00000003", executor)
    assert hashed(state_of(executor)) == hashed(state_of(trained))


def test_a_whole_checkpoint_becomes_one_that_sharded_runs_continue_from_and_back(
    checkpoint: Path, trained: BlockExecutor, tmp_path: Path
) -> None:
    convert(checkpoint, tmp_path / "step-00000003", "sharded")
    sharded = make(ShardedExecutor)
    restore(tmp_path / "step-00000003", sharded)
    assert hashed(state_of(sharded)) == hashed(state_of(trained))
    path = save(tmp_path / "again", sharded, 3)
    convert(path, tmp_path / "whole", "block")
    assert sha256(tmp_path / "whole" / "model.safetensors") == sha256(checkpoint / "model.safetensors")


def test_adapters_come_back_from_every_form_as_peft_reads_them(tmp_path: Path) -> None:
    model = adapted()
    executor = make_executor("resident", model=model)
    saved = placements.save(tmp_path, model, executor, step=2)
    for form in ("torch", "json", "sharded"):
        convert(saved, tmp_path / form, form)  # type: ignore[arg-type]
        convert(tmp_path / form, tmp_path / f"{form} and back", "block")
        for name in ("adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors"):
            assert sha256(tmp_path / f"{form} and back" / name) == sha256(saved / name), (form, name)


def test_each_form_is_what_others_load(checkpoint: Path, tmp_path: Path) -> None:
    expected = load_file(checkpoint / "model.safetensors")
    convert(checkpoint, tmp_path / "model", "safetensors")
    convert(checkpoint, tmp_path / "pt", "torch")
    convert(checkpoint, tmp_path / "json", "json")
    assert not (tmp_path / "model" / "training.json").exists()
    assert find_model(tmp_path / "model").is_own
    by_torch = torch.load(tmp_path / "pt" / "model.pt", weights_only=True)
    text = json.loads((tmp_path / "json" / "model.json").read_text())
    by_json = {
        each["name"]: torch.tensor(each["values"], dtype=getattr(torch, each["dtype"])).reshape(each["shape"])
        for each in text["tensors"]
    }
    for found in (by_torch, by_json, load_file(tmp_path / "model" / "model.safetensors")):
        assert found.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_a_model_of_others_in_two_precisions_keeps_them(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    shutil.copyfile(checkpoint / "config.json", folder / "config.json")
    tensors = {"a": torch.randn(3, 4).bfloat16(), "b": torch.randn(5), "c": torch.randn(2, 2).half()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    last = folder
    for form in ("torch", "json", "safetensors"):
        convert(last, tmp_path / form, form)
        last = tmp_path / form
    shards = {name: tensor for file in last.glob("*.safetensors") for name, tensor in load_file(file).items()}
    assert shards.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert shards[name].dtype == tensor.dtype
        assert torch.equal(shards[name], tensor)
    with raises(ValueError, code="no_training_state"):
        convert(folder, tmp_path / "block", "block")


def test_what_transformers_saved_with_torch_is_converted(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    shutil.copyfile(checkpoint / "config.json", folder / "config.json")
    torch.save({"model.norm.weight": torch.ones(4)}, folder / "pytorch_model.bin")
    convert(folder, tmp_path / "new", "safetensors")
    assert load_file(tmp_path / "new" / "model.safetensors")["model.norm.weight"].tolist() == [1.0] * 4
    assert not (tmp_path / "new" / "pytorch_model.bin").exists()


def test_json_is_refused_for_large_models_before_anything_is_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_forms, "LARGEST_JSON_WEIGHTS", 100)
    with raises(
        ValueError,
        code="model_too_large",
        match="100",
    ):
        convert(checkpoint, tmp_path / "json", "json")
    assert list(tmp_path.iterdir()) == []


def test_other_forms_are_named_where_only_a_model_folder_is_loaded(checkpoint: Path, tmp_path: Path) -> None:
    for form in ("torch", "json", "sharded"):
        convert(checkpoint, tmp_path / form, form)  # type: ignore[arg-type]
        with raises(ValueError, code="needs_conversion", match="bloom runs convert-checkpoint"):
            find_model(tmp_path / form)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def unnamed(folder: Path) -> None:
    """As if somebody had brought it without checksums."""
    for name in ("checksums.json", "training.json"):
        (folder / name).unlink()


def cut(folder: Path, name: str) -> None:
    unnamed(folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:-200])


def replace(folder: Path, name: str, text: str) -> None:
    unnamed(folder)
    (folder / name).write_text(text)


FAULTS: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "a flipped byte": (
        "block",
        lambda folder: flip(folder / "model.safetensors"),
        "damaged_checkpoint",
        "model.safetensors",
    ),
    "a missing file": (
        "block",
        lambda folder: (folder / "optimizer.safetensors").unlink(),
        "damaged_checkpoint",
        "optimizer.safetensors",
    ),
    "no checksums": (
        "block",
        lambda folder: (folder / "checksums.json").unlink(),
        "incomplete_checkpoint",
        "checksums.json",
    ),
    "half a file": ("block", lambda folder: cut(folder, "model.safetensors"), "unreadable_file", "model"),
    "half a torch file": ("torch", lambda folder: cut(folder, "model.pt"), "unreadable_file", "model.pt"),
    "half a text": ("json", lambda folder: cut(folder, "model.json"), "unreadable_file", "model.json"),
    "another text": (
        "json",
        lambda folder: replace(folder, "model.json", '{"format": "mine"}'),
        "unreadable_file",
        "model.json",
    ),
    "too few values": (
        "json",
        lambda folder: replace(
            folder,
            "model.json",
            '{"format": "gpubloom tensors", "tensors": '
            '[{"name": "a", "dtype": "float32", "shape": [2], "values": [1]}]}',
        ),
        "unreadable_file",
        "tensor a",
    ),
    "a flipped part": (
        "sharded",
        lambda folder: flip(folder / "__0_0.distcp"),
        "damaged_checkpoint",
        "__0_0.distcp",
    ),
    "no config": (
        "torch",
        lambda folder: (unnamed(folder), (folder / "config.json").unlink()),
        "not_a_model_folder",
        "config.json",
    ),
    "a pickle": (
        "torch",
        lambda folder: (unnamed(folder), torch.save(torch.nn.Linear(2, 2), folder / "model.pt")),
        "unreadable_file",
        "model.pt",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_or_damaged_is_refused_in_one_sentence_and_nothing_is_written(
    fault: str, checkpoint: Path, tmp_path: Path
) -> None:
    form, spoil, code, name = FAULTS[fault]
    source = tmp_path / "source"
    if form == "block":
        shutil.copytree(checkpoint, source)
    else:
        convert(checkpoint, source, form)  # type: ignore[arg-type]
    spoil(source)
    with raises(ValueError, code=code, match=name) as refused:
        convert(source, tmp_path / "new", "safetensors")
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [source]


def test_what_is_no_model_and_what_exists_already_are_named(checkpoint: Path, tmp_path: Path) -> None:
    with raises(ValueError, code="folder_exists"):
        convert(checkpoint, tmp_path, "torch")
    with raises(ValueError, code="not_a_model_folder"):
        convert(tmp_path, tmp_path / "new", "torch")
    with raises(ValueError, code="folder_not_found"):
        convert(tmp_path / "nowhere", tmp_path / "new", "torch")


def test_of_a_run_the_newest_checkpoint_is_converted(make_run: Callable[..., Any], tmp_path: Path) -> None:
    run = make_run(max_steps=4, checkpoint={"every_steps": 2})
    run.folder.mkdir()
    (run.folder / "config.json").write_text(run.config.to_json())
    run.train(stop_at=3)
    written = convert(run.folder, tmp_path / "new", "torch")
    assert written.source == list_checkpoints(run.folder / "checkpoints")[-1]
    assert json.loads((tmp_path / "new" / "training.json").read_text())["step"] == 3
