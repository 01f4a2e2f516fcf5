"""The JSON of projects: in camelCase, as in the product's first description."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, computed_field, field_validator

from gpubloom.plan import preset_for, preset_label
from gpubloom.server.schema import CAMEL_CASE, Line, Number, Schema, Text, Writable

Architecture = Literal["transformer", "custom"]

LARGEST_MODEL = 10_000


Name = Annotated[Line, Field(min_length=1, max_length=120)]
Billions = Annotated[
    Number,
    Field(gt=0, le=LARGEST_MODEL, allow_inf_nan=False, description="Number of parameters, in billions."),
]


class ProjectIn(Writable):
    """A project, as a user describes it."""

    name: Name
    description: Annotated[Text, Field(max_length=2000)] | None = None
    model_architecture: Architecture | None = None
    model_size: Billions | None = None
    training_data_path: (
        Annotated[
            Line,
            Field(
                max_length=1024,
                description="A path on the server, a remote address, or dataset:// and the id of a dataset.",
            ),
        ]
        | None
    ) = None

    @field_validator("description", "training_data_path", mode="after")
    @classmethod
    def _empty_is_absent(cls, text: str | None) -> str | None:
        return text or None


class CamelProjectIn(ProjectIn):
    """A project, as a user describes it. A project that was read earlier is accepted too."""

    model_config = CAMEL_CASE
    READ_ONLY = frozenset({"id", "userId", "modelPreset", "createdAt", "updatedAt"})


class ProjectChange(CamelProjectIn):
    """The fields of a project to change. Fields that are left out keep their values."""

    # Never used: only fields that were sent are changed. A name cannot be null.
    name: Name = ""


class Preset(Schema):
    """The sizes of a new model: the value of `model.preset` in a config, and how forms call it."""

    name: str
    label: str


class ProjectOut(Schema):
    model_config = CAMEL_CASE

    id: UUID
    user_id: UUID
    name: str
    description: str | None
    model_architecture: Architecture | None
    model_size: float | None
    training_data_path: str | None
    created_at: datetime
    updated_at: datetime

    @computed_field(description="The preset of this model size, with which the project's jobs begin.")  # type: ignore[prop-decorator]
    @property
    def model_preset(self) -> Preset | None:
        if self.model_size is None:
            return None
        name = preset_for(self.model_size)
        return Preset(name=name, label=preset_label(name))


class Projects(Schema):
    items: list[ProjectOut]
    total: int
