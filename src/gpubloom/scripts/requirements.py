"""What a script needs, value by value: each says where it stands in the script and how sure it is."""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from gpubloom.errors import InputError
from gpubloom.plan.config import Method

# stated: the script says so. derived: it follows from what the script says. assumed: a rule of thumb, because
# the script says nothing about it.
Confidence = Literal["stated", "derived", "assumed"]

Value = TypeVar("Value")


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class ScriptProblem(InputError):
    """A script that cannot be read; the message is a sentence, `line` where it stops making sense."""

    def __init__(self, code: str, sentence: str, line: int | None = None) -> None:
        super().__init__(code, sentence)
        self.line = line


class Evidence(_Answer):
    """A line of the script, or of another file of the job."""

    line: int
    text: str
    file: str | None = None


class Detected(_Answer, Generic[Value]):
    """One value, the lines it comes from, and a reason if the lines do not show it."""

    value: Value
    confidence: Confidence
    evidence: tuple[Evidence, ...] = ()
    reason: str | None = None


class ScriptCheckpoints(_Answer):
    """How a script saves checkpoints, and how it resumes from them."""

    saves_with: str | None = None
    folder: str | None = None
    resumes_with: str | None = None
    # What to add to the command line so that it resumes; empty when it does so by itself, or cannot.
    resume_arguments: tuple[str, ...] = ()


class HubDataset(_Answer):
    """A dataset of the Hugging Face Hub, as `load_dataset` is called."""

    name: str
    config: str | None = None


class StatedDuration(_Answer):
    """Hours that a comment states. `gpu`: the GPU type that it names, if it names one; `gpus`: how many."""

    low_hours: float
    high_hours: float
    gpu: str | None = None
    gpus: int | None = None


class Requirements(_Answer):
    """What a script needs from a machine. Memory is per GPU; hours are for `gpus` GPUs of `reference_gpu`,
    unless they were stated without a GPU."""

    @property
    def hours_of_any_gpu(self) -> bool:
        """Whether the hours are a statement that names no GPU: nobody can convert them to another."""
        stated = self.stated_duration
        return stated is not None and stated.value.gpu is None and bool(self.duration_hours.evidence)

    purpose: Detected[Literal["train", "infer", "other"]]
    frameworks: tuple[Detected[str], ...] = ()
    packages: tuple[Detected[str], ...] = ()
    models: tuple[Detected[str], ...] = ()
    datasets: tuple[Detected[str], ...] = ()
    # What the script downloads from the Hugging Face Hub, where its code says so.
    hub_models: tuple[str, ...] = ()
    hub_datasets: tuple[HubDataset, ...] = ()
    trackers: tuple[Detected[str], ...] = ()
    parallelism: tuple[Detected[str], ...] = ()
    method: Detected[Method] | None = None
    parameters: Detected[int] | None = None
    batch: Detected[int] | None = None
    accumulation: Detected[int] | None = None
    sequence: Detected[int] | None = None
    dtype: Detected[str] | None = None
    iterations: Detected[int] | None = None
    epochs: Detected[int] | None = None
    gpus: Detected[int]
    multi_node: Detected[bool]
    interactive: Detected[bool]
    gpu_memory_gb: Detected[float]
    duration_hours: Detected[float]
    # What a comment says of it, as a range. Hours that a person set instead come without evidence.
    stated_duration: Detected[StatedDuration] | None = None
    # None: no GPU is needed.
    reference_gpu: str | None = None
    # Floating-point operations of the whole run, where they can be told.
    operations: Detected[float] | None = None
    checkpoints: Detected[ScriptCheckpoints] | None = None
    writes_tensorboard: Detected[bool]
    notes: tuple[str, ...] = ()
