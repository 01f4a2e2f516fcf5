"""Runs side by side: one implementation for the command line, the server and a folder. Takes every run."""

from collections.abc import Sequence

from gpubloom.plan.comparison import BEST_SERIES, SPEED_SERIES, field_differences, outcome
from gpubloom.runs.schemas import Comparison, Difference, Outcome
from gpubloom.runs.stats import MetricStats
from gpubloom.runs.table import Run
from gpubloom.traincard.number_encoding import encode_number


def compare(runs: Sequence[Run]) -> Comparison:
    """How the configs of runs differ, and what came of each."""
    different = {each.path: each for each in field_differences([run.config for run in runs])}
    paths = dict.fromkeys(path for run in runs for path in run.config)
    facts = field_differences([run.facts for run in runs])
    return Comparison(
        outcomes=[_outcome(run) for run in runs],
        differences=[Difference(path=each.path, values=list(each.values)) for each in different.values()],
        # A fact that says the same as a config field is no second difference.
        fact_differences=[
            Difference(path=each.path, values=list(each.values)) for each in facts if each.path not in paths
        ],
        equal=[
            Difference(path=path, values=[next(run.config.get(path) for run in runs if run.config)])
            for path in paths
            if path not in different
        ],
    )


def _outcome(run: Run) -> Outcome:
    stats = {name: MetricStats.from_list(stored) for name, stored in run.stats.items()}
    speed, best = stats.get(SPEED_SERIES, MetricStats()), stats.get(BEST_SERIES, MetricStats())
    found = outcome(
        values={name: {"step": each.step, "value": encode_number(each.last)} for name, each in stats.items()},
        steps=run.step,
        best_eval_loss=best.min,
        speed_total=speed.total,
        speed_count=speed.count,
        seconds=run.seconds,
    )
    return Outcome.of(run, found, best.min_step)
