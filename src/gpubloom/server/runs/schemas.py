"""The JSON of the run list that only the server has: views, tags and notes."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field, JsonValue

from gpubloom.runs.table import DEFAULT_COLUMNS, SEEDS
from gpubloom.server.schema import Line, Schema, Text, storable
from gpubloom.traincard.number_encoding import plain

MOST_VIEWS = 100
Tag = Annotated[Line, Field(min_length=1, max_length=60)]
Column = Annotated[Line, Field(min_length=1, max_length=200)]


class RunChange(Schema):
    """The fields of a run to change. Fields that are left out keep their values."""

    tags: Annotated[list[Tag], Field(max_length=50)] | None = None
    notes: Annotated[Text, Field(max_length=20_000)] | None = None


class RunLabels(Schema):
    """The tags and notes of a run."""

    id: UUID
    tags: list[str]
    notes: str


def _as_stored(config: dict[str, JsonValue] | None) -> Any:
    """As a database holds it. The run is not refused because of a character or a NaN in its config."""
    return plain(config, text=storable)


class SentRunIn(Schema):
    """A run that a Reporter sends. The sender chooses the id, so that asking twice is asking once."""

    id: UUID
    project: Annotated[
        Line, Field(min_length=1, max_length=120, description="Name of a project. A new one is created.")
    ]
    name: Annotated[Line, Field(min_length=1, max_length=200)]
    host: Annotated[Line, Field(max_length=120, description="The machine that sends the run.")] = ""
    config: Annotated[dict[str, JsonValue] | None, AfterValidator(_as_stored)] = Field(
        None, description="The config of the run, if it has one."
    )


class SentRun(Schema):
    """Where the server stands with a run that is sent."""

    id: UUID
    project_id: UUID
    next: int = Field(description="The number of the batch that the server expects.")


class ViewIn(Schema):
    """A view of the run list: what it filters, shows, groups and sorts."""

    name: Annotated[Line, Field(min_length=1, max_length=80)]
    query: Annotated[Line, Field(max_length=2_000)] = ""
    columns: list[Column] = Field(list(DEFAULT_COLUMNS), max_length=40)
    group: list[Column] = Field([SEEDS], max_length=4)
    sort: Annotated[Line, Field(max_length=400)] = "-created"


class ViewOut(ViewIn):
    id: UUID
    updated_at: datetime


class Views(Schema):
    items: list[ViewOut]
