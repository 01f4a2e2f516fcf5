"""Moments in bf16 and 8 bits: the same bits wherever they live, resumed exactly, a loss like that of FP32."""

from pathlib import Path

import pytest

from gpubloom.engine.checkpoint import read_checkpoint
from gpubloom.plan import OptimizerConfig
from tests.engine.placements.test_resuming import folder_of, save
from tests.engine.placements.training import (
    CLIP_NORM,
    PLACEMENTS,
    REFERENCE,
    Outcome,
    Trained,
    run,
    state_of,
    train,
)

STATES = ("bf16", "8bit")


def settings(state: str) -> OptimizerConfig:
    return OptimizerConfig.model_validate({"state": state, "weight_decay": 0.1, "clip_norm": CLIP_NORM})


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_placement_gives_the_same_bits(state: str, precision: str) -> None:
    trained = Trained.own(tied=False, precision=precision, optimizer=settings(state))
    reference = trained.outcome(REFERENCE, steps=5)
    for placement in PLACEMENTS:
        trained.outcome(placement, steps=5).assert_same(reference, placement)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("state", STATES)
def test_a_run_resumed_under_another_placement_learns_the_same_bits(
    state: str, precision: str, tmp_path: Path
) -> None:
    trained = Trained.own(tied=False, precision=precision, optimizer=settings(state))
    whole = trained.outcome("streamed", steps=10)
    executor = trained.executor("link with its ends")
    losses, norms = train(executor, range(6))
    saved = save(tmp_path, trained, executor, 6)
    executor = trained.executor("mixed")
    read_checkpoint(saved, folder_of(trained)).restore(executor)
    more = train(executor, range(6, 10))
    Outcome(losses + more[0], norms + more[1], state_of(executor)).assert_same(whole, state)


@pytest.mark.long
@pytest.mark.parametrize(("state", "tolerance"), [("bf16", 0.002), ("8bit", 0.01)])
def test_the_loss_falls_like_that_of_fp32(state: str, tolerance: float) -> None:
    exact, rounded = (
        run(Trained.own(tied=False, optimizer=settings(each)).executor("streamed"), 120).losses
        for each in ("fp32", state)
    )
    assert sum(exact[-10:]) < 0.95 * sum(exact[:10]), "there was something to learn"
    assert sum(rounded[-10:]) == pytest.approx(sum(exact[-10:]), rel=tolerance)
