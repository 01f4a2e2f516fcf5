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
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from gpubloom.server.schema import Flag, MetricNumber, Number, Span, Whole
from gpubloom.traincard import RunEvent
from gpubloom.traincard.number_encoding import NON_FINITE, plain

_MOST_MARKS = 200
# The whole log is in the job's output.
MOST_WARNINGS = 20
_LONGEST_WARNING = 1_000


class Tolerant(BaseModel):
    """A value of the wrong type becomes the field's default."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _default_for_wrong_type(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        try:
            return handler(value)
        except ValidationError:
            field = cls.model_fields[str(info.field_name)]
            if field.is_required():
                raise
            return field.get_default(call_default_factory=True)


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

    step: Whole | None = Field(None, description="The step that it was reported for.")
    value: MetricNumber


class RunError(Tolerant):
    """The exception that ended the run, as the run reported it."""

    type: str | None = Field(None, description="The class of the exception.")
    message: str | None = Field(None, description="Its text.")
    traceback: str | None = Field(None, description="Where it was raised, as Python prints it.")
    cause: str | None = Field(None, description="A code for the likely cause, where one is recognised.")
    advice: str | None = Field(None, description="What to do about that cause.")


class Mark(Tolerant):
    """A moment that charts mark."""

    kind: str = Field("", description="resumed, applied (live settings), or budget (a warning).")
    attempt: Whole = Field(1, description="The attempt that it happened in.")
    step: Whole = Field(0, description="The step that it happened at.")
    settings: Annotated[dict[str, Number], BeforeValidator(_only_numbers)] = Field(
        {}, description="Of the kind applied: the live settings in force."
    )
    refused: dict[str, str] = Field(
        {}, description="Of the kind applied: settings that the trainer did not take, and why."
    )
    percent: Whole | None = Field(None, description="Of the kind budget: how much of the budget is spent.")
    scope: str | None = Field(None, description="Of the kind budget: user, project or job.")
    sentence: str | None = Field(None, description="Of the kind budget: the warning.")


class Finding(Tolerant):
    """What diagnosis found wrong with the run."""

    kind: str = Field("", description="The rule that found it, such as diverging or stalled.")
    severity: str = Field("info", description="critical, warning or info.")
    sentence: str = Field("", description="What is wrong, and what to do about it.")
    evidence: dict[str, JsonValue] = Field({}, description="The figures behind it.")
    since: Number | None = Field(None, description="Seconds since 1970; None: nobody knows.")


class Cost(Tolerant):
    """What a job on rented instances has cost; US dollars."""

    so_far: Number = Field(0.0, description="All instances of the job together.")
    hourly: Number = Field(0.0, description="What an hour costs now.")
    estimated: Span | None = Field(None, description="The whole job, as estimated at its start.")
    limit: Number | None = Field(None, description="The job's budget.")
    provider: str | None = Field(None, description="Who rents out the instance.")
    gpu: str | None = Field(None, description="The kind of GPU.")
    gpus: Whole | None = Field(None, description="How many.")
    region: str | None = Field(None, description="Where the instance is.")
    kind: str | None = Field(None, description="on_demand or spot.")
    billed_seconds: Number = Field(0.0, description="The billed time of all instances together.")
    running: Flag = Field(False, description="Whether an instance is billed now.")
    detail: str | None = Field(None, description="What the provider says of the instance.")
    page: str | None = Field(None, description="The instance's page at the provider.")
    warnings: list[Whole] = Field([], description="Percents of the budget that were warned about.")


class RunWarning(Tolerant):
    """A warning or an error that the run logged; `attempt`: the first that did."""

    level: Literal["warning", "error"] = "warning"
    line: str = ""
    attempt: Whole = 1


class SummaryFields(Tolerant):
    """The fields of a summary that change as a whole."""

    phase: str | None = Field(None, description="What the run is doing, such as training or evaluating.")
    waiting: str | None = Field(None, description="Why nothing runs yet, where somebody knows.")
    step: Whole | None = Field(None, description="The newest step.")
    total_steps: Whole | None = Field(None, description="How many steps there will be.")
    epoch: Number | None = Field(None, description="The epoch of the newest step.")
    epochs: Number | None = Field(None, description="How many epochs there will be.")
    eta_seconds: Number | None = Field(None, description="Seconds left at the speed of the last minutes.")
    restart_count: Whole = Field(0, description="How often the run was started again.")
    resumed_from_step: Whole | None = Field(None, description="The step that this attempt resumed from.")
    control_version: Whole | None = Field(None, description="The newest command that the run has applied.")
    updated_at: Number | None = Field(None, description="The run's last event; seconds since 1970.")
    facts: dict[str, JsonValue] = Field({}, description="What the run says about itself.")
    dropped: Annotated[dict[str, Whole], BeforeValidator(_only_numbers)] = Field(
        {}, description="How many events the run could not record, by kind."
    )
    damaged_lines: Whole = Field(0, description="Lines of the run's events that cannot be read.")
    error: RunError | None = Field(None, description="The exception that ended the run.")
    marks: Annotated[list[Mark], BeforeValidator(_only_objects)] = Field(
        [], description="Moments that charts mark, oldest first."
    )
    findings: Annotated[list[Finding], BeforeValidator(_only_objects)] = Field(
        [], description="What is wrong with the run, worst first."
    )
    cost: Cost | None = Field(None, description="What the job has cost; None: nothing was rented for it.")


class RunSummary(SummaryFields):
    """What a job's run says and what the server knows of it, as the job's page shows it."""

    values: Annotated[dict[str, LastValue], BeforeValidator(_only_measured)] = Field(
        {}, description="The newest value of each series of rank 0."
    )
    system: Annotated[dict[str, MetricNumber], BeforeValidator(_only_numbers)] = Field(
        {}, description="The newest telemetry of rank 0."
    )


class StoredSummary(RunSummary):
    """What the column holds: also what `JobOut` has fields of its own for."""

    warnings: Annotated[list[RunWarning], BeforeValidator(_only_objects)] = []
    warnings_left_out: Whole = 0

    def dump(self) -> dict[str, Any]:
        """As the column holds it: what is not said is left out, what is said is whole."""
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
    """The new summary; what latest.json does not say is kept from the one before."""
    changes: dict[str, Any] = {}
    if latest is not None:
        # NaN and the infinities are named, as on file: no database holds them in JSON.
        changes = {name: plain(latest.get(name)) for name in _FROM_RUN}
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
            refused = plain(event.fields.get("refused"))
            mark = {"kind": "applied", "attempt": event.attempt, "step": step or 0}
            add_mark(summary, {**mark, "settings": settings, "refused": refused})


def add_mark(summary: StoredSummary, mark: Mapping[str, Any]) -> None:
    """One more mark; the oldest are dropped."""
    summary.marks = [*summary.marks, Mark.model_validate(mark)][-_MOST_MARKS:]


def add_warnings(summary: StoredSummary, events: Sequence[RunEvent]) -> None:
    """Warnings and errors of the run's log: the first ones, each once however often a restart repeats it."""
    warnings = list(summary.warnings)
    known = {warning.line for warning in warnings}
    for event in events:
        if event.kind != "log" or event.fields.get("level") not in {"warning", "error"}:
            continue
        # A NUL or half a character that a run logged cannot be stored.
        line = str(event.fields.get("line", "")).encode("utf-8", "replace").decode().replace("\0", "")
        line = line[:_LONGEST_WARNING]
        if line in known:
            continue
        if len(warnings) >= MOST_WARNINGS:
            summary.warnings_left_out += 1
            continue
        known.add(line)
        warnings.append(RunWarning(level=event.fields["level"], line=line, attempt=event.attempt))
    summary.warnings = warnings


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
