"""The JSON of jobs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue

from gpubloom.offers.prices import Granularity, PriceKind
from gpubloom.plan import Plan, TrainConfig, limits
from gpubloom.plan.tasks import SweepSettings, Task, TaskResult
from gpubloom.scripts.task import ScriptTask
from gpubloom.server.jobs.states import Kind, Status, Want
from gpubloom.server.jobs.summary import RunSummary, RunWarning
from gpubloom.server.projects.schemas import CamelProjectIn, ProjectIn
from gpubloom.server.schema import CAMEL_CASE, Line, MetricNumber, Schema, Span, Writable, described_as


class PlanRequest(Writable):
    """A config and the machine it is for."""

    config: Annotated[dict[str, Any], described_as(TrainConfig)] = Field(
        default_factory=dict, description="What differs from the defaults; camelCase is accepted."
    )
    project_id: UUID | None = Field(None, description="Its data path is used when the config names none.")
    dataset_id: UUID | None = Field(None, description="A dataset of one's own, in place of a data path.")
    model_id: UUID | None = Field(None, description="A model of one's own, in place of model.path.")
    gpu_type: Annotated[Line, Field(min_length=1, max_length=64)] | None = Field(
        None, description="A GPU by name, such as H200. Without one: a GPU if there is one, else the CPU."
    )
    host_memory: Annotated[int, Field(gt=0, le=1_000_000)] | None = Field(None, description="GB of RAM.")


class Finder(Schema, SweepSettings):
    """The sweep of a learning-rate finder."""


class OfferTaken(Schema):
    """Which of the offers somebody takes; `POST /offers` shows them."""

    provider: Annotated[Line, Field(min_length=1, max_length=32)]
    gpu: Annotated[Line, Field(min_length=1, max_length=100)]
    gpus: Annotated[int, Field(ge=1, le=1_024)] = 1
    kind: PriceKind = "on_demand"
    region: Annotated[Line, Field(min_length=1, max_length=100)] | None = None


Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Hours = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]


class NewJob(PlanRequest):
    """A job for a project that exists, or for one that is created with it."""

    READ_ONLY = frozenset(
        {"id", "user_id", "status", "start_time", "end_time", "error_message", "created_at", "updated_at"}
    )

    kind: Literal["train", "find_learning_rate"] = "train"
    finder: Finder | None = Field(None, description="Only of kind find_learning_rate.")
    project: ProjectIn | None = None
    name: Annotated[Line, Field(min_length=1, max_length=120)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] = 5
    offer: OfferTaken | None = Field(None, description="A rented machine; None: a machine of this server.")
    budget: Dollars | None = Field(None, description="US dollars; it is paused before it costs more.")
    max_hours: Hours | None = Field(None, description="It is paused after so many billed hours.")


class Nearest(Schema):
    """The nearest setting that fits, and what to expect of it."""

    changes: dict[str, JsonValue] = Field(
        description="Fields of the config by their path, and their new values."
    )
    plan: Plan
    machine: str


class PlanAnswer(Schema):
    """Whether it fits, and what to expect; `reason` says why not, `nearest` what would."""

    fits: bool
    code: str | None = None
    reason: str | None
    plan: Plan | None
    machine: str | None
    nearest: Nearest | None = None
    defaults: dict[str, JsonValue] | None = Field(
        None, description="What the job would use for each field that the config leaves out."
    )


class Extension(Schema):
    epochs: Annotated[int, Field(ge=1, le=limits.MAX_EPOCHS, description="How many in all.")] | None = None
    max_steps: Annotated[int, Field(ge=1, le=limits.MAX_STEPS, description="How many in all.")] | None = None


class LiveSettings(Schema):
    """What can change while a run trains; what is left out stays as it is."""

    learning_rate: Annotated[float, Field(gt=0, le=limits.MAX_LEARNING_RATE, allow_inf_nan=False)] | None = (
        None
    )
    weight_decay: Annotated[float, Field(ge=0, le=limits.MAX_WEIGHT_DECAY, allow_inf_nan=False)] | None = None
    clip_norm: Annotated[float, Field(ge=0, le=limits.MAX_CLIP_NORM, allow_inf_nan=False)] | None = None
    eval_every_steps: Annotated[int, Field(ge=1, le=limits.MAX_STEPS)] | None = None
    save_every_steps: Annotated[int, Field(ge=1, le=limits.MAX_STEPS)] | None = None

    @classmethod
    def stored(cls, settings: Mapping[str, Any]) -> "LiveSettings":
        """Those of a job's row; a setting of another version is left out."""
        return cls(**{name: value for name, value in settings.items() if name in cls.model_fields})


