"""Muon and Adafactor: what torch and transformers learn with them, the same bits wherever the state lives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine.checkpoint import read_checkpoint
from gpubloom.engine.models.lora import LoraWeights, with_lora
from gpubloom.plan import OptimizerConfig
from tests.engine.models.families import model_of
from tests.engine.placements.test_adapters import PLACEMENTS as ADAPTER_PLACEMENTS
from tests.engine.placements.test_adapters import SETTINGS, in_peft, resident
from tests.engine.placements.test_plain_pytorch import whole_model
from tests.engine.placements.test_resuming import folder_of, save
from tests.engine.placements.training import (
    CLIP_NORM,
    PLACEMENTS,
    REFERENCE,
    STEPS,
    FromTensors,
    Outcome,
    Trained,
    batch_of,
    learning_rate,
    run,
    state_of,
    train,
)
from tests.errors import raises

OTHERS = ("muon", "adafactor")


def settings(name: str) -> OptimizerConfig:
    return OptimizerConfig.model_validate({"name": name, "weight_decay": 0.1, "clip_norm": CLIP_NORM})


def muon(matrices: list[Any], ends: list[Any], vectors: list[Any]) -> list[torch.optim.Optimizer]:
    """Matrices of decoder layers with Muon, all others with AdamW, as papers about Muon do."""
    config = settings("muon")
    rest = [{"params": ends, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return [
        torch.optim.Muon(
            matrices, momentum=config.momentum, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        ),
        *(
            [torch.optim.AdamW(rest, betas=(config.beta1, config.beta2), eps=config.eps, foreach=False)]
            if ends or vectors
            else []
        ),
    ]


def adafactor(matrices: list[Any], ends: list[Any], vectors: list[Any]) -> list[torch.optim.Optimizer]:
    from transformers.optimization import Adafactor

    groups = [
        {"params": [*matrices, *ends], "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [
        Adafactor(
            [group for group in groups if group["params"]],
            lr=1e-3,
            scale_parameter=False,
            relative_step=False,
            warmup_init=False,
        )
    ]


REFERENCES: dict[str, Callable[..., list[torch.optim.Optimizer]]] = {"muon": muon, "adafactor": adafactor}


def reference_losses(model: Any, name: str) -> list[float]:
    """A plain PyTorch loop with somebody else's optimizer."""
    trained = [(key, value) for key, value in model.named_parameters() if value.requires_grad]
    at_ends = ("embed", "lm_head", "wte", "wpe")
    ends = [value for key, value in trained if value.ndim > 1 and any(word in key for word in at_ends)]
    inside = [value for _, value in trained if value.ndim > 1 and not any(value is end for end in ends)]
    vectors = [value for _, value in trained if value.ndim == 1]
    optimizers = REFERENCES[name](inside, ends, vectors)
    losses = []
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step)
        batch = batch_of(step)
        logits_BVT = model(batch.tokens_ABT[0], use_cache=False).logits.transpose(1, 2)
        loss = torch.nn.functional.cross_entropy(logits_BVT, batch.targets_ABT[0])
        loss.backward()
        torch.nn.utils.clip_grad_norm_([value for _, value in trained], CLIP_NORM)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("name", "tolerance"), [("muon", 1e-4), ("adafactor", 1e-4)])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_losses_are_those_of_the_reference(family: str, name: str, tolerance: float) -> None:
    reference = whole_model(family)
    model = model_of(family)
    source = FromTensors(model, dict(reference.named_parameters()))
    outcome = Trained(model, lambda: source, optimizer=settings(name)).outcome("mixed")
    assert outcome.learnt
    assert outcome.losses == pytest.approx(reference_losses(reference, name), rel=tolerance)


@pytest.mark.parametrize(("name", "tolerance"), [("muon", 1e-4), ("adafactor", 1e-4)])
def test_adapters_learn_what_they_learn_in_peft(name: str, tolerance: float) -> None:
    base = whole_model("llama")
    plain = Trained.family("llama").model
    model = with_lora(plain, SETTINGS)
    source = LoraWeights(model, FromTensors(plain, dict(base.named_parameters())), seed=4)
    trained = Trained(model, lambda: source, optimizer=settings(name))
    executor = trained.executor(ADAPTER_PLACEMENTS["mixed"](model))
    peft = in_peft("llama", model, executor, base)
    assert run(executor).losses == pytest.approx(reference_losses(peft, name), rel=tolerance)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("quantized", [False, True], ids=["lora", "qlora"])
def test_adapters_learn_the_same_bits_wherever_the_base_lives(quantized: bool, name: str) -> None:
    base = Trained.family("llama")
    model = with_lora(base.model, SETTINGS)
    trained = Trained(
        model,
        lambda: LoraWeights(model, base.source(), seed=4),
        optimizer=settings(name),
        quantized=quantized,
    )
    reference = trained.outcome(resident(trained), steps=5)
    trained.outcome(ADAPTER_PLACEMENTS["mixed"](model), steps=5).assert_same(reference, name)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_placement_gives_the_same_bits(name: str, precision: str) -> None:
    trained = Trained.own(tied=False, precision=precision, optimizer=settings(name))
    reference = trained.outcome(REFERENCE, steps=6)
    for placement in PLACEMENTS:
        trained.outcome(placement, steps=6).assert_same(reference, placement)


@pytest.mark.parametrize("name", OTHERS)
def test_experts_are_matrices_of_their_own(name: str) -> None:
    trained = Trained.family("qwen3_moe", optimizer=settings(name))
    reference = trained.outcome(REFERENCE, steps=6)
    assert all(torch.isfinite(part).all() for part in reference.state)
    trained.outcome("streamed whole", steps=6).assert_same(reference, name)


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_resumed_under_another_placement_learns_the_same_bits(name: str, tmp_path: Path) -> None:
    trained = Trained.own(tied=False, optimizer=settings(name))
    whole = trained.outcome("streamed", steps=10)
    executor = trained.executor("resident, kept")
    losses, norms = train(executor, range(6))
    saved = save(tmp_path, trained, executor, 6)
    executor = trained.executor("mixed")
    read_checkpoint(saved, folder_of(trained)).restore(executor)
    more = train(executor, range(6, 10))
    Outcome(losses + more[0], norms + more[1], state_of(executor)).assert_same(whole, name)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    trained = Trained.own(tied=False, optimizer=settings("muon"))
    saved = save(tmp_path, trained, trained.executor("streamed"), 1)
    other = Trained.own(tied=False, optimizer=settings("adafactor"))
    with raises(ValueError, code="checkpoint_other_optimizer", match="muon.*adafactor"):
        read_checkpoint(saved, folder_of(other)).restore(other.executor("streamed"))


def test_state_is_as_small_as_each_optimizer_allows() -> None:
    sizes = {}
    for name in ("adamw", *OTHERS):
        executor = Trained.own(tied=False, optimizer=settings(name)).executor("streamed")
        layer = executor.stores[1]
        sizes[name] = (len(layer.first) + len(layer.second)) / layer.trained.length
    assert sizes["adamw"] == 2
    assert 1 < sizes["muon"] < 1.1
    # A few rows and columns, each rounded up to 64: much of so small a layer, almost nothing of a real one.
    assert sizes["adafactor"] < 0.7
