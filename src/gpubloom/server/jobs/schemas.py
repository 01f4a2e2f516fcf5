"""The JSON of jobs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, field_validator

from gpubloom.offers.prices import Granularity, PriceKind
from gpubloom.plan import NearestFit, Needs, Plan, TrainConfig, limits
from gpubloom.plan.tasks import SweepSettings, Task, TaskResult
from gpubloom.scripts.task import ScriptTask
from gpubloom.server.jobs.states import Kind, Status, Want
from gpubloom.server.jobs.summary import CheckpointDetails, RunSummary, RunWarning
from gpubloom.server.projects.schemas import CamelProjectIn, ProjectIn
from gpubloom.server.schema import CAMEL_CASE, Line, MetricNumber, Schema, Span, Writable, described_as
from gpubloom.server.storage.schemas import StoreOut

DatasetWeight = Annotated[float, Field(gt=0, le=limits.MAX_DATASET_WEIGHT, allow_inf_nan=False)]


class MixedDatasetIn(Schema):
    """One more dataset to train on together with `dataset_id`."""

    dataset_id: UUID
    weight: DatasetWeight = Field(
        1.0, description="How often an epoch trains each example of the dataset; 0.5 trains half of them."
    )


class MixedDatasetOut(Schema):
    """A dataset that a job trains on together with `dataset_id`. The name is None once it is deleted."""

    dataset_id: UUID
    name: str | None
    weight: float


class PlanRequest(Writable):
    """A training config and the machine that should run it."""

    config: Annotated[dict[str, Any], described_as(TrainConfig)] = Field(
        default_factory=dict,
        description="The config fields that differ from the defaults. camelCase names are accepted.",
    )
    project_id: UUID | None = Field(
        None,
        description="If the config has no data path or no model, the data and the model size of this project "
        "are used.",
    )
    dataset_id: UUID | None = Field(None, description="One of your datasets, instead of a data path.")
    eval_dataset_id: UUID | None = Field(
        None, description="One of your datasets to evaluate on, instead of an eval split of the data."
    )
    mix: Annotated[list[MixedDatasetIn], Field(max_length=limits.MAX_MIXED_DATASETS)] = Field(
        [],
        description="More of your datasets to train on together with `dataset_id`, each with a weight. The "
        "weight of `dataset_id` itself is data.weight of the config.",
    )
    model_id: UUID | None = Field(None, description="One of your models, instead of model.path.")
    gpu_type: Annotated[Line, Field(min_length=1, max_length=64)] | None = Field(
        None,
        description="The GPU by name, such as H200. If empty: a GPU if the server has one, "
        "otherwise the CPU.",
    )
    host_memory: Annotated[int, Field(gt=0, le=1_000_000)] | None = Field(
        None, description="Required host memory (RAM) in GB."
    )


class Finder(Schema, SweepSettings):
    """The range and number of steps of a learning-rate finder."""


class OfferTaken(Schema):
    """The offer to rent. `POST /offers` lists the offers."""

    provider: Annotated[Line, Field(min_length=1, max_length=32)]
    gpu: Annotated[Line, Field(min_length=1, max_length=100)]
    gpus: Annotated[int, Field(ge=1, le=1_024)] = 1
    kind: PriceKind = "on_demand"
    region: Annotated[Line, Field(min_length=1, max_length=100)] | None = None


class FailoverPreference(Schema):
    """Which offers come next when the chosen one has no machine and `failover` names none."""

    order: Literal["cost", "time"] = Field(
        "cost", description="cost: the lowest price first. time: the shortest usual wait and start first."
    )
    providers: Annotated[list[Annotated[Line, Field(min_length=1, max_length=32)]], Field(max_length=50)] = (
        Field([], description="Only these providers. Empty: any that is connected.")
    )


Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Hours = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Failover = Annotated[
    Annotated[list[OfferTaken], Field(max_length=5)] | None,
    Field(
        description="Offers to take, in this order, when the chosen one has no machine. If empty: the same "
        "GPU at other connected providers, by `failover_by`. An empty list: none. One budget covers all."
    ),
]
SecretNames = Annotated[
    Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=100)] | None,
    Field(
        description="Names of the secrets that the job gets as environment variables. If empty: all "
        "secrets of the user and the project."
    ),
]


class NewJob(PlanRequest):
    """A new job, for an existing project or for a new project that is created together with the job."""

    READ_ONLY = frozenset(
        {"id", "user_id", "status", "start_time", "end_time", "error_message", "created_at", "updated_at"}
    )

    kind: Literal["train", "find_learning_rate"] = "train"
    finder: Finder | None = Field(None, description="Only for kind find_learning_rate.")
    project: ProjectIn | None = None
    name: Annotated[Line, Field(min_length=1, max_length=120)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] = 5
    offer: OfferTaken | None = Field(
        None, description="The offer of a rented machine. If empty: a machine of this server."
    )
    budget: Dollars | None = Field(
        None,
        description="Budget in US dollars. The job is paused before its cost exceeds the budget. If empty, a "
        "job on a rented machine gets twice the estimated cost.",
    )
    max_hours: Hours | None = Field(
        None,
        description="The job is paused after this number of billed hours. If empty, a job on a rented "
        "machine gets twice the estimated time.",
    )
    failover: Failover = None
    failover_by: FailoverPreference = FailoverPreference()
    secrets: SecretNames = None


class MachinePlan(Schema):
    """The plan of the job on a machine as it was asked for, whether or not one is connected."""

    machine: str
    reason: str | None
    plan: Plan | None
    needs: Needs | None
    options: list[NearestFit]


class PlanAnswer(Schema):
    """Whether the job fits on a machine, and its plan. If it does not fit: `reason`, `needs`, `options`."""

    fits: bool
    code: str | None = None
    reason: str | None
    plan: Plan | None
    machine: str | None
    needs: Needs | None = Field(
        None, description="The least memory that the job needs, and what the machine has."
    )
    options: list[NearestFit] = Field(
        [], description="Settings with which the job would fit; those that change least come first."
    )
    requested_machine: MachinePlan | None = Field(
        None,
        description="If the job cannot start here because of its data or because no such machine is "
        "connected: its plan on the machine that was asked for.",
    )
    defaults: dict[str, JsonValue] | None = Field(
        None, description="The values that the job would use for the fields that the config leaves out."
    )


class Extension(Schema):
    epochs: (
        Annotated[
            int,
            Field(
                ge=1,
                le=limits.MAX_EPOCHS,
                description="Total number of epochs, including those already trained.",
            ),
        ]
        | None
    ) = None
    max_steps: (
        Annotated[
            int,
            Field(
                ge=1,
                le=limits.MAX_STEPS,
                description="Total number of steps, including those already trained.",
            ),
        ]
        | None
    ) = None


class LiveSettings(Schema):
    """Settings that can change while a job trains. Fields that are left out keep their values."""

    learning_rate: Annotated[float, Field(gt=0, le=limits.MAX_LEARNING_RATE, allow_inf_nan=False)] | None = (
        None
    )
    weight_decay: Annotated[float, Field(ge=0, le=limits.MAX_WEIGHT_DECAY, allow_inf_nan=False)] | None = None
    clip_norm: Annotated[float, Field(ge=0, le=limits.MAX_CLIP_NORM, allow_inf_nan=False)] | None = None
    eval_every_steps: Annotated[int, Field(ge=1, le=limits.MAX_STEPS)] | None = None
    save_every_steps: Annotated[int, Field(ge=1, le=limits.MAX_STEPS)] | None = None

    @classmethod
    def stored(cls, settings: Mapping[str, Any]) -> "LiveSettings":
        """Read the settings from a job's row. Settings of other versions are left out."""
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
    details: Annotated[CheckpointDetails, BeforeValidator(CheckpointDetails.of)]


