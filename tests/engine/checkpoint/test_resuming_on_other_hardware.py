"""A checkpoint knows no placement: under any other, training continues with the same bits."""

from pathlib import Path

import pytest
import torch

from gpubloom.engine import Model
from gpubloom.engine.checkpoint import Progress, start_save
from gpubloom.engine.llama_folder import load_model
from gpubloom.engine.models.weight_sources import RandomWeights
from gpubloom.plan.placement import BlockPlacement, Placement
from tests.engine.checkpoint import placements
from tests.engine.checkpoint.placements import (
    PLACEMENTS,
    folder_of,
    make_executor,
    make_model,
    restore,
    same,
    save,
    state_bytes,
    state_of,
    train,
)
from tests.engine.models.families import model_of
from tests.errors import raises

# Shards of a block or two.
SMALL_SHARDS = 50_000


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("saved_under", PLACEMENTS)
def test_a_checkpoint_continues_with_the_same_bits_under_every_placement(
    saved_under: str, precision: str, tmp_path: Path
) -> None:
    model, executor = make_model(), make_executor(saved_under, precision)
    train(executor, 3)
    path = save(tmp_path, model, executor, step=3, shard_bytes=SMALL_SHARDS)
    saved = state_of(executor)
    losses = train(executor, 3, first=3)
    for placement in PLACEMENTS:
        other = make_executor(placement, precision)
        # What it did before must not matter.
        train(other, 1, first=50)
        restore(path, model, other)
        assert same(state_of(other), saved)
        assert other.updates == 3
        assert train(other, 3, first=3) == losses
        assert same(state_of(other), state_of(executor))


@pytest.mark.parametrize("family", ["llama-tied", "qwen2-mixed", "qwen3", "gemma2", "phi", "falcon", "gpt2"])
def test_models_of_transformers_continue_with_the_same_bits_under_another_placement(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = model_of(family)
    layers = sum(spec.kind not in {"embedding", "head"} for spec in blocks.blocks)
    host, link = (BlockPlacement(state=state, weights="stream") for state in ("host", "link"))
    for name, layer in (("family-host", host), ("family-link", link)):
        ends = BlockPlacement()
        placement = Placement(embedding=ends, layers=(layer,) * layers, head=None if blocks.tied else ends)
        monkeypatch.setitem(placements.PLACEMENTS, name, placement)
    model = Model(blocks, RandomWeights(blocks, seed=1), make_model().shape, blocks.config.to_dict())
    executor, other = make_executor("family-host", model=model), make_executor("family-link", model=model)
    train(executor, 2)
    restore(save(tmp_path, model, executor, step=2, shard_bytes=SMALL_SHARDS), model, other)
    assert train(other, 2, first=2) == train(executor, 2, first=2)
    assert same(state_of(other), state_of(executor))


def test_fp16_continues_with_its_loss_scale_and_other_precisions_without(tmp_path: Path) -> None:
    model = make_model()
    half, whole = make_executor("resident", "fp16"), make_executor("resident", "fp32")
    half._scale.restore({"value": 512.0, "good": 7})
    from_half = save(tmp_path, model, half, step=1)
    from_whole = save(tmp_path, model, whole, step=2)
    again = make_executor("streamed", "fp16")
    restore(from_half, model, again)
    assert again.loss_scale == {"value": 512.0, "good": 7}
    restore(from_half, model, whole)
    assert (whole.loss_scale, whole._scale.value) == ({}, 1.0)
    other = make_executor("resident", "fp16")
    restore(from_whole, model, other)
    assert other.loss_scale == {"value": 65_536.0, "good": 0}


def test_an_export_in_shards_is_read_by_transformers_and_by_this_engine(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model, executor = make_model(), make_executor("mixed")
    train(executor, 2)
    folder_of(model).export(tmp_path / "model", executor, shard_bytes=SMALL_SHARDS)
    assert len(list((tmp_path / "model").glob("model-0000*-of-00005.safetensors"))) == 5
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    tokens_BT = torch.arange(12).view(1, 12)
    with torch.no_grad():
        assert (theirs(tokens_BT).logits - ours(tokens_BT)).abs().max() < 1e-5
    states = dict(theirs.named_parameters())
    executor.settle()
    for store in executor.stores:
        for spec, tensor in zip(store.trained.tensors, store.trained.views(store.master), strict=True):
            assert torch.equal(states[model.blocks.parameter_name(store.spec, spec)], tensor)


def test_a_shard_that_is_missing_or_of_another_model_stops_the_resumption(tmp_path: Path) -> None:
    model, executor = make_model(), make_executor("streamed")
    path = save(tmp_path, model, executor, step=1, shard_bytes=SMALL_SHARDS)
    (path / "optimizer-00002-of-00005.safetensors").rename(tmp_path / "aside")
    with raises(
        ValueError,
        code="damaged_checkpoint",
        match="step-00000001.*optimizer-00002-of-00005",
    ):
        restore(path, model, make_executor("resident"))
    (path / "model-00003-of-00005.safetensors").rename(path / "optimizer-00002-of-00005.safetensors")
    with raises(ValueError, code="damaged_checkpoint", match="model-00003-of-00005.safetensors"):
        restore(path, model, make_executor("resident"))


def test_saving_takes_no_more_memory_than_it_is_given(tmp_path: Path) -> None:
    executor = make_executor("mixed")
    budget = state_bytes(executor) // 10
    progress = Progress(1, 0, 0, {}, "", {}, executor.loss_scale)
    saving = start_save(tmp_path, folder_of(make_model()), executor, progress, buffer_bytes=budget)
    train(executor, 2)
    saving.finish()
    assert 0 < saving.peak_bytes <= budget
