"""The page of a run from its directory, in the shapes in which the server answers from its database."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid5

from gpubloom.plan import TrainConfig
from gpubloom.runs.table import Run
from gpubloom.server.jobs.curves import Clock, Curve, LastPoint, Sample, thin
from gpubloom.server.jobs.metric_schemas import ClockOut, CurveOut, Curves
from gpubloom.server.jobs.reported_state import reported_state
from gpubloom.server.jobs.run_answers import JobImprovement
from gpubloom.server.jobs.run_watch import look_at
from gpubloom.server.jobs.schemas import CheckpointOut, Checkpoints, JobOut, LiveSettings
from gpubloom.server.jobs.summary import (
    CheckpointDetails,
    RunWarning,
    StoredSummary,
    add_marks,
    read_run_report,
    summarize,
)
from gpubloom.server.schema import MetricNumber, storable
from gpubloom.traincard import Reader, Reading, RunEvent, load_latest
from gpubloom.traincard.improvement import improvement_of
from gpubloom.traincard.number_encoding import encode_number, plain
from gpubloom.traincard.safe_paths import read_json_beneath
from gpubloom.traincard.series import Curve as StoredCurve
from gpubloom.traincard.snapshot import clock_section

# A page draws no more ranks than these.
_MOST_RANKS = 16
# The only user of `bloom ui`.
USER_ID = UUID(int=0)
_MARKED = ("resumed", "applied")


def job_of(run: Run, run_dir: Path, reading: Reading) -> JobOut:
    """The page's head: state, summary, findings."""
    latest = {**reading.state.latest(), "status": reading.status}
    if latest["eta_seconds"] is None and latest["status"] == "running":
        # A reader that has just come knows no speed yet; the writer does.
        latest["eta_seconds"] = (load_latest(run_dir) or {}).get("eta_seconds")
    said = reported_state(latest)
    look = look_at(reading, ended=said.status != "running")
    summary = summarize(StoredSummary(), latest, reading.damaged_lines)
    summary.findings, summary.processes = look.findings, look.processes
    add_marks(summary, _marked_events(run_dir), {})
    summary.warnings = [
        RunWarning(level="error" if line.level == "error" else "warning", line=text, attempt=line.attempt)
        for text, line in reading.warnings.items()
        if (line.finding or {}).get("severity") != "info"
    ]
    cause = (reading.state.error or {}).get("cause")
    created = datetime.fromtimestamp(run.created, UTC)
    return JobOut(
        id=UUID(run.id),
        kind="run",
        parent_id=None,
        checkpoint_id=None,
        dataset_id=None,
        dataset_name=None,
        eval_dataset_id=None,
        eval_dataset_name=None,
        mix=[],
        model_id=None,
        model_name=None,
        project_id=UUID(run.project_id or str(USER_ID)),
        project_name=run.project,
        user_id=USER_ID,
        name=run.name,
        status=said.status,
        config=_train_config(run_dir),
        requested_config={},
        task=None,
        plan=None,
        gpu_type=None,
        host_memory=None,
        target="local",
        offer=None,
        failover=[],
        budget=None,
        max_hours=None,
        want="run",
        settings=LiveSettings(),
        attempt=said.attempt or 0,
        max_attempts=1,
        **vars(read_run_report(summary.dump())),
        branch=None,
        result=None,
        position=position_of(reading),
        queue_position=None,
        has_model=False,
        error_code=said.error_code,
        error_message=said.error_message,
        failed_on_data=said.status == "failed" and isinstance(cause, str) and cause.startswith("data_"),
        start_time=None if run.started is None else created,
        end_time=None if run.ended is None else datetime.fromtimestamp(run.ended, UTC),
        active_seconds=look.active_seconds,
        active_since=look.active_since,
        created_at=created,
        updated_at=datetime.fromtimestamp(run.seen or run.created, UTC),
    )


def improvement_in(reading: Reading) -> JobImprovement:
    """Whether the run improved, by its own evaluations."""
    kinds = [finding.kind for finding in look_at(reading, ended=reading.status != "running").findings]
    return JobImprovement.of(improvement_of(reading, kinds))


def position_of(reading: Reading) -> int:
    """Grows with everything that a run reports: its bytes that were read."""
    return sum(reading.cursor.values())