class Checkpoints(Schema):
    """`facts`: facts about the run, such as device, precision and placement."""

    items: list[CheckpointOut]
    facts: dict[str, JsonValue]


class CheckpointOfJob(CheckpointOut):
    """A checkpoint and the job that saved it."""

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
    """The offer of a rented machine that a job uses. Amounts are in US dollars."""

    # Offers of earlier versions held more.
    model_config = ConfigDict(extra="ignore")

    target: str = Field(description="The provider whose API starts the instance.")
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
    store: StoreOut | None = Field(None, description="The store that the files of the job go through.")
    estimate: Span | None = Field(None, description="Estimated cost of the whole job.")

    @field_validator("store", mode="before")
    @classmethod
    def _named_store(cls, value: object) -> object:
        return StoreOut.stored(value)


class JobListItem(Schema):
    """A job in a list."""

    id: UUID
    kind: Kind
    parent_id: UUID | None
    project_id: UUID
    project_name: str
    dataset_name: str | None
    name: str
    status: Status
    provider: str | None = Field(
        description="The provider of the rented machine. None: a machine of this server."
    )
    attempt: int
    phase: str | None
    waiting: str | None = Field(description="Why the job is waiting, if known.")
    step: int | None
    total_steps: int | None
    epoch: MetricNumber | None
    epochs: MetricNumber | None
    eta_seconds: MetricNumber | None
    loss: MetricNumber | None
    rows_used: int | None
    rows_total: int | None
    cost_so_far: MetricNumber | None = Field(
        description="Cost in US dollars so far. Only for jobs on rented machines."
    )
    export_form: str | None = Field(description="Only for exports: adapter, merged or gguf.")
    queue_position: int | None
    error_code: str | None
    error_message: str | None
    start_time: datetime | None
    end_time: datetime | None
    active_seconds: float = Field(
        description="Time on a machine in seconds, without queue and pauses, up to `active_since`."
    )
    active_since: datetime | None = Field(
        description="Since when the job holds a machine. None if it holds none."
    )
    created_at: datetime
    updated_at: datetime


