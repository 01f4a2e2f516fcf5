"""The JSON of /training-jobs, in camelCase."""

from datetime import datetime
from uuid import UUID

from pydantic import Field, JsonValue

from gpubloom.server.jobs.new_job_schemas import NewJob
from gpubloom.server.jobs.states import Status
from gpubloom.server.projects.schemas import CamelProjectIn
from gpubloom.server.schema import CAMEL_CASE, Schema


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
