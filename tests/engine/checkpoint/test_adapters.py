"""Checkpoints of LoRA and QLoRA: adapters only, as PEFT reads them, and exact."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from gpubloom.engine import Model
from gpubloom.engine.adapter_folder import read_adapter
from gpubloom.engine.models.lora import LoraBlocks, LoraSettings, LoraWeights, with_lora
from tests.engine.adapters import write_adapter
from tests.engine.checkpoint.placements import (
    folder_of,
    make_executor,
    make_model,
    restore,
    same,
    save,
    state_of,
    train,
)

SETTINGS = LoraSettings(rank=4, alpha=8, targets=("q_proj", "v_proj"))


def adapted() -> Model:
    base = make_model()
    blocks = with_lora(base.blocks, SETTINGS)
    return replace(base, blocks=blocks, source=LoraWeights(blocks, base.source, seed=1))


@pytest.mark.parametrize("quantized", [False, True], ids=["lora", "qlora"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_adapters_continue_with_the_same_bits_under_another_placement(
    precision: str, quantized: bool, tmp_path: Path
) -> None:
    model = adapted()
    executor = make_executor("resident", precision, model, quantized=quantized)
    train(executor, 2)
    path = save(tmp_path, model, executor, step=2)
    # The base comes from where it came from the first time.
    model = adapted()
    other = make_executor("base-streamed", precision, model, quantized=quantized)
    restore(path, model, other)
    assert train(other, 2, first=2) == train(executor, 2, first=2)
    assert same(state_of(other), state_of(executor))


def test_a_checkpoint_holds_the_adapters_as_peft_writes_them_and_not_the_base(tmp_path: Path) -> None:
    model = adapted()
    executor = make_executor("base-streamed", model=model)
    train(executor, 2)
    path = save(tmp_path, model, executor, step=2)
    assert {file.name for file in path.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "checksums.json",
        "config.json",
        "optimizer.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
        "training.safetensors",
    }
    tensors = {
        model.blocks.parameter_name(store.spec, spec): tensor
        for store in executor.stores
        for spec, tensor in zip(store.trained.tensors, store.trained.views(store.master), strict=True)
    }
    reference = tmp_path / "reference"
    reference.mkdir()
    assert isinstance(model.blocks, LoraBlocks)
    write_adapter(reference, model.blocks, tensors)
    settings = [json.loads((folder / "adapter_config.json").read_text()) for folder in (path, reference)]
    assert settings[0] == settings[1]
    ours = safetensors.torch.load_file(path / "adapter_model.safetensors")
    theirs = safetensors.torch.load_file(reference / "adapter_model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_an_export_is_an_adapter_that_names_its_base(tmp_path: Path) -> None:
    model = adapted()
    folder_of(model, base="some/base").export(tmp_path / "model", make_executor("resident", model=model))
    adapter = read_adapter(tmp_path / "model")
    assert adapter.base_model == "some/base"
    assert adapter.settings == SETTINGS
    assert len(adapter.tensors) == 3 * 2 * 2
