"""All that a card shows, as plain JSON (docs/traincard.md, "The snapshot")."""

import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from gpubloom.traincard.causes import CAUSES, FOLLOWS
from gpubloom.traincard.diagnosis import diagnose
from gpubloom.traincard.findings import has_no_best
from gpubloom.traincard.improvement import CHANGE, MARGIN, improvement_of
from gpubloom.traincard.number_encoding import finite_or_none, plain
from gpubloom.traincard.reader import load_latest
from gpubloom.traincard.reading import LogLine, Reading, last_output
from gpubloom.traincard.series import Curve
from gpubloom.traincard.system_series import shorter_or_same, system_section
from gpubloom.traincard.thinning import line_of, shorter, shown
from gpubloom.traincard.what_ran import with_train_config

SNAPSHOT_VERSION = 1
_MOST_METRICS = 400
_MOST_RANK_LINES = 16
# All lines together: a snapshot is sent again every few seconds.
_MOST_POINTS_TOGETHER = 120_000
_FEWEST_POINTS = 50
# Between two of them a run goes at an even pace, as far as a chart can show.
CLOCK_POINTS = 200

# The last part of a series' name, and where a card shows it.
_GROUPS = {
    "loss": "loss",
    "perplexity": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "gradient_norm",
    "tokens_per_second": "throughput",
    "samples_per_second": "throughput",
    "steps_per_second": "throughput",
    "step_seconds": "throughput",
    "data_seconds": "throughput",
    "accuracy": "accuracy",
    "acc": "accuracy",
}
_ORDER = ("loss", "evaluation", "learning_rate", "gradient_norm", "throughput", "accuracy", "other")
_ENDED_BADLY = frozenset({"failed", "killed", "preempted", "interrupted"})


