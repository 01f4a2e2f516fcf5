"""The engine learns what a plain PyTorch loop learns: transformers' whole model and torch's own AdamW."""

from typing import Any

import pytest
import torch

from tests.engine.models.families import FAMILIES, config_of, model_of
from tests.engine.placements.training import (
    CLIP_NORM,
    OPTIMIZER,
    STEPS,
    FromTensors,
    Trained,
    batch_of,
    learning_rate,
)


def whole_model(name: str) -> Any:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config_of(name), dtype=torch.float32).eval()


def plain_losses(model: Any) -> list[float]:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
        betas=(OPTIMIZER.beta1, OPTIMIZER.beta2),
        eps=OPTIMIZER.eps,
        weight_decay=OPTIMIZER.weight_decay,
        foreach=False,
    )
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        batch = batch_of(step)
        logits_BVT = model(batch.tokens_ABT[0], use_cache=False).logits.transpose(1, 2)
        loss = torch.nn.functional.cross_entropy(logits_BVT, batch.targets_ABT[0])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        assert norm > CLIP_NORM, f"step {step} was not clipped"
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", FAMILIES)
def test_losses_are_those_of_plain_pytorch_within_a_hundred_thousandth(name: str) -> None:
    reference = whole_model(name)
    model = model_of(name)
    source = FromTensors(model, dict(reference.named_parameters()))
    outcome = Trained(model, lambda: source).outcome("mixed")
    expected = plain_losses(reference)
    assert outcome.learnt
    assert outcome.losses == pytest.approx(expected, rel=1e-5)
