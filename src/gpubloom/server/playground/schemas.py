"""The JSON of playgrounds."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.schema import Schema

State = Literal["waiting", "loading", "ready", "stopping", "ended"]


class OpenPlayground(Schema):
    """The model to load: a training job, one of its checkpoints, or a stored model."""

    job_id: UUID | None = None
    checkpoint_id: UUID | None = Field(
        None, description="A checkpoint of the job. If empty: the finished model."
    )
    other_checkpoint_id: UUID | None = Field(
        None, description="Another checkpoint of the job to compare with; it answers as model other."
    )
    model_id: UUID | None = None
    idle_minutes: Annotated[float, Field(gt=0, le=10_080, allow_inf_nan=False)] = Field(
        10.0, description="Unload the model after this number of minutes without a request."
    )


class PlaygroundOut(Schema):
    """A model that is loaded or loading. `models`: the names to use in requests, once it is loaded."""

    job: JobOut
    state: State
    models: list[str]
    context_length: int | None
    chat_template: bool | None
    last_used_at: datetime | None


class Playgrounds(Schema):
    items: list[PlaygroundOut]


class ModelCard(BaseModel):
    """A model in OpenAI's list format. `name` and `ready` are our additions."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "gpubloom"
    name: str
    ready: bool


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]