class CheckpointOut(Schema):
    id: UUID
    attempt: int
    step: int
    path: str
    size: int | None
    metrics: dict[str, JsonValue]
    best: bool
    saved_at: datetime


class Checkpoints(Schema):
    """`facts`: what the run says about itself, such as device, precision and placement."""

    items: list[CheckpointOut]
    facts: dict[str, JsonValue]


class CheckpointOfJob(CheckpointOut):
    """A checkpoint, and the run that it belongs to."""

    job_id: UUID
    job_name: str
    job_status: Status
    project_id: UUID
    project_name: str
    method: str | None
    base_model: str | None
    dataset_name: str | None
    parameters: int | None
    tokens_per_second: MetricNumber | None


class CheckpointPage(Schema):
    items: list[CheckpointOfJob]
    total: int


class JobOffer(Schema):
    """The offer of a rented machine that was taken for a job. Amounts are US dollars."""

    # Offers of earlier versions held more.
    model_config = ConfigDict(extra="ignore")

    target: str = Field(description="The service that is called.")
    provider: str
    title: str
    gpu: str
    gpus: int
    memory_gb: float
    region: str | None
    kind: PriceKind
    hourly: float
    billing: Granularity
    start_up_seconds: float
    estimate: Span | None = Field(None, description="What the whole job would cost.")


class JobListItem(Schema):
    """A job, as lists show it."""

    id: UUID
    kind: Kind
    parent_id: UUID | None
    project_id: UUID
    project_name: str
    dataset_name: str | None
    name: str
    status: Status
    provider: str | None = Field(description="Whose rented machine it runs on; None: one of this server.")
    attempt: int
    phase: str | None
    waiting: str | None = Field(description="Why nothing runs yet, where that is known.")
    step: int | None
    total_steps: int | None
    epoch: MetricNumber | None
    epochs: MetricNumber | None
    eta_seconds: MetricNumber | None
    loss: MetricNumber | None
    rows_used: int | None
    rows_total: int | None
    cost_so_far: MetricNumber | None = Field(description="US dollars, of a job on rented machines.")
    export_form: str | None = Field(description="Of an export: adapter, merged or gguf.")
    queue_position: int | None
    error_code: str | None
    error_message: str | None
    start_time: datetime | None
    end_time: datetime | None
    created_at: datetime
    updated_at: datetime


class JobOut(Schema):
    """A job with all that its page shows."""

    id: UUID
    kind: Kind
    parent_id: UUID | None
    checkpoint_id: UUID | None
    dataset_id: UUID | None
    dataset_name: str | None
    model_id: UUID | None
    model_name: str | None
    project_id: UUID
    project_name: str
    user_id: UUID
    name: str
    status: Status
    config: TrainConfig | None = Field(
        description="Of a training. None: a task or a script, or a config that this version cannot read."
    )
    requested_config: dict[str, JsonValue] = Field(
        description="What was set by whoever started the job; defaults are only in config."
    )
    task: Task | ScriptTask | None = Field(description="What is asked of a task or a script.")
    plan: Plan | None
    gpu_type: str | None
    host_memory: int | None
    target: str = Field(description='"local", or the service that it runs at.')
    offer: JobOffer | None = Field(description="The offer that was taken.")
    budget: float | None
    max_hours: float | None
    want: Want
    settings: LiveSettings
    attempt: int
    max_attempts: int
    summary: RunSummary
    rows_used: int | None = Field(description="Rows of the training data that the run uses, once it is read.")
    rows_total: int | None = Field(description="Rows of the training data; None: not a file of examples.")
    warnings: list[RunWarning]
    warnings_left_out: int = Field(description="Further ones, which only the output has.")
    result: TaskResult | None = Field(description="A task's answer, once it is there.")
    position: int
    queue_position: int | None
    has_model: bool
    error_code: str | None
    error_message: str | None
    start_time: datetime | None
    end_time: datetime | None
    created_at: datetime
    updated_at: datetime


