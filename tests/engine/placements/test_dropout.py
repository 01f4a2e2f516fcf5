"""Dropout of adapters: the same bits wherever the base lives and after any stop; none in evaluation."""

import pytest
import torch
from torch import Tensor

from gpubloom.engine.models.dropout import Dropout, leave_out, salt_of
from gpubloom.engine.models.lora import LoraSettings, LoraWeights, with_lora
from tests.engine.placements.test_adapters import OPTIMIZER, PLACEMENTS, resident
from tests.engine.placements.training import KEPT, Trained, batch_of, cycled, run, state_of, train


def adapted(name: str, dropout: float, *, accumulation: int = 1, quantized: bool = False) -> Trained:
    base = Trained.family(name)
    model = with_lora(base.model, LoraSettings(rank=4, alpha=8, dropout=dropout), seed=5)
    return Trained(
        model,
        lambda: LoraWeights(model, base.source(), seed=4),
        optimizer=OPTIMIZER,
        accumulation=accumulation,
        quantized=quantized,
    )


@pytest.mark.parametrize(
    ("name", "quantized"), [("llama", False), ("llama", True), ("own tied", False), ("gpt2", False)]
)
def test_what_is_left_out_is_the_same_wherever_the_base_lives(name: str, quantized: bool) -> None:
    trained = adapted(name, 0.3, accumulation=2, quantized=quantized)
    reference = trained.outcome(resident(trained), steps=6)
    for where, placement in PLACEMENTS.items():
        run(trained.executor(placement(trained.model)), 6, 2).assert_same(reference, where)
    without = adapted(name, 0.0, accumulation=2, quantized=quantized)
    assert without.outcome(resident(without), steps=6).losses != reference.losses


def test_what_is_left_out_is_the_same_after_a_stop() -> None:
    trained = adapted("llama", 0.3)
    whole = trained.executor(resident(trained))
    losses, _ = train(whole, range(6))
    first = trained.executor(resident(trained))
    train(first, range(3))
    saved = state_of(first)
    second = trained.executor(cycled(KEPT)(trained.model))
    names = [getattr(store, part) for store in second.stores for part in ("master", "first", "second")]
    for where, tensor in zip(names, saved, strict=True):
        where.copy_(tensor)
    second.continue_from(3, {})
    assert train(second, range(3, 6))[0] == losses[3:]


def test_evaluation_leaves_nothing_out() -> None:
    found = []
    for dropout in (0.0, 0.5):
        trained = adapted("llama", dropout)
        executor = trained.executor(resident(trained))
        for store in executor.stores:
            store.master.fill_(0.01)
        executor.weights_changed()
        loss, correct = executor.evaluate(batch_of(0))
        found.append((float(loss), int(correct)))
    assert found[0] == found[1]


def mask(draw: Tensor, target: str = "self_attn.q_proj") -> Tensor:
    return leave_out(torch.ones(4, 128, 512), draw, salt_of(target)) == 0


def test_the_share_that_is_left_out_is_the_one_asked_for_and_the_rest_makes_up_for_it() -> None:
    for rate in (0.05, 0.5, 0.9):
        draw = Dropout(rate, seed=1).draws(7, 1, [0], training=True)[0, 0]
        kept = leave_out(torch.ones(4, 128, 512), draw, salt_of("q_proj"))
        assert float((kept == 0).float().mean()) == pytest.approx(rate, abs=0.005)
        assert float(kept.mean()) == pytest.approx(1.0, abs=0.02)
        # Neither whole positions nor whole channels are left out together.
        assert float((kept == 0).float().mean(-1).std()) < 2 * (rate * (1 - rate) / 512) ** 0.5
        assert float((kept == 0).float().mean((0, 1)).std()) < 2 * (rate * (1 - rate) / 512) ** 0.5


def test_steps_layers_micro_batches_and_targets_leave_out_different_values() -> None:
    dropout = Dropout(0.2, seed=1)
    draws = dropout.draws(7, 2, [0, 4_096], training=True)
    masks = [mask(draws[layer, batch]) for layer in range(2) for batch in range(2)]
    masks.append(mask(dropout.draws(8, 2, [0, 4_096], training=True)[0, 0]))
    masks.append(mask(Dropout(0.2, seed=2).draws(7, 2, [0, 4_096], training=True)[0, 0]))
    masks.append(mask(draws[0, 0], "self_attn.k_proj"))
    correlation = torch.corrcoef(torch.stack([each.flatten().float() for each in masks]))
    assert float((correlation - torch.eye(len(masks))).abs().max()) < 0.01
    assert torch.equal(mask(draws[0, 0]), mask(dropout.draws(7, 2, [0, 4_096], training=True)[0, 0]))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_compiled_or_not_the_same_values_are_left_out() -> None:
    draws = Dropout(0.2, seed=1).draws(7, 2, [0], training=True)
    x = torch.randn(2, 16, 48)
    compiled = torch.compile(leave_out, dynamic=False, fullgraph=True)
    for layer in range(2):
        assert torch.equal(compiled(x, draws[layer, 0], 3), leave_out(x, draws[layer, 0], 3))
