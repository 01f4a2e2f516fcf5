"""The runs of a folder: every run directory in it, as the run list shows runs. No database, no server.

Reading a long run takes a moment, so what the list shows of it is kept in the user's cache folder and read
again only when the run has changed. Tags and notes lie in the run directory, in `labels.json`.
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError, shell_word
from gpubloom.plan.comparison import config_as_it_acts, flat_fields
from gpubloom.plan.run_files import RUN_FILES
from gpubloom.runs.overlay import TOKENS_SERIES, RunCurve, along_tokens, newest_attempt
from gpubloom.runs.stats import MOST_SERIES, MetricStats
from gpubloom.runs.table import Run, fields_of_facts
from gpubloom.traincard import Reading, RunLock
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.number_encoding import decode_number, plain
from gpubloom.traincard.snapshot import elapsed_seconds

LABELS = "labels.json"
_DEEPEST = 4
_MOST_RUNS = 20_000
# A change of what is kept: older files are read again.
_VERSION = 2
_SKIPPED = frozenset({"node_modules", "__pycache__", "checkpoints", "traincard", "model"})


def find_runs(folder: Path, left_out: dict[Path, str]) -> Iterator[Path]:
    """The run directories in a folder, and in its folders. A run directory itself is one run.

    `left_out` gets the folders that cannot be read and the incomplete runs, and why.
    """
    if not folder.is_dir():
        what = f"{folder} is a file." if folder.exists() else f"There is no folder {folder}."
        raise InputError("run_not_found", f"{what} Name a folder with run directories.")
    pending = [(folder, 0)]
    found = 0
    while pending and found < _MOST_RUNS:
        here, depth = pending.pop()
        try:
            if is_run(here):
                found += 1
                yield here
                continue
            if is_incomplete(here):
                left_out[here] = why_incomplete(here)
            if depth == _DEEPEST:
                continue
            with os.scandir(here) as entries:
                pending += [
                    (Path(entry.path), depth + 1)
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False)
                    and not entry.name.startswith(".")
                    and entry.name not in _SKIPPED
                ]
        except OSError as problem:
            left_out[here] = _reason(problem)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run directory."""
    return (folder / "traincard").is_dir()


def is_incomplete(folder: Path) -> bool:
    """Whether a folder was made for a run that has reported nothing."""
    return not is_run(folder) and all((folder / name).is_file() for name in RUN_FILES)


def why_incomplete(folder: Path) -> str:
    """What happened to an incomplete run, and what to do."""
    return (
        "incomplete run: it still loads, or was killed before its first event. To train it, run: "
        f"bloom train --resume {shell_word(folder)}"
    )


