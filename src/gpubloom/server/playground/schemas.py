"""The JSON of playgrounds."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.schema import Schema

State = Literal["waiting", "loading", "ready", "stopping", "ended"]


class OpenPlayground(Schema):
    """A training, one checkpoint of it, or a model: what to talk to."""

    job_id: UUID | None = None
    checkpoint_id: UUID | None = Field(None, description="Of that job; without one, its finished model.")
    model_id: UUID | None = None
    idle_minutes: Annotated[float, Field(gt=0, le=10_080, allow_inf_nan=False)] = Field(
        10.0, description="It is unloaded when nobody asks for so long."
    )


class PlaygroundOut(Schema):
    """A model that is loaded, or on its way. `models`: what a request may name, once it is ready."""

    job: JobOut
    state: State
    models: list[str]
    context_length: int | None
    chat_template: bool | None
    last_used_at: datetime | None


class Playgrounds(Schema):
    items: list[PlaygroundOut]


class ModelCard(BaseModel):
    """A model as OpenAI clients list it; `name` and `ready` are ours."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "gpubloom"
    name: str
    ready: bool


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]