class Branch(Schema):
    """The checkpoint of another job that a job continues from. That job may have been deleted since."""

    model_config = ConfigDict(extra="ignore")

    job_id: UUID
    step: int


class JobOut(Schema):
    """A job with all details."""

    id: UUID
    kind: Kind
    parent_id: UUID | None
    checkpoint_id: UUID | None
    dataset_id: UUID | None
    dataset_name: str | None
    eval_dataset_id: UUID | None
    eval_dataset_name: str | None
    mix: list[MixedDatasetOut]
    model_id: UUID | None
    model_name: str | None
    project_id: UUID
    project_name: str
    user_id: UUID
    name: str
    status: Status
    config: TrainConfig | None = Field(
        description="Only for training jobs. None for tasks, scripts, and configs that this "
        "version cannot read."
    )
    requested_config: dict[str, JsonValue] = Field(
        description="The config fields that the user set. `config` also contains the defaults."
    )
    task: Task | ScriptTask | None = Field(description="The parameters of a task or a script.")
    plan: Plan | None
    gpu_type: str | None
    host_memory: int | None
    target: str = Field(description='"local", or the provider that runs the job.')
    offer: JobOffer | None = Field(description="The offer that the job uses.")
    failover: list[JobOffer] = Field(
        description="The offers that the job takes next, if its own has no machine or loses it."
    )
    budget: float | None
    max_hours: float | None
    want: Want
    settings: LiveSettings
    attempt: int
    max_attempts: int
    summary: RunSummary
    rows_used: int | None = Field(
        description="Number of training rows that the run uses. Known once the data is read."
    )
    rows_total: int | None = Field(
        description="Number of rows in the training data. None if the data is not a file of examples."
    )
    warnings: list[RunWarning]
    warnings_left_out: int = Field(
        description="Number of further warnings that are only in the job's output."
    )
    branch: Branch | None = Field(description="The checkpoint that the job continues from.")
    result: TaskResult | None = Field(description="The result of a task, once available.")
    position: int
    queue_position: int | None
    has_model: bool
    error_code: str | None
    error_message: str | None
    failed_on_data: bool = Field(
        description="The job failed on its data or its config. Resuming it fails again: change one of them."
    )
    start_time: datetime | None
    end_time: datetime | None
    active_seconds: float = Field(
        description="Time on a machine in seconds, without queue and pauses, up to `active_since`."
    )
    active_since: datetime | None = Field(
        description="Since when the job holds a machine. None if it holds none."
    )
    created_at: datetime
    updated_at: datetime


