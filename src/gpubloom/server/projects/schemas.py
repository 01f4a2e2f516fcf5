"""The JSON of projects. The web app's form checks the same rules; a test keeps the two alike."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, field_validator

from gpubloom.server.projects.tables import Architecture
from gpubloom.server.schema import Line, Number, Schema, Text

LARGEST_MODEL = 10_000


class ProjectIn(Schema):
    """What a person says about a project."""

    name: Annotated[Line, Field(min_length=1, max_length=120)]
    description: Annotated[Text, Field(max_length=2000)] | None = None
    model_architecture: Architecture
    model_size: Annotated[
        Number,
        Field(gt=0, le=LARGEST_MODEL, allow_inf_nan=False, description="Billions of parameters."),
    ]
    training_data_path: Annotated[Line, Field(max_length=1024)] | None = None

    @field_validator("description", "training_data_path", mode="after")
    @classmethod
    def _empty_is_absent(cls, text: str | None) -> str | None:
        return text or None


class ProjectOut(Schema):
    id: UUID
    user_id: UUID
    name: str
    description: str | None
    model_architecture: Architecture
    model_size: float
    training_data_path: str | None
    created_at: datetime
    updated_at: datetime


class Projects(Schema):
    items: list[ProjectOut]
    total: int
