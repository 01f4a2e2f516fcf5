"""The JSON of jobs. `config` is a TrainConfig or a task: snake_case, camelCase accepted."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from gpubloom.offers.prices import PriceKind
from gpubloom.plan import TrainConfig, limits
from gpubloom.plan.tasks import SweepSettings
from gpubloom.server.jobs.states import Kind, Status, Want
from gpubloom.server.projects.schemas import ProjectIn
from gpubloom.server.schema import Line, MetricNumber, Schema, Writable, described_as


class PlanRequest(Writable):
    """A config and the machine it is for."""

    config: Annotated[dict[str, Any], described_as(TrainConfig)] = Field(
        default_factory=dict, description="A TrainConfig; camelCase is accepted."
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
        {"id", "userId", "status", "startTime", "endTime", "errorMessage", "createdAt", "updatedAt"}
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

    changes: dict[str, Any] = Field(description="Fields of the config by their path, and their new values.")
    plan: dict[str, Any]
    machine: str


class PlanAnswer(Schema):
    """Whether it fits, and what to expect; `reason` says why not, `nearest` what would."""

    fits: bool
    reason: str | None
    plan: dict[str, Any] | None
    machine: str | None
    nearest: Nearest | None = None
    defaults: dict[str, Any] | None = Field(
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


class CheckpointOut(Schema):
    id: UUID
    attempt: int
    step: int
    path: str
    size: int | None
    metrics: dict[str, Any]
    best: bool
    saved_at: datetime


class Checkpoints(Schema):
    """`facts`: what the run says about itself, such as device, precision and placement."""

    items: list[CheckpointOut]
    facts: dict[str, Any]


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


class RunWarning(Schema):
    """A warning or an error that the run logged; `attempt`: the first that did."""

    level: Literal["warning", "error"]
    line: str
    attempt: int


class JobOut(Schema):
    """A job, as lists and the job page show it."""

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
    config: dict[str, Any]
    requested_config: dict[str, Any] = Field(
        description="What was set by whoever started the job; defaults are only in config."
    )
    plan: dict[str, Any]
    gpu_type: str | None
    host_memory: int | None
    target: str = Field(description='"local", or the service that it runs at.')
    offer: dict[str, Any] | None = Field(description="The offer that was taken.")
    budget: float | None
    max_hours: float | None
    want: Want
    settings: dict[str, Any]
    attempt: int
    max_attempts: int
    summary: dict[str, Any]
    rows_used: int | None = Field(description="Rows of the training data that the run uses, once it is read.")
    rows_total: int | None = Field(description="Rows of the training data; None: not a file of examples.")
    warnings: list[RunWarning]
    warnings_left_out: int = Field(description="Further ones, which only the output has.")
    result: dict[str, Any] | None = Field(description="A task's answer, once it is there.")
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
    items: list[JobOut]
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
    """One step in the wide form."""

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