class RunFolder:
    """The runs below one folder. `runs` looks again at each call and reads only what has changed."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.folder = folder.absolute()
        self._cache = cache or _cache_folder()
        self._known: dict[Path, tuple[str, dict[str, Any]]] = {}
        self.left_out: dict[Path, str] = {}
        """The folders that the last call of `runs` could not read, and why."""

    def runs(self) -> list[Run]:
        """Newest first. A directory that cannot be read is left out."""
        found = []
        self.left_out = {}
        for path in find_runs(self.folder, self.left_out):
            try:
                found.append(self.run(path))
            except (OSError, ValueError) as problem:
                self.left_out[path] = _reason(problem)
        return sorted(found, key=lambda run: -run.created)

    def run(self, path: Path) -> Run:
        """One run directory. OSError, ValueError: it cannot be read."""
        files = RunFiles(path)
        for part, mode in ((files.folder, os.R_OK | os.X_OK), *((tail, os.R_OK) for tail in files.tails())):
            # A reader takes what is closed to it for absent: the run would be one that has not begun.
            if not os.access(part, mode):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), part)
        return _run(self.folder, path, self._summary(path))

    def find(self, run_id: str) -> Path | None:
        """The run directory of an id; None: there is none in this folder."""
        path = self.folder if run_id == "." else self.folder / run_id
        inside = path.resolve().is_relative_to(self.folder.resolve())
        return path if inside and is_run(path) else None

    def _summary(self, path: Path) -> dict[str, Any]:
        state = _state_of(path)
        known = self._known.get(path)
        if known is not None and known[0] == state:
            return known[1]
        kept = self._cache / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
        content = read_json_object(kept) if kept.exists() else None
        if content is None or content.get("state") != state:
            content = {"state": state, "summary": read_summary(path)}
            with contextlib.suppress(OSError):
                self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(kept, json.dumps(content))
        self._known[path] = (state, content["summary"])
        summary: dict[str, Any] = content["summary"]
        return summary

    def curves(self, run: Run, series: str, *, tokens: bool = False) -> RunCurve | None:
        """One metric of a run; None: the run does not report it."""
        path = self.find(run.id)
        return None if path is None else read_curve(path, run, series, tokens=tokens)

    def set_labels(self, run_id: str, *, tags: list[str] | None, notes: str | None) -> dict[str, Any] | None:
        """Change the tags and notes of a run; None: there is no such run."""
        path = self.find(run_id)
        if path is None:
            return None
        labels = _labels(path)
        if tags is not None:
            labels["tags"] = list(dict.fromkeys(tags))
        if notes is not None:
            labels["notes"] = notes
        replace_file(path / LABELS, json.dumps(labels, ensure_ascii=False, indent=2) + "\n")
        return labels


def _reason(problem: OSError | ValueError) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        name = f"{Path(problem.filename).name}: " if problem.filename else ""
        return f"{name}{problem.strerror}"
    return str(problem)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gpubloom" / "runs"


def _state_of(path: Path) -> str:
    """Changes whenever the run reports something, ends, or its process dies."""
    files = RunFiles(path)
    parts: list[object] = [_VERSION]
    for file in (files.latest, path / "config.json", *files.tails()):
        with contextlib.suppress(OSError):
            facts = file.stat()
            parts += [file.name, facts.st_size, facts.st_mtime_ns]
    parts.append(RunLock.holder(path) is not None)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def read_summary(path: Path) -> dict[str, Any]:
    """What the list shows of a run directory, as JSON."""
    reading = Reading(path)
    reading.update()
    if not reading.ranks and RunLock.holder(path) is None:
        raise InputError("unreadable_run", f"{RunFiles(path).folder.name}: no readable events")
    state = reading.state
    attempts = reading.attempts.values()
    started = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    ended = [attempt.last_t for attempt in attempts if attempt.last_t is not None]
    described, facts = fields_of_facts(state.facts)
    # The trainer's own config file; other programs may have written anything there.
    given = read_json_object(path / "config.json") if (path / "config.json").is_file() else None
    config = {**described, **(flat_fields(config_as_it_acts(given)) if given else {})}
    error = state.error or {}
    message = error.get("message")
    summary = {
        "status": reading.status,
        "started": min(started, default=None),
        "ended": max(ended, default=None),
        "seconds": elapsed_seconds(reading) if started else None,
        "step": state.step,
        "total_steps": state.total_steps,
        "eta_seconds": state.eta_seconds(),
        "attempt": state.attempt,
        "host": state.host,
        "error": f"{error.get('type')}: {message}" if message else None,
        "config": config,
        "facts": facts,
        "stats": dict(_stats(reading)),
    }
    read: dict[str, Any] = plain(summary, text=_readable)
    return read


def _stats(reading: Reading) -> Iterator[tuple[str, list[Any]]]:
    for name, last in list(reading.state.values.items())[:MOST_SERIES]:
        stats = MetricStats(float(decode_number(last.get("value", "NaN"))), last.get("step") or 0)
        for curve in reading.curves.attempts(name).values():
            for low, high, step in zip(curve.low, curve.high, curve.last, strict=True):
                if low == low and (stats.min is None or low < stats.min):
                    stats.min, stats.min_step = low, step
                if high == high and (stats.max is None or high > stats.max):
                    stats.max, stats.max_step = high, step
            stats.total += sum(curve.total)
            stats.count += sum(curve.finite)
        yield name, stats.as_list()


def _run(folder: Path, path: Path, summary: Mapping[str, Any]) -> Run:
    relative = path.relative_to(folder)
    labels = _labels(path)
    tags = labels.get("tags")
    started, ended = summary["started"], summary["ended"]
    return Run(
        id=relative.as_posix(),
        name=_readable(str(labels.get("name") or path.name)),
        status=summary["status"],
        created=started if started is not None else path.stat().st_mtime,
        project=relative.parent.as_posix() if relative.parent != Path() else folder.name,
        source=summary["host"] or "",
        started=started,
        ended=None if summary["status"] == "running" else ended,
        seconds=summary["seconds"],
        seen=ended,
        step=summary["step"],
        total_steps=summary["total_steps"],
        eta_seconds=summary["eta_seconds"],
        attempt=summary["attempt"],
        error=summary["error"],
        tags=[_readable(str(tag)) for tag in tags] if isinstance(tags, list) else [],
        notes=_readable(str(labels.get("notes", ""))),
        config=summary["config"],
        facts=summary["facts"],
        stats=summary["stats"],
    )


def _readable(text: str) -> str:
    """Without halves of characters, which no answer and no terminal can hold."""
    return text.encode("utf-8", "replace").decode()


def _labels(path: Path) -> dict[str, Any]:
    labels = read_json_object(path / LABELS) if (path / LABELS).is_file() else None
    return labels or {}


def read_curve(path: Path, run: Run, series: str, *, tokens: bool = False) -> RunCurve | None:
    """One metric of a run directory along steps or tokens; None: the run does not report it."""
    reading = Reading(path)
    reading.update()
    return curve_of(reading, run, series, tokens=tokens)


def curve_of(reading: Reading, run: Run, series: str, *, tokens: bool = False) -> RunCurve | None:
    """The same of a run that was read."""
    curve = _curve(reading, run, series)
    if curve is None or not tokens:
        return curve
    counted = _curve(reading, run, TOKENS_SERIES)
    return None if counted is None else along_tokens(curve, counted)


def _curve(reading: Reading, run: Run, series: str) -> RunCurve | None:
    x: list[float] = []
    y: list[float] = []
    numbers: list[int] = []
    for attempt, curve in reading.curves.attempts(series).items():
        for bucket in curve.buckets:
            x.append((bucket.first_step + bucket.last_step) / 2)
            y.append(bucket.mean)
            numbers.append(attempt)
    if not x:
        return None
    return RunCurve(run.id, run.name, run.has_failed, *newest_attempt(x, y, numbers))
