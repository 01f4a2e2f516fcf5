"""The JSON of scripts: what `gpubloom.scripts` finds, in the API's spelling."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field

from gpubloom.scripts.requirements import Confidence
from gpubloom.server.schema import Schema, Storable

Value = TypeVar("Value")
# A notebook with its outputs is longer than its script; the body as a whole is limited as well.
_MOST_CHARACTERS = 1_000_000
SourceText = Annotated[str, Field(max_length=_MOST_CHARACTERS), Storable]
Word = Annotated[str, Field(max_length=1_000), Storable]
FileName = Annotated[str, Field(min_length=1, max_length=300), Storable]


class ScriptIn(Schema):
    """A script or a notebook, the files beside it by name, and its command line."""

    script: SourceText
    files: dict[FileName, SourceText] = Field({}, max_length=50)
    arguments: list[Word] = Field([], max_length=100)


class ColabNotebookIn(ScriptIn):
    """A script for Colab. `packages`: null takes what it seems to need."""

    entry: FileName = "train.py"
    packages: list[Word] | None = Field(None, max_length=100)
    name: Annotated[str, Field(min_length=1, max_length=100), Storable] | None = None
    gpu: Literal["T4", "L4", "A100", "H100"] = "T4"


class ScriptText(Schema):
    """A script."""

    script: SourceText


class NotebookText(Schema):
    """A notebook's file: JSON in a string."""

    notebook: SourceText


class EvidenceOut(Schema):
    """A line of the script, or of a file beside it; line 0 is its command line."""

    line: int
    text: str
    file: str | None


class DetectedOut(Schema, Generic[Value]):
    """A value: stated by the script, derived from what it says, or assumed; and the lines it rests on."""

    value: Value
    confidence: Confidence
    evidence: list[EvidenceOut]
    reason: str | None


class CheckpointsOut(Schema):
    """How a script saves, and how it goes on from there."""

    saves_with: str | None
    folder: str | None
    resumes_with: str | None
    resume_arguments: list[str]


class RequirementsOut(Schema):
    """What a script needs. Memory is per GPU; hours are with `gpus` GPUs of `referenceGpu`."""

    purpose: DetectedOut[Literal["train", "infer", "other"]]
    frameworks: list[DetectedOut[str]]
    packages: list[DetectedOut[str]]
    models: list[DetectedOut[str]]
    datasets: list[DetectedOut[str]]
    trackers: list[DetectedOut[str]]
    parallelism: list[DetectedOut[str]]
    method: DetectedOut[Literal["full", "lora", "qlora"]] | None
    parameters: DetectedOut[int] | None
    batch: DetectedOut[int] | None
    accumulation: DetectedOut[int] | None
    sequence: DetectedOut[int] | None
    dtype: DetectedOut[str] | None
    iterations: DetectedOut[int] | None
    epochs: DetectedOut[int] | None
    gpus: DetectedOut[int]
    multi_node: DetectedOut[bool]
    interactive: DetectedOut[bool]
    gpu_memory_gb: DetectedOut[float]
    duration_hours: DetectedOut[float]
    reference_gpu: str | None
    operations: DetectedOut[float] | None
    checkpoints: DetectedOut[CheckpointsOut] | None
    writes_tensorboard: DetectedOut[bool]
    notes: list[str]