def _train_config(run_dir: Path) -> TrainConfig | None:
    """Of a run of GPU Bloom's own trainer. Other programs may have written anything there."""
    try:
        given = read_json_beneath(run_dir, "config.json")
        return None if given is None else TrainConfig.model_validate(given)
    except (ValueError, OSError):
        return None


def _marked_events(run_dir: Path) -> list[RunEvent]:
    reader = Reader(run_dir, ranks=[0], condensed=True, kinds=_MARKED)
    found: list[RunEvent] = []
    while events := reader.read_new():
        for event in events:
            found += [event] if event.kind != "condensed" else _inner(event)
    return [event for event in found if event.kind in _MARKED]


def _inner(event: RunEvent) -> Iterator[RunEvent]:
    for fields in event.fields["events"]:
        kind, step = str(fields.get("kind")), fields.get("step")
        yield RunEvent(event.attempt, event.rank, int(fields["seq"]), float(fields["t"]), kind, step, fields)


def checkpoints_of(run: Run, reading: Reading) -> Checkpoints:
    """The checkpoints that there are, newest first."""
    has_best = not any(finding.without_best for finding in look_at(reading, ended=True).findings)
    best = reading.best_checkpoint if has_best else None
    facts = summarize(StoredSummary(), reading.state.latest(), 0).facts
    return Checkpoints(
        items=[_checkpoint(run, entry, best) for entry in reversed(reading.checkpoints)], facts=facts
    )


def _checkpoint(run: Run, entry: Mapping[str, Any], best: str | None) -> CheckpointOut:
    size, metrics, path = entry.get("size"), entry.get("metrics"), str(entry["path"])
    return CheckpointOut(
        id=uuid5(UUID(run.id), path.encode("utf-8", "replace").decode()),
        attempt=entry["attempt"],
        step=entry.get("step") or 0,
        path=storable(path),
        size=size if type(size) is int and 0 <= size < 1 << 63 else None,
        metrics=plain(metrics, text=storable) if isinstance(metrics, dict) else {},
        best=entry["path"] == best,
        saved_at=datetime.fromtimestamp(entry.get("t") or 0, UTC),
        details=CheckpointDetails.of(plain(entry.get("metadata"), text=storable)),
    )


def curves_of(
    reading: Reading, *, names: Sequence[str], first: int | None, last: int | None, points: int
) -> Curves:
    """The curves of a run for a chart, thinned as the server thins them."""
    found = [
        _curve(reading, name, rank, (first, last), points)
        for rank in reading.curves.ranks()[:_MOST_RANKS]
        for name in reading.curves.names(rank)
        if not names or name in names
    ]
    whole = first is None and last is None
    clock = [Clock(each["attempt"], each["x"], each["t"]) for each in clock_section(reading) if whole]
    return Curves(
        position=position_of(reading),
        series=[CurveOut.model_validate(curve) for curve in found],
        clock=[ClockOut.model_validate(each) for each in clock],
    )


def _curve(
    reading: Reading, name: str, rank: int, limits: tuple[int | None, int | None], points: int
) -> Curve:
    attempts = reading.curves.attempts(name, rank)
    newest = max(attempts)
    is_time = name.startswith("system/")
    first, last = (None, None) if is_time else limits
    samples = {
        attempt: [sample for sample in _samples(curve) if _is_between(sample[0], first, last)]
        for attempt, curve in sorted(attempts.items())
    }
    end = attempts[newest]
    curve = Curve(
        storable(name),
        rank,
        "time" if is_time else "step",
        last=_last_point(newest, end),
    )
    every = -(-sum(map(len, samples.values())) // points) or 1
    for attempt, some in samples.items():
        thin(curve, attempt, some, every)
    return curve


def _last_point(attempt: int, curve: StoredCurve) -> LastPoint | None:
    if not len(curve):
        return None
    value, step = curve.value[-1], int(curve.last[-1])
    return LastPoint(step, attempt, cast("MetricNumber", encode_number(value)))


def _is_between(x: float, first: int | None, last: int | None) -> bool:
    return (first is None or x >= first) and (last is None or x <= last)


def _samples(curve: StoredCurve) -> Iterator[Sample]:
    """The buckets of a curve; where one holds values that are no number, these as a sample of their own."""
    for first, last, low, high, total, _, _, count, finite in curve.rows():
        x = (first + last) / 2
        if finite:
            yield x, low, high, total, finite
        if finite < count:
            yield x, 0.0, 0.0, 0.0, 0
