"""What a job's row says about its run: the run's own latest.json, and what the server knows besides.

The names are those of latest.json (docs/run-directory.md). The JSON column `training_jobs.summary` holds the
dump of a `StoredSummary`. A person's own script may report anything: a value of the wrong
type reads as its default, never as an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    computed_field,
)

from gpubloom.server.schema import Finding, Flag, MetricNumber, Number, Span, Tolerant, Whole, storable
from gpubloom.traincard import RunEvent
from gpubloom.traincard.alert_rules import ConfigRules, alerts_in
from gpubloom.traincard.causes import CAUSES
from gpubloom.traincard.findings import has_no_best
from gpubloom.traincard.number_encoding import NON_FINITE, plain
from gpubloom.traincard.redaction import redact
from gpubloom.traincard.what_ran import KIND as WHAT_RAN

_MOST_MARKS = 200
# The whole log is in the job's output.
MOST_WARNINGS = 20
_LONGEST_WARNING = 1_000
_LONGEST_NAME = 200
_MOST_REDACTED = 20_000
# Limits the emails of a loop that raises an alert in every step.
MOST_ALERTS = 50
ALERT_LEVELS = ("info", "warning", "error")
_MOST_OPTIMIZATIONS = 20


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in NON_FINITE
    return isinstance(value, int | float) and not isinstance(value, bool)


def _only_numbers(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(name): number for name, number in value.items() if _is_number(number)}


def _only_measured(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        str(name): last
        for name, last in value.items()
        if isinstance(last, LastValue) or (isinstance(last, Mapping) and _is_number(last.get("value")))
    }


def _only_objects(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [item for item in value if isinstance(item, Mapping | BaseModel)]


class LastValue(Tolerant):
    """The newest value of a series."""

    step: Whole | None = Field(None, description="The step of this value.")
    value: MetricNumber


class RunError(Tolerant):
    """The exception that ended the run."""

    type: str | None = Field(None, description="The class of the exception.")
    message: str | None = Field(None, description="The message of the exception.")
    traceback: str | None = Field(None, description="The Python traceback.")
    cause: str | None = Field(None, description="A code for the likely cause, if recognised.")
    advice: str | None = Field(None, description="What to do about the likely cause.")

    @computed_field(description="The likely cause in words.")  # type: ignore[prop-decorator]
    @property
    def cause_title(self) -> str | None:
        known = CAUSES.get(self.cause or "")
        return known.title if known else None


class Mark(Tolerant):
    """An event that is marked in charts."""

    kind: str = Field("", description="resumed, applied (live settings), or budget (a warning).")
    attempt: Whole = Field(1, description="The attempt in which the event happened.")
    step: Whole = Field(0, description="The step at which the event happened.")
    settings: Annotated[dict[str, Number], BeforeValidator(_only_numbers)] = Field(
        {}, description="Only for applied: the live settings that are now in effect."
    )
    refused: dict[str, str] = Field(
        {}, description="Only for applied: the settings that the trainer did not accept, and why."
    )
    percent: Whole | None = Field(None, description="Only for budget: spent share of the budget, in percent.")
    scope: str | None = Field(None, description="Only for budget: user, project or job.")
    sentence: str | None = Field(None, description="Only for budget: the text of the warning.")


class RunAlert(Tolerant):
    """An alert of the run itself: its script raised it, or a loss is not a number."""

    rule: str = Field("alert", description="alert or diverged.")
    level: str = Field("warning", description="info, warning or error.")
    title: str = ""
    text: str = ""
    attempt: Whole = Field(1, description="The attempt that raised it.")
    step: Whole | None = Field(None, description="The step at which it was raised, if known.")
    at: Number = Field(0.0, description="When the server read it, in seconds since 1970.")


class AlertRules(Tolerant):
    """The rules in a config that the run's script recorded."""

    on: list[str] = Field([])
    stop_on: list[str] = Field([])


class Cost(Tolerant):
    """The cost of a job on rented instances, in US dollars."""

    so_far: Number = Field(0.0, description="Cost of all instances of the job so far.")
    hourly: Number = Field(0.0, description="Current cost per hour.")
    estimated: Span | None = Field(None, description="Cost of the whole job, as estimated at its start.")
    limit: Number | None = Field(None, description="The job's budget.")
    provider: str | None = Field(None, description="The provider of the instance.")
    gpu: str | None = Field(None, description="The type of GPU.")
    gpus: Whole | None = Field(None, description="Number of GPUs.")
    region: str | None = Field(None, description="The region of the instance.")
    kind: str | None = Field(None, description="on_demand or spot.")
    billed_seconds: Number = Field(0.0, description="Billed time of all instances of the job, in seconds.")
    running: Flag = Field(False, description="Whether an instance is billed now.")
    detail: str | None = Field(None, description="The state of the instance, as reported by the provider.")
    page: str | None = Field(None, description="Link to the instance on the provider's website.")
    warnings: list[Whole] = Field([], description="Percentages of the budget for which a warning was given.")


