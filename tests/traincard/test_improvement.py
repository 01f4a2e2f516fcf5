"""Did it improve? The answer for evaluations with and without a margin, and for runs that went wrong."""

from pathlib import Path

import pytest

from gpubloom.traincard import Reporter, snapshot
from gpubloom.traincard.improvement import judge, newest_by_step


@pytest.mark.parametrize(
    ("losses", "margins", "kinds", "verdict", "text"),
    [
        ({0: 2.0, 10: 1.8}, {10: 0.1}, [], "yes", "Yes"),
        ({0: 2.0, 10: 1.8}, {10: 0.3}, [], "unclear", "No clear change"),
        ({0: 2.0, 10: 2.2}, {10: 0.3}, [], "unclear", "No clear change"),
        ({0: 2.0, 10: 2.2}, {10: 0.1}, [], "no", "No: the eval loss rose"),
        ({0: 2.0, 10: 1.8, 20: 1.9}, {10: 0.1, 20: 0.05}, [], "yes", "Yes, up to step 10"),
        (
            {0: 2.0, 10: 1.8, 20: 1.9},
            {10: 0.1, 20: 0.1},
            ["overfitting"],
            "yes",
            "Yes, up to step 10; then it overfits",
        ),
        ({0: 2.0, 10: 1.8}, {10: 0.1}, ["diverging"], "no", "No: diverging"),
        ({0: 2.0, 10: 1.8}, {10: 0.1}, ["few_rows_used"], "no", "No: few rows used"),
        ({0: 2.0, 10: 1.995}, {}, [], "unclear", "No clear change"),
        ({0: 2.0, 10: 1.9}, {}, [], "yes", "Yes"),
        ({0: 2.0}, {}, [], "unclear", "Not clear: only one evaluation"),
    ],
)
def test_a_change_within_its_margin_is_no_clear_change(
    losses: dict[int, float], margins: dict[int, float], kinds: list[str], verdict: str, text: str
) -> None:
    changes = {step: losses[step] - losses[0] for step in margins}
    found = judge(losses, changes, margins, kinds)
    assert found is not None
    assert (found.verdict, found.text) == (verdict, text)
    assert found.has_best is (verdict == "yes" and kinds == [])


def test_a_run_that_was_not_evaluated_has_no_answer() -> None:
    assert judge({}, {}, {}, []) is None
    assert judge({5: float("nan")}, {}, {}, []) is None


def test_the_last_finite_evaluation_is_not_the_latest(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        for step, loss in {0: 3.0, 50: 1.5, 100: float("nan"), 150: float("inf")}.items():
            reporter.metric("eval/loss", loss, step)
    answer = snapshot(tmp_path)["improvement"]
    assert (answer["verdict"], answer["not_finite_since"]) == ("no", 100)
    assert answer["text"] == "No: the eval loss has not been finite since step 100"
    assert answer["latest"] == {"step": 50, "loss": 1.5}
    assert "last finite 1.5 at step 50" in answer["line"]


def test_an_attempt_that_resumes_before_the_nan_replaces_it() -> None:
    before = [(1, 0, 3.0), (1, 50, 2.0), (1, 100, float("nan"))]
    assert judge(newest_by_step(before), {}, {}, []).not_finite_since == 100  # type: ignore[union-attr]
    found = judge(newest_by_step([*before, (2, 60, 1.8)]), {}, {}, [])
    assert found is not None
    assert (found.not_finite_since, found.latest.step, found.verdict) == (None, 60, "yes")


def test_the_card_has_the_answer_with_its_interval_and_no_chart_of_it(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.metric("eval/loss", 2.0, 0)
        change = {"eval/loss_change": -0.5, "eval/loss_change_margin": 0.1}
        reporter.metrics({"eval/loss": 1.5, **change}, 40)
    found = snapshot(tmp_path)
    answer = found["improvement"]
    assert (answer["verdict"], answer["text"]) == ("yes", "Yes")
    assert (answer["low"], answer["high"]) == pytest.approx((-0.6, -0.4))
    assert answer["interval"] == "change -0.5, 95 % interval -0.6 to -0.4"
    assert [metric["name"] for metric in found["metrics"]] == ["eval/loss"]