class QueuedJob(JobOut):
    """A job that was just created."""

    ignored: list[str] = Field(
        [], description="Fields of the request that were ignored because only the server sets them."
    )


class Jobs(Schema):
    items: list[JobListItem]
    total: int


class CamelNewJob(NewJob):
    """A new job in camelCase. A job that was read earlier is accepted too."""

    model_config = CAMEL_CASE
    READ_ONLY = frozenset(
        {"id", "userId", "status", "startTime", "endTime", "errorMessage", "createdAt", "updatedAt"}
    )

    project: CamelProjectIn | None = None


class CamelJob(Schema):
    """A job in camelCase."""

    model_config = CAMEL_CASE

    id: UUID
    project_id: UUID
    user_id: UUID
    name: str
    status: Status
    config: dict[str, JsonValue] = Field(description="The config fields that the user set.")
    gpu_type: str | None
    host_memory: int | None
    start_time: datetime | None
    end_time: datetime | None
    error_message: str | None
    created_at: datetime
    updated_at: datetime


class CamelQueuedJob(CamelJob):
    """A job that was just created."""

    ignored: list[str] = Field(
        [], description="Fields of the request that were ignored because only the server sets them."
    )


class CamelJobs(Schema):
    items: list[CamelJob]
    total: int


class JobTotals(Schema):
    """The totals on the dashboard."""

    running: int
    queued: int
    completed: int
    failed: int
    training_seconds: float


class LastPoint(Schema):
    """The newest value of a curve, as the run reported it."""

    x: float
    attempt: int
    value: MetricNumber


class GapsOut(Schema):
    """Where values were NaN or infinite."""

    x: list[float]
    attempt: list[int]


class ClockOut(Schema):
    """When the steps of an attempt happened: pairs of step and seconds since 1970."""

    attempt: int
    x: list[int]
    time: list[float]


class CurveOut(Schema):
    """One curve. Where points were thinned, `value` is the mean of `count` values, `low` their minimum and
    `high` their maximum.
    """

    name: str
    rank: int
    axis: Literal["step", "time"]
    x: list[float]
    value: list[float]
    low: list[float]
    high: list[float]
    count: list[int]
    attempt: list[int]
    gaps: GapsOut
    last: LastPoint | None


class Curves(Schema):
    """The curves of a job. `position`: follow the stream from this position."""

    position: int
    series: list[CurveOut]
    clock: list[ClockOut] = Field([], description="Whole run; empty where only a range was asked for.")


class MetricRow(Schema):
    """The metrics of one step, one field per metric. Field names are in camelCase."""

    model_config = CAMEL_CASE

    training_job_id: UUID
    timestamp: datetime
    loss: float | None
    learning_rate: float | None
    gpu_utilization: float | None
    cpu_utilization: float | None
    memory_usage: int | None
    throughput: float | None = Field(
        description="Samples per second. Null for runs that do not report samples."
    )
    epoch: int | None
    step: int


class MetricRows(Schema):
    items: list[MetricRow]


class LogPage(Schema):
    """A part of the output. `start` and `end` are byte positions. To follow the output, send `after=end`
    next.
    """

    lines: list[str]
    start: int
    end: int


class LogMatches(Schema):
    lines: list[str]
    more: bool


class Script(Schema):
    """The files that start the run."""

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
    """A machine with a running worker."""

    name: str
    gpus: list[str]
    gpu_memory_bytes: list[int] = Field(description="Memory of each GPU, in the order of `gpus`.")
    cpu_cores: int
    host_memory_bytes: int
    last_seen_at: datetime


class Machines(Schema):
    items: list[Machine]


class ShareOut(Schema):
    id: UUID
    created_at: datetime


class NewShare(Schema):
    """A new share link. The link is returned only once."""

    link: str
    share: ShareOut


class Shares(Schema):
    items: list[ShareOut]