def _only_name(value: Any) -> Any:
    return storable(value)[:_LONGEST_NAME] if isinstance(value, str) else value


Name = Annotated[str, BeforeValidator(_only_name)]


class StartStage(Tolerant):
    """One step of the start of a rented machine."""

    name: Name = Field("", description="requested, machine, packages, data or start.")
    state: Name = Field("waiting", description="waiting, running, done or failed.")
    began_at: Number | None = Field(None, description="Start of the step, in seconds since 1970.")
    seconds: Number | None = Field(None, description="How long the step took. None while it runs.")
    text: str = Field("", description="What the machine said of the step.")


class StartLine(Tolerant):
    """One line of the log of a start."""

    seconds: Number = Field(0.0, description="Seconds since the machine was requested.")
    stage: Name = Field("", description="The step that printed the line; console: the provider's own log.")
    text: str = ""


class StartState(Tolerant):
    """How the newest attempt on a rented machine starts, or started."""

    attempt: Whole = 1
    provider: Name = Field("", description="The provider that was asked for the machine.")
    state: Name = Field("starting", description="starting, running (the job reports) or failed.")
    began_at: Number = Field(0.0, description="When the machine was requested, in seconds since 1970.")
    timeout_seconds: Number = Field(
        600.0, description="A machine that runs without a sign for so long is terminated."
    )
    stages: Annotated[list[StartStage], BeforeValidator(_only_objects)] = Field([])
    log: Annotated[list[StartLine], BeforeValidator(_only_objects)] = Field(
        [], description="The newest lines, oldest first."
    )
    failure_code: Name | None = Field(None, description="Why the start failed, as a code.")
    failure: str | None = Field(None, description="Why the start failed, and what to do.")


class RunWarning(Tolerant):
    """A warning or an error that the run logged. `attempt` is the first attempt that logged it."""

    level: Literal["warning", "error"] = "warning"
    line: str = ""
    attempt: Whole = 1


