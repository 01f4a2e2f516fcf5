"""LoRA and QLoRA: the same bits wherever the base lives, what PEFT learns, and a base that nobody touches."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.models.lora import LoraBlocks, LoraSettings, LoraWeights, with_lora
from gpubloom.plan import OptimizerConfig
from gpubloom.plan.placement import BlockPlacement
from tests.engine.adapters import write_adapter
from tests.engine.placements.test_plain_pytorch import whole_model
from tests.engine.placements.training import (
    DEVICE,
    KEPT,
    STEPS,
    FromTensors,
    Trained,
    batch_of,
    cycled,
    learning_rate,
    run,
)

SETTINGS = LoraSettings(rank=4, alpha=8)
CLIP_NORM = 1e-3
OPTIMIZER = OptimizerConfig(weight_decay=0.1, clip_norm=CLIP_NORM)
STREAM = BlockPlacement(weights="stream")
STREAM_KEPT = BlockPlacement(weights="stream", keep=True)
# Adapters and their states stay on the device; it is the base that is transferred.
PLACEMENTS = {
    "resident, computed again": cycled(DEVICE),
    "streamed": cycled(STREAM),
    "streamed with its ends through two slots": cycled(STREAM, ends=STREAM, slots=2),
    "inputs in host memory": cycled(STREAM, offload_inputs=True),
    "mixed": cycled(STREAM, KEPT, STREAM_KEPT),
}


def adapted(name: str, **more: Any) -> Trained:
    base = Trained.family(name)
    model = with_lora(base.model, SETTINGS)
    return Trained(model, lambda: LoraWeights(model, base.source(), seed=4), optimizer=OPTIMIZER, **more)


def resident(trained: Trained) -> Any:
    return cycled(KEPT)(trained.model)


def base_of(executor: BlockExecutor) -> str:
    """A fingerprint of all frozen bytes, where they rest."""
    digest = hashlib.sha256()
    for store in executor.stores:
        assert store.has_adapters
        digest.update(store.heavy_home.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(("precision", "accumulation"), [("fp32", 1), ("bf16", 2)])
@pytest.mark.parametrize("quantized", [False, True], ids=["lora", "qlora"])
def test_adapters_learn_the_same_bits_wherever_the_base_lives(
    quantized: bool, precision: str, accumulation: int
) -> None:
    trained = adapted("llama", precision=precision, accumulation=accumulation, quantized=quantized)
    reference = trained.outcome(resident(trained), steps=8)
    assert min(reference.norms) > CLIP_NORM
    for name, placement in PLACEMENTS.items():
        executor = trained.executor(placement(trained.model))
        before = base_of(executor)
        run(executor, 8, accumulation).assert_same(reference, name)
        assert base_of(executor) == before, name


@pytest.mark.parametrize("quantized", [False, True], ids=["lora", "qlora"])
@pytest.mark.parametrize("name", ["own", "own tied", "qwen3", "gemma2", "phi", "gpt2", "falcon"])
def test_adapters_of_every_family_learn_the_same_bits(name: str, quantized: bool) -> None:
    trained = adapted(name, quantized=quantized)
    reference = trained.outcome(resident(trained), steps=5)
    trained.outcome(PLACEMENTS["mixed"](trained.model), steps=5).assert_same(reference, name)


def in_peft(name: str, model: LoraBlocks, executor: BlockExecutor, base: Any) -> Any:
    """PEFT's own model on the same base, with the adapters that the executor begins with."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=SETTINGS.rank,
        lora_alpha=SETTINGS.alpha,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        fan_in_fan_out=name == "gpt2",
    )
    peft = get_peft_model(base, config).eval()
    targets = {
        parameter_name.replace(".default.", ".").removeprefix("base_model.model."): parameter
        for parameter_name, parameter in peft.named_parameters()
        if parameter.requires_grad
    }
    ours = adapters_of(model, executor)
    assert targets.keys() == ours.keys()
    with torch.no_grad():
        for parameter_name, parameter in targets.items():
            parameter.copy_(ours[parameter_name])
    return peft


def adapters_of(model: LoraBlocks, executor: BlockExecutor) -> dict[str, Tensor]:
    executor.settle()
    return {
        model.parameter_name(store.spec, spec): tensor
        for store in executor.stores
        for spec, tensor in zip(store.trained.tensors, store.trained.views(store.master), strict=True)
    }


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2", "phi", "gpt2", "falcon"])
def test_losses_are_those_of_peft_within_a_hundred_thousandth(name: str) -> None:
    base = whole_model(name)
    plain = Trained.family(name).model
    model = with_lora(plain, SETTINGS)
    source = LoraWeights(model, FromTensors(plain, dict(base.named_parameters())), seed=4)
    executor = Trained(model, lambda: source, optimizer=OPTIMIZER).executor(PLACEMENTS["mixed"](model))
    peft = in_peft(name, model, executor, base)
    trained = [parameter for parameter in peft.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, betas=(0.9, 0.95), eps=OPTIMIZER.eps, weight_decay=OPTIMIZER.weight_decay, foreach=False
    )
    expected = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        optimizer.zero_grad()
        batch = batch_of(step)
        logits_BVT = peft(batch.tokens_ABT[0], use_cache=False).logits.transpose(1, 2)
        loss = cross_entropy(logits_BVT, batch.targets_ABT[0])
        loss.backward()
        assert torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM) > CLIP_NORM
        optimizer.step()
        expected.append(loss.item())
    assert run(executor).losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_qlora_learns_leaves_its_base_alone_and_peft_computes_the_same_with_its_adapters(
    name: str, tmp_path: Path
) -> None:
    from peft import PeftModel

    trained = adapted(name, quantized=True)
    model = trained.model
    assert isinstance(model, LoraBlocks)
    executor = trained.executor(PLACEMENTS["streamed"](model))
    before, batch = base_of(executor), batch_of(0)
    first, _ = executor.evaluate(batch)
    for _ in range(STEPS):
        executor.forward_backward(batch)
        executor.optimizer_step(1e-2)
    last, _ = executor.evaluate(batch)
    assert float(last) < 0.97 * float(first)
    assert base_of(executor) == before

    write_adapter(tmp_path, model, adapters_of(model, executor))
    reference = whole_model(name)
    states = dict(reference.named_parameters())
    for store in executor.stores:
        out = torch.empty(store.heavy_length) if store.is_quantized else None
        frozen = store.frozen.views(store.decode(store.heavy_home, out))
        for spec, tensor in zip(store.frozen.tensors, frozen, strict=True):
            states[model.parameter_name(store.spec, spec)].data.copy_(tensor)
    peft = PeftModel.from_pretrained(reference, tmp_path).eval()
    with torch.no_grad():
        logits_BVT = peft(batch.tokens_ABT[0]).logits.transpose(1, 2)
        theirs = cross_entropy(logits_BVT, batch.targets_ABT[0], reduction="sum")
    assert float(last) == pytest.approx(float(theirs), rel=1e-5)
