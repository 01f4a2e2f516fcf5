"""The JSON of what an inspection found."""

from typing import Annotated

from pydantic import Field

from gpubloom.datasets import Format
from gpubloom.server.schema import Schema


class MappingOut(Schema):
    """Which column is which field of a format."""

    format: Format
    columns: dict[str, str]


class DetectionOut(Schema):
    """The best guess, how sure it is, and why."""

    mapping: MappingOut | None
    confidence: float
    reason: str


class ColumnOut(Schema):
    name: str
    filled: int
    missing: int
    types: dict[str, int]


class RowProblemOut(Schema):
    """A row that cannot be used (`fatal`), or that is used otherwise than one might expect."""

    row: int
    line: int | None
    reason: str
    fatal: bool


class ProblemsFound(Schema):
    """How many, of which kinds, and the first ones; the others are at /problems."""

    rows_refused: int
    remarks: int
    kinds: dict[str, int]
    first: list[RowProblemOut]


class Bar(Schema):
    """How many rows are from (inclusive) to (exclusive) so long."""

    begin: int
    end: int
    rows: int


class LengthsOut(Schema):
    unit: str
    total: int
    trained: int
    longest: Annotated[list[tuple[int, int]], Field(description="Row and length, the longest first.")]
    half_below: int
    most_below: Annotated[int, Field(description="95 of 100 rows are shorter.")]
    histogram: list[Bar]
    too_long: int
    first_too_long: list[int]


class DuplicatesOut(Schema):
    """Rows that say the same as an earlier one."""

    repeated: int
    groups: int
    first: list[list[int]]


class ReportOut(Schema):
    """What a file holds. Without a mapping nobody knows which column is what: name them."""

    kind: str
    encoding: str | None
    notes: list[str]
    rows: int
    blank_lines: int
    columns: list[ColumnOut]
    detection: DetectionOut
    mapping: MappingOut | None
    examples: int
    problems: ProblemsFound
    lengths: LengthsOut | None
    duplicates: DuplicatesOut | None