def snapshot(
    run: str | os.PathLike[str] | Reading,
    points: int = 2000,
    *,
    log_lines: int | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """A run as it stands. `run`: its directory, or a Reading of it that was brought up to date.

    `log_lines`: how many of the last lines at most, by default all that a Reading keeps.
    """
    if isinstance(run, Reading):
        reading = run
    else:
        reading = Reading(run)
        reading.update()
    moment = reading.now() if now is None else now
    metrics, left_out = _metrics(reading, points)
    skipped = 0 if log_lines is None else max(0, len(reading.log) - log_lines)
    findings = [_without_nan(finding.as_dict()) for finding in diagnose(reading, moment)]
    improvement = improvement_of(reading, [each["kind"] for each in findings])
    return {
        "v": SNAPSHOT_VERSION,
        "made_at": round(moment, 3),
        "name": reading.run_dir.absolute().name,
        "status": _status(reading),
        "findings": findings,
        "improvement": None if improvement is None else _without_nan(improvement.as_dict()),
        "attempts": [_attempt(reading, number) for number in sorted(reading.attempts)],
        "discontinuities": [asdict(found) for found in reading.discontinuities],
        "clock": clock_section(reading),
        "metrics": metrics,
        "metrics_left_out": left_out + reading.curves.left_out,
        "system": system_section(reading, points),
        **rank_section(reading, moment),
        "checkpoints": _checkpoints(reading, has_best=not has_no_best(each["kind"] for each in findings)),
        "logs": {
            "lines": [_log_line(line) for line in islice(reading.log, skipped, None)],
            "total": reading.log_total,
            "errors": reading.log_errors,
            "output": last_output(reading.run_dir),
        },
        "samples": reading.samples.as_list(),
        "failure": _failure(reading),
        "what_ran": _without_nan(with_train_config(reading.what_ran, reading.run_dir)),
    }


def _status(reading: Reading) -> dict[str, Any]:
    state = reading.state
    eta = state.eta_seconds()
    if eta is None and state.total_steps and reading.status == "running":
        # A reader that has just come knows no speed yet; the writer does.
        eta = (load_latest(reading.run_dir) or {}).get("eta_seconds")
    started = [attempt.started_at for attempt in reading.attempts.values() if attempt.started_at is not None]
    return _without_nan(
        {
            "status": reading.status if reading.ranks else "waiting",
            "phase": state.phase,
            "step": state.step,
            "total_steps": state.total_steps,
            "epoch": state.epoch,
            "epochs": state.epochs,
            "started_at": min(started, default=None),
            "updated_at": state.updated_at,
            "elapsed_seconds": elapsed_seconds(reading),
            "eta_seconds": eta,
            "global_batch_size": state.facts.get("global_batch_size"),
            "world_size": state.world_size,
            "attempt": state.attempt,
            "restart_count": state.restart_count,
            "resumed_from_step": state.resumed_from_step,
            "dropped": dict(state.dropped),
            "damaged_lines": reading.damaged_lines,
            "facts": state.facts,
        }
    )


def _without_nan(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Plain JSON, in which numbers that JSON has no word for are null."""
    found: dict[str, Any] = plain(fields, number=finite_or_none)
    return found


def elapsed_seconds(reading: Reading) -> float:
    """Time spent in all attempts, without the pauses between them."""
    spent = 0.0
    for attempt in reading.attempts.values():
        if attempt.started_at is not None and attempt.last_t is not None:
            spent += max(0.0, attempt.last_t - attempt.started_at)
    return round(spent, 1)


def _log_line(line: LogLine) -> dict[str, Any]:
    # By hand: a thousand lines through `asdict` take longer than all the rest of a live card.
    return {
        "t": line.t,
        "rank": line.rank,
        "attempt": line.attempt,
        "level": line.level,
        "line": line.line,
    }


def _attempt(reading: Reading, number: int) -> dict[str, Any]:
    attempt = reading.attempts[number]
    # Without a last word it still runs, or it was killed.
    status = attempt.status or (reading.status if number == max(reading.attempts) else "killed")
    found = asdict(attempt)
    last_t = found.pop("last_t")
    error = _first_error(reading, number)
    said = {name: error.get(name) for name in ("type", "message", "traceback", "cause")} if error else None
    ended_at = None if status == "running" else last_t
    return {**found, "status": status, "ended_at": ended_at, "error": said}


def _first_error(reading: Reading, attempt: int) -> dict[str, Any]:
    """The first rank to fail is why the others did. One that only lost another rank is never the first."""
    errors = [error for error in reading.errors if error["attempt"] == attempt]
    return min(errors, key=lambda error: (error.get("cause") in FOLLOWS, error["t"]), default={})


def _metrics(reading: Reading, points: int) -> tuple[list[dict[str, Any]], int]:
    names = {
        name
        for rank in reading.curves.ranks()
        for name in reading.curves.names(rank)
        # How sure a change of the eval loss is belongs to the answer whether it improved, not to a chart.
        if not name.startswith("system/") and name not in {CHANGE, MARGIN}
    }
    ordered = sorted(names, key=lambda name: (_ORDER.index(_group(name)), name))
    shown = ordered[:_MOST_METRICS]
    lines = {name: _curves(reading, name) for name in shown}
    count = sum(len(found) for found in lines.values())
    each = max(_FEWEST_POINTS, min(points, _MOST_POINTS_TOGETHER // max(1, count)))
    return [_metric(name, lines[name], each) for name in shown], len(ordered) - len(shown)


def clock_section(reading: Reading) -> list[dict[str, Any]]:
    """When steps happened, for charts along time: of each attempt, pairs from the curve that tells most."""
    longest: dict[int, Curve] = {}
    for rank in reading.curves.ranks()[:1]:
        for name in reading.curves.names(rank):
            if name.startswith("system/"):
                continue
            for attempt, curve in reading.curves.attempts(name, rank).items():
                if attempt not in longest or len(curve) > len(longest[attempt]):
                    longest[attempt] = curve
    return [{"attempt": attempt, **_times(longest[attempt])} for attempt in sorted(longest)]


def _times(curve: Curve) -> dict[str, Any]:
    every = max(1, math.ceil(len(curve) / CLOCK_POINTS))
    # Back from the newest, which has to be among them.
    chosen = range(len(curve) - 1, -1, -every)[::-1]
    return {"x": [int(curve.last[at]) for at in chosen], "t": [round(curve.time[at], 3) for at in chosen]}


def _group(name: str) -> str:
    split, _, rest = name.partition("/")
    last = (rest or name).partition("{")[0].rpartition("/")[2]
    found = _GROUPS.get(last, "accuracy" if last.endswith(("accuracy", "_acc")) else "other")
    return "evaluation" if split in {"eval", "test"} and found in {"other", "accuracy"} else found


def _curves(reading: Reading, name: str) -> list[tuple[int, int, Curve]]:
    """Attempt, rank and curve of every line. Rank 0 stands for the run; a few others are shown too."""
    found = []
    for rank in reading.curves.ranks()[:_MOST_RANK_LINES]:
        curves = reading.curves.attempts(name, rank)
        found += [(attempt, rank, curves[attempt]) for attempt in sorted(curves)]
    return found


def _metric(name: str, found: list[tuple[int, int, Curve]], points: int) -> dict[str, Any]:
    main = [entry for entry in found if entry[1] == 0] or found
    _, _, newest = max(main, key=lambda entry: entry[0])
    best = None
    if _group(name) == "loss":
        lows = [
            (low, last) for _, _, c in main for low, last in zip(c.low, c.last, strict=True) if low == low
        ]
        if lows:
            low, step = min(lows)
            best = {"step": int(step), "value": shorter(low)}
    split, _, rest = name.partition("/")
    base = (rest or split).replace("_", " ")
    return {
        "name": name,
        "title": base if split in {"train", ""} or not rest else f"{split} {base}",
        "group": _group(name),
        "last": {"step": int(newest.last[-1]), "value": shown(newest.value[-1])},
        "best": best,
        "lines": [
            {"attempt": attempt, "rank": rank, **line_of(curve, points if rank == 0 else points // 4)}
            for attempt, rank, curve in found
        ],
    }


def rank_section(reading: Reading, now: float) -> dict[str, Any]:
    """The snapshot's `ranks` and `rank_variance`."""
    return {
        "ranks": [_rank(reading, number, now) for number in sorted(reading.ranks)],
        "rank_variance": _variance(reading),
    }


def _rank(reading: Reading, number: int, now: float) -> dict[str, Any]:
    rank = reading.ranks[number]
    times = rank.step_seconds
    life = rank.life(now)
    return _without_nan(
        {
            "rank": number,
            "host": rank.host,
            "pid": rank.pid,
            "attempt": rank.attempt,
            "state": life,
            "since": rank.started_at if life == "alive" else rank.last_seen,
            "last_seen": rank.last_seen,
            "expect_next_in": rank.promise or rank.own_promise,
            "step": rank.step,
            "step_seconds": statistics.median(times) if times else None,
            "status": rank.status,
            "error": rank.error,
        }
    )


def _variance(reading: Reading) -> list[dict[str, Any]]:
    """How far ranks lie apart in what several of them report: medians of step times, else newest values."""
    last: dict[str, dict[int, float]] = {}
    for number in reading.curves.ranks():
        for name in reading.curves.names(number):
            if name.startswith("system/"):
                continue
            curves = reading.curves.attempts(name, number)
            newest = curves.get(reading.ranks[number].attempt)
            if newest is not None and len(newest) and (value := shorter(newest.value[-1])) is not None:
                times = reading.ranks[number].step_seconds
                is_time = name.endswith("step_seconds") and times
                last.setdefault(name, {})[number] = statistics.median(times) if is_time else value
    found = []
    for name, by_rank in sorted(last.items()):
        if len(by_rank) > 1:
            low, high = min(by_rank, key=lambda r: by_rank[r]), max(by_rank, key=lambda r: by_rank[r])
            lowest, highest = by_rank[low], by_rank[high]
            found.append(
                {
                    "name": name,
                    "mean": shorter(statistics.fmean(by_rank.values())),
                    "lowest": {"rank": low, "value": shorter(lowest)},
                    "highest": {"rank": high, "value": shorter(highest)},
                    "spread": shorter(highest / lowest - 1) if lowest > 0 else None,
                }
            )
    return found


def _checkpoints(reading: Reading, *, has_best: bool) -> dict[str, Any]:
    best = reading.best_checkpoint if has_best else None
    there = [
        {**plain(entry), "best": entry["path"] == best, "removed": False} for entry in reading.checkpoints
    ]
    gone = [{**plain(entry), "best": False, "removed": True} for entry in reading.removed_checkpoints]
    return {"best": best, "items": sorted(gone + there, key=lambda entry: entry["t"] or 0)}


def lost_ranks(reading: Reading) -> list[int]:
    """Ranks of the last attempt that went without a word, before all that noticed; the first to go first."""
    silent = [
        rank
        for rank in reading.ranks.values()
        if rank.attempt == reading.state.attempt and rank.error is None and rank.status is None
    ]
    return [rank.rank for rank in sorted(silent, key=lambda rank: rank.last_seen or 0.0)]


def _failure(reading: Reading) -> dict[str, Any] | None:
    status = reading.status
    if status not in _ENDED_BADLY:
        return None
    attempt = reading.attempts.get(reading.state.attempt)
    error = _first_error(reading, reading.state.attempt)
    cause = CAUSES.get(error.get("cause") or "")
    return _without_nan(
        {
            "status": status,
            "message": None if attempt is None else attempt.message,
            **{name: error.get(name) for name in ("type", "traceback", "cause", "advice")},
            "cause_title": None if cause is None else cause.title,
            "lost_ranks": lost_ranks(reading) if error.get("cause") in FOLLOWS else [],
            "rank": error.get("rank", 0),
            "attempt": reading.state.attempt,
            "t": error.get("t", None if attempt is None else attempt.last_t),
            "step": reading.state.step,
            "last_metrics": {
                name: {"step": last.get("step"), "value": shorter_or_same(last.get("value"))}
                for name, last in reading.state.values.items()
            },
            "last_system": {name: shorter_or_same(value) for name, value in reading.state.system.items()},
        }
    )
