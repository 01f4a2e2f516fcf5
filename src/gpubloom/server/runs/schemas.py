"""The JSON of the run list that only the server has: views, tags and notes."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from gpubloom.runs.table import DEFAULT_COLUMNS, SEEDS
from gpubloom.server.schema import Line, Schema, Text

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


class ViewIn(Schema):
    """A view of the run list: what it filters, shows, groups and sorts."""

    name: Annotated[Line, Field(min_length=1, max_length=80)]
    query: Annotated[Line, Field(max_length=2_000)] = ""
    columns: Annotated[list[Column], Field(max_length=40)] = list(DEFAULT_COLUMNS)
    group: Annotated[list[Column], Field(max_length=4)] = [SEEDS]
    sort: Annotated[Line, Field(max_length=400)] = "-created"


class ViewOut(ViewIn):
    id: UUID
    updated_at: datetime


class Views(Schema):
    items: list[ViewOut]
