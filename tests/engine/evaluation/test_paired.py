"""How sure a change of the eval loss is: figures by hand, simulated coverage, and a run that resumes."""

import json
import random
from collections.abc import Callable

import pytest

from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.evaluation.paired import BatchLosses, PairedChange, batches_for_pairs
from tests.engine.runs import Run


def test_the_change_is_that_of_the_means_and_the_margin_that_of_a_paired_t_test() -> None:
    before = BatchLosses.of([20.0, 40.0, 30.0], [10, 10, 10])
    after = BatchLosses.of([18.0, 37.0, 29.0], [10, 10, 10])
    found = after.change_since(before)
    assert found is not None
    # Differences per token: -0.2, -0.3, -0.1; their deviation is 0.1, and t(2) is 4.303.
    assert found == pytest.approx((-0.2, 4.303 * 0.1 / 3**0.5))


@pytest.mark.parametrize("tokens", [[10, 10], [10, 11, 10]])
def test_other_batches_cannot_be_paired(tokens: list[int]) -> None:
    before = BatchLosses.of([20.0, 40.0, 30.0], [10, 10, 10])
    assert BatchLosses.of([1.0] * len(tokens), tokens).change_since(before) is None
    assert BatchLosses.of([1.0], [10]).change_since(BatchLosses.of([2.0], [10])) is None


def test_a_change_of_nothing_lies_within_its_margin_in_nineteen_of_twenty_cases() -> None:
    """The losses of batches lie far apart; unpaired, no small change could ever be seen."""
    generator = random.Random(7)
    inside = 0
    for _ in range(1_000):
        tokens = [generator.randint(50, 200) for _ in range(12)]
        base = [generator.uniform(1, 5) * count for count in tokens]
        before = BatchLosses.of([each + generator.gauss(0, 2) for each in base], tokens)
        after = BatchLosses.of([each + generator.gauss(0, 2) for each in base], tokens)
        found = after.change_since(before)
        assert found is not None
        inside += abs(found[0]) <= found[1]
    assert 930 <= inside <= 980


def test_a_small_set_is_evaluated_in_more_and_smaller_batches() -> None:
    assert batches_for_pairs(160, 8, 20) == (8, 20)
    assert batches_for_pairs(20, 8, 20) == (2, 10)
    assert batches_for_pairs(6, 8, 20) == (1, 6)
    assert batches_for_pairs(1_000, 8, 20) == (8, 20)


def changes(run: Run) -> dict[int, float]:
    return {
        event["step"]: event["values"]["eval/loss_change"]
        for event in run.events("metric")
        if "eval/loss_change" in event["values"]
    }


def test_a_resumed_run_compares_with_its_first_evaluation(make_run: Callable[..., Run]) -> None:
    fields = {"max_steps": 12, "eval": {"every_steps": 4}, "learning_rate": 3e-3}
    straight, stopped = make_run("straight", **fields), make_run("stopped", **fields)
    straight.train()
    stopped.train(stop_at=6)
    stopped.train(resume=True)
    assert changes(stopped) == changes(straight)
    losses = {
        event["step"]: event["values"]["eval/loss"]
        for event in straight.events("metric")
        if "eval/loss" in event["values"]
    }
    assert changes(straight) == pytest.approx({8: losses[8] - losses[4], 12: losses[12] - losses[4]})


def test_a_checkpoint_of_an_earlier_version_makes_no_false_pairs(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=12, eval={"every_steps": 4})
    run.train(stop_at=6)
    known = changes(run)
    (path,) = list_checkpoints(run.folder / "checkpoints")
    progress = json.loads((path / "training.json").read_text())
    paired = PairedChange()
    paired.restore({})
    assert progress["first_evaluation"]["losses"]
    assert paired.add(BatchLosses.of([1.0, 2.0], [1, 1])) == {}
    assert paired.add(BatchLosses.of([1.5, 2.0], [1, 1])) == {}
    assert known == {}
