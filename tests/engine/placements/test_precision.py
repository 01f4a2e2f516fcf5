"""bf16 and fp16 on a CPU: the same bits everywhere, weights in FP32, and what an overflow does."""

import json
import math
from collections.abc import Callable

import pytest
import torch

from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.trainer import Trainer
from gpubloom.plan import detect_hardware
from tests.engine.placements.training import (
    CLIP_NORM,
    HOST,
    PLACEMENTS,
    REFERENCE,
    Trained,
    batch_of,
    cycled,
    learning_rate,
    run,
    state_of,
)
from tests.engine.runs import Run
from tests.errors import raises

# A gradient takes the place of the weights that the step no longer needs.
SHARED = cycled(HOST, ends=HOST, share_gradients=True)
# Twice what a gradient in fp16 can hold.
TOO_LARGE = 2.0**40


@pytest.mark.long
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_own_llama_learns_the_same_bits_under_every_placement(precision: str, accumulation: int) -> None:
    trained = Trained.own(tied=accumulation == 1, precision=precision, accumulation=accumulation)
    reference = trained.outcome(REFERENCE, steps=6)
    assert min(reference.norms) > CLIP_NORM
    for name, placement in (PLACEMENTS | {"shared": SHARED}).items():
        if name != REFERENCE:
            trained.outcome(placement(trained.model), steps=6).assert_same(reference, name)


@pytest.mark.parametrize("name", ["qwen3", "gemma2", "gpt2", "qwen3_moe"])
def test_families_learn_the_same_bits_in_bf16(name: str) -> None:
    trained = Trained.family(name, precision="bf16", accumulation=2)
    reference = trained.outcome(REFERENCE, steps=4)
    for placement in ("streamed whole", "mixed otherwise"):
        trained.outcome(placement, steps=4).assert_same(reference, placement)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_updates_too_small_for_the_precision_of_computing_are_not_lost(precision: str) -> None:
    trained = Trained.own(tied=False, precision=precision)
    executor = trained.executor("streamed")
    before = state_of(executor)[0].clone()
    for step in range(4):
        executor.forward_backward(batch_of(step))
        executor.optimizer_step(1e-7)
    master = state_of(executor)[0]
    assert master.dtype == torch.float32
    moved = master != before
    assert moved.float().mean() > 0.5
    dtype = executor.stores[0].dtype
    unseen = moved & (master.to(dtype) == before.to(dtype))
    assert unseen.sum() > 0.9 * moved.sum()


@pytest.mark.parametrize("placement", [REFERENCE, "streamed whole", "link", "mixed otherwise", "shared"])
def test_an_overflowing_step_is_dropped_the_scale_halves_and_training_goes_on(placement: str) -> None:
    trained = Trained.own(tied=False, precision="fp16")
    executor = trained.executor((PLACEMENTS | {"shared": SHARED})[placement](trained.model))
    executor.continue_from(0, {"value": TOO_LARGE, "good": 5})
    before = state_of(executor)
    loss = float(executor.forward_backward(batch_of(0)))
    norm = float(executor.optimizer_step(learning_rate(0)))
    assert math.isfinite(loss)
    assert not math.isfinite(norm)
    assert executor.loss_scale == {"value": TOO_LARGE / 2, "good": 0}
    assert executor.updates == 0
    assert all(torch.equal(one, two) for one, two in zip(before, state_of(executor), strict=True))
    assert float(executor.forward_backward(batch_of(0))) == loss
    while executor.updates == 0:
        executor.forward_backward(batch_of(0))
        executor.optimizer_step(learning_rate(0))
    assert executor.loss_scale["value"] < TOO_LARGE / 4
    outcome = run(executor)
    assert executor.updates == 1 + sum(map(math.isfinite, outcome.norms)) > 15
    assert outcome.learnt


def test_the_scale_of_fp16_changes_no_update() -> None:
    trained = Trained.own(tied=False, precision="fp16")
    losses = []
    for value in (2.0**8, 2.0**10):
        executor = trained.executor("streamed")
        executor.continue_from(0, {"value": value, "good": 0})
        losses.append(run(executor, 8).losses)
    # A smaller scale may lose the smallest gradients, and nothing else.
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_fp16_that_overflows_without_any_scale_says_what_to_do() -> None:
    executor = Trained.own(tied=False, precision="fp16").executor("streamed")
    executor.continue_from(0, {"value": 1.0, "good": 0})
    executor.stores[1].master.fill_(1e4)
    executor.weights_changed()
    executor.forward_backward(batch_of(0))
    with raises(FloatingPointError, code="not_finite", match="bf16 or fp32"):
        executor.optimizer_step(1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_reports_the_precision_it_computes_in(make_run: Callable[..., Run], precision: str) -> None:
    run = make_run(max_steps=2, precision=precision)
    trainer = run.train()
    latest = json.loads((run.folder / "traincard" / "latest.json").read_text())
    assert latest["facts"]["precision"] == f"{precision}: set in the config"
    assert trainer.executor.stores[1].dtype == choose_compute("cpu", precision).dtype  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "precision"), [(256, "bf16"), (128, "fp32")])
def test_a_cpu_with_instructions_for_bf16_computes_wide_layers_with_them(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, width: int, precision: str
) -> None:
    able = detect_hardware().model_copy(update={"cpu_bf16": True})
    monkeypatch.setattr("gpubloom.engine.device_placement.detect_hardware", lambda: able)
    model = {"preset": "nano", "context_length": 32, "hidden_size": width, "layers": 1}
    run = make_run(max_steps=1, model=model)
    executor = run.train().executor
    assert executor.stores[1].dtype == choose_compute("cpu", precision).dtype  # type: ignore[arg-type]
    assert executor.stores[1].master.dtype == torch.float32


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_after_a_loss_that_is_no_number_the_checkpoint_before_continues_exactly(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    settings = {"max_steps": 8, "checkpoint": {"every_steps": 3}, "precision": precision}
    whole, broken = make_run("whole", **settings), make_run("broken", **settings)
    whole.train()
    original = Trainer.train_step

    def poison(self: Trainer, batch: object) -> float:
        if self.step == 4:
            self.executor.stores[1].master.fill_(float("nan"))
            self.executor.weights_changed()
        return original(self, batch)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", poison)
        with raises(FloatingPointError, code="not_finite", match="nan at step 5.*00000003"):
            broken.train()
    assert [path.name for path in list_checkpoints(broken.folder / "checkpoints")] == ["step-00000003"]
    assert broken.train(resume=True).status == "completed"
    assert broken.losses() == whole.losses()
    assert broken.weights() == whole.weights()
