"""The JSON of jobs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, field_validator

from gpubloom.offers.prices import Granularity, PriceKind
from gpubloom.plan import Plan, TrainConfig, limits
from gpubloom.plan.tasks import Task, TaskResult
from gpubloom.scripts.task import ScriptTask
from gpubloom.server.jobs.states import Kind, Status
from gpubloom.server.jobs.summary import CheckpointDetails, RunSummary, RunWarning
from gpubloom.server.schema import MetricNumber, Schema, Span
from gpubloom.server.storage.schemas import StoreOut
from gpubloom.traincard.control import Want


class MixedDatasetOut(Schema):
    """A dataset that a job trains on together with `dataset_id`. The name is None once it is deleted."""

    dataset_id: UUID
    name: str | None
    weight: float


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


class JobTotals(Schema):
    """The totals on the dashboard."""

    running: int
    queued: int
    completed: int
    failed: int
    training_seconds: float


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
