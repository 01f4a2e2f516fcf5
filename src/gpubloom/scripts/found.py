"""What a script needs, value by value: each says where it stands in the script and how sure it is."""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

# stated: the script says so. derived: it follows from what the script says. assumed: a rule of thumb, because
# the script says nothing about it.
Confidence = Literal["stated", "derived", "assumed"]

Value = TypeVar("Value")


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ScriptProblem(ValueError):
    """A script that cannot be read; the message is a sentence, `line` where it stops making sense."""

    def __init__(self, sentence: str, line: int | None = None) -> None:
        super().__init__(sentence)
        self.line = line


class Evidence(_Answer):
    """A line of the script, or of a file beside it."""

    line: int
    text: str
    file: str | None = None


class Found(_Answer, Generic[Value]):
    """One value, the lines it comes from, and why where that is not plain."""

    value: Value
    confidence: Confidence
    evidence: tuple[Evidence, ...] = ()
    reason: str | None = None


class Checkpoints(_Answer):
    """How a script saves what it has learned, and how it goes on from there."""

    saves_with: str | None = None
    folder: str | None = None
    resumes_with: str | None = None
    # What to add to the command line so that it resumes; empty when it does so by itself, or cannot.
    resume_arguments: tuple[str, ...] = ()


class Requirements(_Answer):
    """What a script needs of a machine. Memory is per GPU; hours are with `gpus` GPUs of `reference_gpu`."""

    purpose: Found[Literal["train", "infer", "other"]]
    frameworks: tuple[Found[str], ...] = ()
    packages: tuple[Found[str], ...] = ()
    models: tuple[Found[str], ...] = ()
    datasets: tuple[Found[str], ...] = ()
    trackers: tuple[Found[str], ...] = ()
    parallelism: tuple[Found[str], ...] = ()
    method: Found[Literal["full", "lora", "qlora"]] | None = None
    parameters: Found[int] | None = None
    batch: Found[int] | None = None
    accumulation: Found[int] | None = None
    sequence: Found[int] | None = None
    dtype: Found[str] | None = None
    iterations: Found[int] | None = None
    epochs: Found[int] | None = None
    gpus: Found[int]
    multi_node: Found[bool]
    interactive: Found[bool]
    gpu_memory_gb: Found[float]
    duration_hours: Found[float]
    # None: no GPU is needed.
    reference_gpu: str | None = None
    # Floating-point operations of the whole run, where they can be told.
    operations: Found[float] | None = None
    checkpoints: Found[Checkpoints] | None = None
    writes_tensorboard: Found[bool]
    notes: tuple[str, ...] = ()