class QueuedJob(JobOut):
    """A job that was just made."""

    ignored: list[str] = Field([], description="Fields of the request that only the server sets.")


class Jobs(Schema):
    items: list[JobListItem]
    total: int


class CamelNewJob(NewJob):
    """A job as the product's first description spells it; also one that was once read."""

    model_config = CAMEL_CASE
    READ_ONLY = frozenset(
        {"id", "userId", "status", "startTime", "endTime", "errorMessage", "createdAt", "updatedAt"}
    )

    project: CamelProjectIn | None = None


class CamelJob(Schema):
    """A job as the product's first description spells it."""

    model_config = CAMEL_CASE

    id: UUID
    project_id: UUID
    user_id: UUID
    name: str
    status: Status
    config: dict[str, JsonValue] = Field(description="What was set by whoever started the job.")
    gpu_type: str | None
    host_memory: int | None
    start_time: datetime | None
    end_time: datetime | None
    error_message: str | None
    created_at: datetime
    updated_at: datetime


class CamelQueuedJob(CamelJob):
    """A job that was just made."""

    ignored: list[str] = Field([], description="Fields of the request that only the server sets.")


class CamelJobs(Schema):
    items: list[CamelJob]
    total: int


class JobTotals(Schema):
    """What the dashboard counts."""

    running: int
    queued: int
    completed: int
    failed: int
    training_seconds: float


class LastPoint(Schema):
    """The newest value of a curve, as it was reported."""

    x: float
    attempt: int
    value: MetricNumber


class CurveOut(Schema):
    """Where points were thinned, `value` is their mean, and `low` and `high` are their extremes."""

    name: str
    rank: int
    axis: Literal["step", "time"]
    x: list[float]
    value: list[float]
    low: list[float]
    high: list[float]
    attempt: list[int]
    last: LastPoint | None


class Curves(Schema):
    """`position`: the stream continues after this."""

    position: int
    series: list[CurveOut]


class MetricRow(Schema):
    """One step with its curves in columns, as the product's first description spells it."""

    model_config = CAMEL_CASE

    training_job_id: UUID
    timestamp: datetime
    loss: float | None
    learning_rate: float | None
    gpu_utilization: float | None
    cpu_utilization: float | None
    memory_usage: int | None
    throughput: float | None
    epoch: int | None
    step: int


class MetricRows(Schema):
    items: list[MetricRow]


class LogPage(Schema):
    """A part of the output. `start` and `end` are byte positions; ask again with `after=end` to follow."""

    lines: list[str]
    start: int
    end: int


class LogMatches(Schema):
    lines: list[str]
    more: bool


class Script(Schema):
    """The files that make the run."""

    script: str
    requirements: str
    config: str


class ModelFile(Schema):
    path: str
    size: int


class ModelFiles(Schema):
    items: list[ModelFile]
    archive_size: int


class Machine(Schema):
    """A machine with a worker on it."""

    name: str
    gpus: list[str]
    gpu_memory_bytes: list[int] = Field(description="Of each GPU, in the order of their names.")
    cpu_cores: int
    host_memory_bytes: int
    last_seen_at: datetime


class Machines(Schema):
    items: list[Machine]


class ShareOut(Schema):
    id: UUID
    created_at: datetime


class NewShare(Schema):
    """The link is shown once."""

    link: str
    share: ShareOut


class Shares(Schema):
    items: list[ShareOut]
