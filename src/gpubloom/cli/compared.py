"""Runs to be compared, from their directories or from a server: what differs, what came of it, a curve."""

import math
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from gpubloom.cli.chart import Line
from gpubloom.cli.run_folder import must_be_run
from gpubloom.cli.run_view import mean_line
from gpubloom.plan.config import read_json
from gpubloom.plan.differences import Difference, differences
from gpubloom.traincard import Reading
from gpubloom.traincard.number_encoding import decode_number

_POINTS = 400


@dataclass(frozen=True)
class Run:
    """`figures` by their names, in the order they are shown; None where a run has none."""

    name: str
    status: str
    figures: dict[str, float | None]
    curve: Line


@dataclass(frozen=True)
class Comparison:
    """Runs, and the fields of their configs that are not the same in all."""

    runs: list[Run]
    differences: list[Difference]


def compare_directories(folders: list[Path], series: str) -> Comparison:
    """Run directories of this machine; ValueError with a sentence when one is none."""
    for folder in folders:
        must_be_run(folder, "config.json")
    configs = [read_json(folder / "config.json") for folder in folders]
    return Comparison([_read(folder, series) for folder in folders], differences(configs))


def _read(folder: Path, series: str) -> Run:
    reading = Reading(folder)
    reading.update()
    state = reading.state

    def last(name: str) -> float | None:
        found = state.values.get(name)
        value = decode_number(found["value"]) if found else None
        return float(value) if isinstance(value, int | float) else None

    evaluations = reading.curves.attempts("eval/loss").values()
    spans = [
        attempt.last_t - attempt.started_at
        for attempt in reading.attempts.values()
        if attempt.started_at is not None and attempt.last_t is not None
    ]
    figures = {
        "final train loss": last("train/loss"),
        "final eval loss": last("eval/loss"),
        # A bucket without a finite value has none that is lowest: its NaN would hide all others.
        "best eval loss": min(
            (low for curve in evaluations for low in curve.low if not math.isnan(low)), default=None
        ),
        "steps": state.step,
        "tokens": last("train/tokens_seen"),
        "tokens/s, at the end": last("train/tokens_per_second"),
        "seconds": sum(spans) if spans else None,
    }
    return Run(folder.resolve().name, reading.status, figures, _curve(reading, series))


def _curve(reading: Reading, series: str) -> Line:
    return mean_line(reading.curves.attempts(series).values())


def compare_jobs(job_ids: list[str], series: str) -> Comparison:
    """Jobs of the server that `bloom login` knows."""
    from gpubloom.cli.api_client import call

    answer = call("GET", "/compare?" + urlencode([("job", job_id) for job_id in job_ids]))
    runs = []
    for job, outcome in zip(answer["jobs"], answer["outcomes"], strict=True):
        query: dict[str, str | int] = {"series": series, "points": _POINTS}
        curves = call("GET", f"/training-jobs/{job['id']}/metrics", query=query)["series"]
        pieces = [list(zip(curve["x"], curve["value"], strict=True)) for curve in curves]
        figures = {
            "final train loss": decode_number(outcome["final"].get("train/loss")),
            "final eval loss": decode_number(outcome["final"].get("eval/loss")),
            "best eval loss": outcome["bestEvalLoss"],
            "steps": outcome["steps"],
            "tokens": outcome["tokens"],
            "tokens/s": outcome["tokensPerSecond"],
            "seconds": outcome["seconds"],
        }
        runs.append(Run(job["name"], job["status"], figures, Line(pieces)))
    found = [Difference(each["path"], tuple(each["values"])) for each in answer["differences"]]
    return Comparison(runs, found)