def _only_texts(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [storable(text)[:_LONGEST_NAME] for text in value if isinstance(text, str)][:_MOST_OPTIMIZATIONS]


class CheckpointDetails(Tolerant):
    """What a run reported about a checkpoint. Older runs and most scripts report nothing."""

    training_seconds: Number | None = Field(
        None, description="Training time up to this checkpoint, in seconds, without pauses."
    )
    parameters: Whole | None = Field(None, description="Parameters of the model, without adapters.")
    trained_parameters: Whole | None = Field(None, description="Parameters that the run trains.")
    method: Name | None = Field(None, description="full, lora or qlora.")
    precision: Name | None = Field(None, description="Number format of the computation.")
    optimizations: Annotated[list[str], BeforeValidator(_only_texts)] = Field(
        [], description="What made the run faster or smaller, in words."
    )

    @classmethod
    def of(cls, metadata: Any) -> "CheckpointDetails":
        """From the metadata of an event, which may be anything."""
        if isinstance(metadata, cls):
            return metadata
        return cls.model_validate(metadata if isinstance(metadata, Mapping) else {})


class RankState(Tolerant):
    """One training process of a run."""

    rank: Whole = 0
    host: Name | None = Field(None, description="The machine of the process.")
    state: Name = Field("", description="alive, silent, dead, or how the process ended.")
    last_seen: Number | None = Field(None, description="Time of its last event, in seconds since 1970.")
    step: Whole | None = Field(None, description="The newest step of the process.")
    step_seconds: Number | None = Field(None, description="Median time of its last steps, in seconds.")


class RankValue(Tolerant):
    """The value of one rank."""

    rank: Whole = 0
    value: Number | None = None


class RankSpread(Tolerant):
    """How far ranks lie apart in a series that several of them report."""

    name: Name = Field("", description="The series.")
    mean: Number | None = None
    lowest: RankValue = RankValue()
    highest: RankValue = RankValue()
    spread: Number | None = Field(None, description="The highest value above the lowest, as a fraction.")


class NodeGpu(Tolerant):
    """A GPU of a machine."""

    index: Whole = 0
    name: Name | None = None


class Node(Tolerant):
    """A machine of a run."""

    host: Name | None = None
    ranks: list[Whole] = Field([], description="The ranks that run on this machine.")
    gpus: Annotated[list[NodeGpu], BeforeValidator(_only_objects)] = Field([])
    last: Annotated[dict[str, MetricNumber], BeforeValidator(_only_numbers)] = Field(
        {}, description="The newest telemetry of this machine."
    )


class Processes(Tolerant):
    """The processes and machines of a run. Empty lists: the run has one process on one machine."""

    ranks: Annotated[list[RankState], BeforeValidator(_only_objects)] = Field([])
    rank_variance: Annotated[list[RankSpread], BeforeValidator(_only_objects)] = Field([])
    nodes: Annotated[list[Node], BeforeValidator(_only_objects)] = Field([])
    left_out: Whole = Field(0, description="Number of further ranks that are only in the run directory.")


class SummaryFields(Tolerant):
    """The parts of a summary that are replaced as a whole."""

    phase: str | None = Field(None, description="What the run is doing, such as training or evaluating.")
    waiting: str | None = Field(None, description="Why the job is waiting, if known.")
    step: Whole | None = Field(None, description="The newest step.")
    total_steps: Whole | None = Field(None, description="Planned number of steps.")
    epoch: Number | None = Field(None, description="The epoch of the newest step.")
    epochs: Number | None = Field(None, description="Planned number of epochs.")
    eta_seconds: Number | None = Field(
        None, description="Estimated seconds left, from the speed of the last minutes."
    )
    world_size: Whole | None = Field(None, description="Number of training processes.")
    restart_count: Whole = Field(0, description="How often the run was restarted.")
    resumed_from_step: Whole | None = Field(None, description="The step from which this attempt resumed.")
    control_version: Whole | None = Field(
        None, description="Version of the newest command that the run applied."
    )
    updated_at: Number | None = Field(
        None, description="Time of the run's last event, in seconds since 1970."
    )
    facts: dict[str, JsonValue] = Field({}, description="Facts about the run, such as device and precision.")
    dropped: Annotated[dict[str, Whole], BeforeValidator(_only_numbers)] = Field(
        {}, description="Number of events that the run could not record, by kind."
    )
    damaged_lines: Whole = Field(0, description="Number of unreadable lines in the run's events.")
    error: RunError | None = Field(None, description="The exception that ended the run.")
    marks: Annotated[list[Mark], BeforeValidator(_only_objects)] = Field(
        [], description="Events that are marked in charts, oldest first."
    )
    findings: Annotated[list[Finding], BeforeValidator(_only_objects)] = Field(
        [], description="Problems of the run, worst first."
    )
    alerts: Annotated[list[RunAlert], BeforeValidator(_only_objects)] = Field(
        [], description="Alerts of the run itself, oldest first."
    )
    processes: Processes = Field(
        Processes(), description="Each rank and each machine. Empty for a run of one process."
    )
    cost: Cost | None = Field(None, description="The cost of the job. None if nothing was rented.")
    start: StartState | None = Field(
        None, description="The start of the newest rented machine. None if nothing was rented."
    )


class RunSummary(SummaryFields):
    """The state of a run, from its own reports and from the server."""

    values: Annotated[dict[str, LastValue], BeforeValidator(_only_measured)] = Field(
        {}, description="The newest value of each series of rank 0."
    )
    system: Annotated[dict[str, MetricNumber], BeforeValidator(_only_numbers)] = Field(
        {}, description="The newest telemetry of rank 0."
    )


class StoredSummary(RunSummary):
    """What the column holds: also what `JobOut` has fields of its own for."""

    warnings: Annotated[list[RunWarning], BeforeValidator(_only_objects)] = Field([])
    warnings_left_out: Whole = 0
    alert_rules: AlertRules = AlertRules()

    @property
    def has_best(self) -> bool:
        """Whether a step of the run may be called the best."""
        return not has_no_best(finding.kind for finding in self.findings)

    def dump(self) -> dict[str, Any]:
        """The JSON of the column. Fields that have their default are left out."""
        fields = type(self).model_fields.items()
        said = {name for name, field in fields if getattr(self, name) != field.default}
        return self.model_dump(mode="json", include=said)


# What latest.json says of a run.
_FROM_RUN = (
    "phase",
    "step",
    "total_steps",
    "epoch",
    "epochs",
    "eta_seconds",
    "world_size",
    "restart_count",
    "resumed_from_step",
    "control_version",
    "updated_at",
    "values",
    "system",
    "facts",
    "dropped",
    "error",
)


def read_summary(stored: Mapping[str, Any]) -> StoredSummary:
    """The summary in a job's row."""
    return StoredSummary.model_validate(stored)


def summarize(before: StoredSummary, latest: Mapping[str, Any] | None, damaged_lines: int) -> StoredSummary:
    """The new summary; fields that latest.json does not have keep their old values."""
    changes: dict[str, Any] = {}
    if latest is not None:
        # NaN and the infinities are named, as on file: no database holds them in JSON.
        changes = {name: plain(latest.get(name), text=storable) for name in _FROM_RUN}
    if damaged_lines:
        changes["damaged_lines"] = damaged_lines
    return StoredSummary.model_validate({**dict(before), **changes})


def add_marks(summary: StoredSummary, events: Sequence[RunEvent], settings: Mapping[str, Any]) -> None:
    """Moments that charts mark: a resumption, settings that took effect."""
    step = summary.step
    for event in events:
        if event.step is not None:
            step = event.step
        if event.kind == "resumed":
            from_step = plain(event.fields.get("from_step"))
            add_mark(summary, {"kind": "resumed", "attempt": event.attempt, "step": from_step})
        elif event.kind == "applied":
            refused = plain(event.fields.get("refused"), text=storable)
            mark = {"kind": "applied", "attempt": event.attempt, "step": step or 0}
            add_mark(summary, {**mark, "settings": settings, "refused": refused})


def add_mark(summary: StoredSummary, mark: Mapping[str, Any]) -> None:
    """One more mark; the oldest are dropped."""
    summary.marks = [*summary.marks, Mark.model_validate(mark)][-_MOST_MARKS:]


def add_warnings(summary: StoredSummary, events: Sequence[RunEvent]) -> None:
    """Warnings and errors of the run's log: the first ones, each once however often a restart repeats it.

    A finding that is only a note is none of them; the page lists it with the other findings.
    """
    warnings = list(summary.warnings)
    known = {warning.line for warning in warnings}
    for event in events:
        level = event.fields.get("level")
        if event.kind != "log" or (level != "warning" and level != "error"):
            continue
        said = event.fields.get("finding")
        if isinstance(said, dict) and said.get("severity") == "info":
            continue
        line = storable(str(event.fields.get("line", "")))[:_LONGEST_WARNING]
        if line in known:
            continue
        if len(warnings) >= MOST_WARNINGS:
            summary.warnings_left_out += 1
            continue
        known.add(line)
        warnings.append(RunWarning(level=level, line=line, attempt=event.attempt))
    summary.warnings = warnings


def add_alerts(summary: StoredSummary, events: Sequence[RunEvent], moment: float) -> None:
    """Alerts that the run itself raises, and the rules that its script's config names.

    The first ones are kept; each once in an attempt, however often a loop repeats it.
    """
    alerts = list(summary.alerts)
    known = {_alert_key(alert) for alert in alerts}
    for event in events:
        if event.rank != 0:
            continue
        if event.kind == WHAT_RAN:
            _note_rules(summary, event.fields.get("configs"))
        for found in alerts_in(event.kind, event.step, event.fields):
            alert = RunAlert(
                rule=found.rule,
                level=found.level if found.level in ALERT_LEVELS else "warning",
                title=_alert_text(found.title, _LONGEST_NAME),
                text=_alert_text(found.text, _LONGEST_WARNING),
                attempt=event.attempt,
                step=event.step,
                at=moment,
            )
            if len(alerts) < MOST_ALERTS and (key := _alert_key(alert)) not in known:
                known.add(key)
                alerts.append(alert)
    summary.alerts = alerts


def _alert_text(said: str, most: int) -> str:
    # Shortened first: an alert may have megabytes, and other writers wait for this transaction.
    return storable(redact(said[:_MOST_REDACTED]))[:most]


def _alert_key(alert: RunAlert) -> tuple[Any, ...]:
    said = (alert.title, alert.text) if alert.rule == "alert" else ()
    return (alert.attempt, alert.rule, *said)


def _note_rules(summary: StoredSummary, configs: object) -> None:
    for config in configs.values() if isinstance(configs, Mapping) else ():
        rules = ConfigRules.of(config)
        if rules != ConfigRules():
            summary.alert_rules = AlertRules(on=sorted(rules.on or ()), stop_on=sorted(rules.stop_on))


def with_waiting(stored: Mapping[str, Any], sentence: str | None) -> dict[str, Any]:
    """The stored summary of a job that waits for the reason in the sentence; None: it does not wait."""
    rest = {name: value for name, value in stored.items() if name != "waiting"}
    return rest if sentence is None else {**rest, "waiting": sentence}


@dataclass(frozen=True)
class RunReport:
    """The fields of `JobOut` that a job's summary holds."""

    summary: RunSummary
    rows_used: int | None
    rows_total: int | None
    warnings: list[RunWarning]
    warnings_left_out: int


def read_run_report(stored: Mapping[str, Any]) -> RunReport:
    """What a stored summary holds, with what has a field of its own taken out of the rest."""
    summary = read_summary(stored)
    used, total = summary.facts.get("rows_used"), summary.facts.get("rows_total")
    counted = isinstance(used, int) and isinstance(total, int)
    return RunReport(
        summary=summary,
        rows_used=used if counted and isinstance(used, int) else None,
        rows_total=total if counted and isinstance(total, int) else None,
        warnings=summary.warnings,
        warnings_left_out=summary.warnings_left_out,
    )
