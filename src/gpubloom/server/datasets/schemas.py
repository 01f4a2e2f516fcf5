"""The JSON of datasets and of their inspection reports."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.datasets import FIELDS, Format, Mapping
from gpubloom.datasets.documents.passages import CHARACTERS, LEAST_CHARACTERS, MOST_CHARACTERS
from gpubloom.server.datasets.tables import Source, Status
from gpubloom.server.schema import Finding, Line, Schema, Storable, Whole
from gpubloom.server.storage.uploads import LARGEST_OFFSET

Encoding = Literal["utf-8", "utf-16", "utf-16-le", "utf-16-be", "windows-1252", "latin-1"]
ColumnName = Annotated[str, Storable, Field(min_length=1, max_length=500)]
Columns = Annotated[dict[Annotated[str, Field(max_length=40)], ColumnName], Field(max_length=10)]
Name = Annotated[Line, Field(min_length=1, max_length=200)]
RepositoryName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$")]
# A branch, a tag or a commit; a config or a split: words that are safe in an address.
HubWord = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w][\w./=+-]*$")]


class MappingOut(Schema):
    """The column for each field of a format."""

    format: Format
    columns: dict[str, str]


class DetectionOut(Schema):
    """The detected format, the confidence, and the reason."""

    mapping: MappingOut | None
    confidence: float
    reason: str


class ColumnOut(Schema):
    name: str
    filled: int
    missing: int
    types: dict[str, int]


class RowProblemOut(Schema):
    """A row that cannot be used (`fatal`), or that is used differently than expected."""

    row: int
    line: int | None
    reason: str
    fatal: bool
    code: str | None = None


class ProblemsFound(Schema):
    """The number of problems by kind, and the first problems. /problems lists the others."""

    rows_refused: int
    remarks: int
    kinds: dict[str, int]
    first: list[RowProblemOut]


class Bar(Schema):
    """Number of rows with a length from `begin` (inclusive) to `end` (exclusive)."""

    begin: int
    end: int
    rows: int


class LengthsOut(Schema):
    """How long the rows are. Reports of earlier versions have no median."""

    model_config = ConfigDict(extra="ignore")

    unit: str
    total: int
    trained: int
    longest: Annotated[
        list[tuple[int, int]], Field(description="Row number and length of the longest rows, longest first.")
    ]
    median: Annotated[int, Field(description="50 % of the rows are no longer than this.")] = 0
    percentile_95: Annotated[int, Field(description="95 % of the rows are no longer than this.")] = 0
    histogram: list[Bar]
    too_long: int
    first_too_long: list[int]


class DuplicatesOut(Schema):
    """Rows with the same content as an earlier row."""

    repeated: int
    groups: int
    first: list[list[int]]


class ReportOut(Schema):
    """The inspection report of a file. If `mapping` is null, the columns are unclear: set them."""

    kind: str
    encoding: str | None
    notes: list[str]
    rows: int
    blank_lines: int
    columns: list[ColumnOut]
    paths: list[str] = Field([], description="Paths into lists and objects, such as instances[0].output.")
    unused_columns: list[str] = Field([], description="Columns that the mapping does not use.")
    detection: DetectionOut
    mapping: MappingOut | None
    examples: int
    problems: ProblemsFound
    lengths: LengthsOut | None
    duplicates: DuplicatesOut | None


class ReadAs(Schema):
    """How to read a file, instead of the detected format."""

    format: Format | None = None
    columns: Annotated[Columns, Field(description="The column for each field, as {field: column}.")] = Field(
        default_factory=dict
    )
    encoding: Encoding | None = None

    @model_validator(mode="after")
    def _columns_make_the_format(self) -> "ReadAs":
        if not self.columns:
            return self
        if self.format is None:
            self.format = Mapping.by_hand(self.columns).format
            return self
        needed, optional = FIELDS[self.format]
        missing = set(needed) - set(self.columns)
        unknown = set(self.columns) - {*needed, *optional}
        if missing:
            raise PydanticCustomError(
                "incomplete_mapping",
                f"Format {self.format} also needs a column for {', '.join(sorted(missing))}.",
            )
        if unknown:
            raise PydanticCustomError(
                "incomplete_mapping", f"Format {self.format} has no field {', '.join(sorted(unknown))}."
            )
        return self


class NewDataset(ReadAs):
    """A file to upload."""

    name: Name | None = None
    filename: Annotated[str, Field(min_length=1, max_length=1024)]
    size: Annotated[Whole, Field(ge=0, le=LARGEST_OFFSET, description="Size of the file in bytes.")]


class DatasetFromHub(Schema):
    """A dataset on the Hugging Face Hub, by its id."""

    name: Name | None = None
    repository: RepositoryName
    config: HubWord | None = None
    split: HubWord | None = None
    revision: HubWord | None = None


class DatasetChange(ReadAs):
    """The new name, or how to read the file. A change of the latter starts a new inspection."""

    name: Name | None = None


class OriginOut(Schema):
    """Where the dataset comes from on the Hugging Face Hub. `notes` says what was chosen or left out."""

    repository: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    notes: list[str] = Field(default_factory=list)


PassageCharacters = Annotated[
    Whole,
    Field(
        ge=LEAST_CHARACTERS,
        le=MOST_CHARACTERS,
        title="Passage length",
        description="Most characters of a passage. Passages end between paragraphs or sentences.",
    ),
]


class NewDocuments(Schema):
    """Documents to upload: one document, or a .zip of a folder. Each passage becomes a row."""

    name: Name | None = None
    filename: Annotated[str, Field(min_length=1, max_length=1024)]
    size: Annotated[Whole, Field(ge=0, le=LARGEST_OFFSET, description="Size of the file in bytes.")]
    passage_characters: PassageCharacters = CHARACTERS


class CutAgain(Schema):
    """Another length of the passages of uploaded documents."""

    passage_characters: PassageCharacters


class DocumentsOut(Schema):
    """What became of uploaded documents. `problems`: documents that give no text."""

    filename: str
    size: int
    passage_characters: int
    files: int = 0
    problems: int = 0
    pages: int = 0
    passages: int = 0
    characters: int = 0


class DocumentOut(Schema):
    """One document of an upload. `code` and `problem` say why it gives no text; `notes` what is left out."""

    file: str
    size: int
    pages: int | None
    passages: int
    characters: int
    notes: list[str]
    code: str | None
    problem: str | None


class Documents(Schema):
    items: list[DocumentOut]
    total: int


class QuestionsOut(Schema):
    """Questions that a model writes about the passages of a dataset: the order, and how far it is.

    `endpoint` is null for a playground of this server. `end_reason` says why not all passages were asked.
    """

    model_config = ConfigDict(extra="ignore")

    dataset_id: UUID
    endpoint: str | None
    model: str
    secret: str | None
    pairs: int
    max_answer_tokens: int
    most_tokens: int
    passages: int
    passages_done: int = 0
    pairs_kept: int = 0
    rejected: int = 0
    tokens: int = 0
    end_reason: str | None = None


class RowSourceOut(Schema):
    """Where a row comes from: file, number of the passage in it, pages (PDF) or headings."""

    model_config = ConfigDict(extra="ignore")

    file: str
    passage: int
    page: int | None = None
    last_page: int | None = None
    heading: str | None = None
    text: Annotated[str | None, Field(description="The passage that a question is about.")] = None


class DatasetOut(Schema):
    id: UUID
    name: str
    filename: str
    size: int
    received: int
    status: Status
    source: Source
    format: Format | None
    columns: dict[str, str]
    encoding: Encoding | None
    origin: OriginOut | None
    documents: DocumentsOut | None
    questions: QuestionsOut | None
    report: ReportOut | None
    problem: str | None
    progress: float | None
    created_at: datetime


class Datasets(Schema):
    items: list[DatasetOut]
    total: int


class PieceOut(Schema):
    """A part of the text that the model sees."""

    text: str
    trained: bool


class PreviewRowOut(Schema):
    """One row, as stored and as the model sees it. `cut`: the row is shortened."""

    number: int
    line: int | None
    raw: JsonValue
    pieces: list[PieceOut]
    source: Annotated[
        RowSourceOut | None, Field(description="Of rows from documents: where it comes from.")
    ] = None
    tokens: int | None
    trained_tokens: int | None
    too_long: bool | None
    problem: str | None
    remarks: list[str]
    cut: bool


class PreviewOut(Schema):
    """A page of rows. `total` is null until the rows are counted."""

    items: list[PreviewRowOut]
    total: int | None
    mapping_reason: str | None
    notes: list[str]


class RowProblems(Schema):
    """The problems of a dataset. `total` counts all problems; only the first ones are stored."""

    items: list[RowProblemOut]
    total: int
    kept: int


class SideCountsOut(Schema):
    """One side of the split. A sequence is a row of the trainer; it holds one or more packed examples."""

    examples: int
    tokens: int
    trained_tokens: int
    sequences: int
    longest: Annotated[int, Field(description="Tokens of the longest example.")]


class FilePreflightOut(Schema):
    """What would become of the rows of one dataset."""

    name: str
    rows: int
    used: int
    unusable: int
    rejected_by_template: int
    truncated: int
    skipped_too_long: int
    tokens_removed: int
    unused_columns: list[str]
    problems: list[RowProblemOut]
    weight: Annotated[float, Field(description="How often an epoch trains each example of the dataset.")]
    train_examples: Annotated[int, Field(description="Examples of the dataset that an epoch trains.")]
    train_tokens: int


class PreflightOut(Schema):
    """What a job would train and evaluate on: exact counts, and findings about them."""

    train: SideCountsOut
    eval: SideCountsOut | None
    train_file: FilePreflightOut
    eval_file: FilePreflightOut | None
    mixed_files: Annotated[
        list[FilePreflightOut], Field(description="Datasets that are trained together with the first.")
    ]
    sequence_length: int
    truncated_share: float
    duplicates: Annotated[int, Field(description="Examples that repeat an earlier one of their dataset.")]
    overlap: Annotated[int, Field(description="Validation examples that are also in the training data.")]
    steps: Annotated[int, Field(description="Optimizer steps of the whole run.")]
    findings: list[Finding]
