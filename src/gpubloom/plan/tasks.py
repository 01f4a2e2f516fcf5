"""What can be asked of a model besides training it: talk to it, evaluate it, export it, find a learning rate.

A task is a value like TrainConfig, validated once for the command line, the server and the engine. It lies as
task.json in a directory of its own, and its answer as result.json beside it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan import limits
from gpubloom.plan.config import TrainConfig
from gpubloom.plan.fields import shown
from gpubloom.plan.validation import InvalidConfig, Part

TASK_FILE = "task.json"
TASK_SCRIPT = "task.py"
RESULT_FILE = "result.json"
# Whoever starts the task may leave a token here for it; it is gone before anything else happens.
TOKEN_FILE = "hub-token"  # noqa: S105 - a name, not a token
# Where a model that is served listens, and the socket itself.
SERVE_FILE = "serve.json"
SOCKET_FILE = "serve.sock"

Prompts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=limits.MAX_PROMPT_CHARACTERS)], ...],
    Field(max_length=limits.MAX_PROMPTS),
]

_SCRIPT = '''\
"""Runs the task that task.json in this folder describes, and writes result.json."""

from pathlib import Path

from gpubloom.engine.tasks import run_task

if __name__ == "__main__":
    run_task(Path(__file__).parent)
'''


class OfAModel(Part):
    """A task that uses a trained model: a run directory, a checkpoint, or a model folder."""

    model: str = Field(min_length=1, description="Path of a run directory, a checkpoint, or a model folder.")
    base: str | None = Field(
        None,
        min_length=1,
        description="Base model that was fine-tuned; the default is the base model of the run. "
        "Required for an adapter without a run.",
    )
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")


class ServeTask(OfAModel):
    """Keeps a model in memory and answers HTTP requests on loopback until it is idle for some minutes."""

    kind: Literal["serve"] = "serve"
    idle_minutes: float = Field(10.0, gt=0, le=10_080)
    other: str | None = Field(
        None, min_length=1, description="Path of another checkpoint of the same run, to compare with."
    )


class SamplingSettings(BaseModel):
    """Sampling settings of an answer, named as in OpenAI's API."""

    temperature: float | None = Field(
        None, ge=0, le=2, description="Randomness of the answer; 0 always takes the most likely token."
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Nucleus sampling: draws only from the most "
        "likely tokens whose probabilities add up to this value.",
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Random seed; the same seed gives the same answer."
    )
    max_tokens: int | None = Field(None, ge=1, description="Maximum length of the answer, in tokens.")


class EvaluationSettings(BaseModel):
    """Settings of an evaluation; requests to the server have the same fields."""

    max_new_tokens: int = Field(
        128, ge=1, le=4_096, description="Maximum length of the answer to a prompt, in tokens."
    )
    max_batches: int = Field(
        20,
        ge=1,
        le=limits.MAX_STEPS,
        description="Maximum number of held-out batches that the evaluation uses.",
    )


class EvaluateTask(OfAModel, EvaluationSettings):
    """Perplexity on held-out data and answers to prompts, for the base model and the trained model."""

    kind: Literal["evaluate"] = "evaluate"
    data_path: str | None = Field(
        None, min_length=1, description="Data to evaluate on; the default is the held-out data of the run."
    )
    fetches_data: bool = Field(
        True,
        description="Whether the data of the run is fetched if it has an address. A server fetches data "
        "before the start, by its rules for outgoing connections.",
    )
    prompts: Prompts = ()
    lm_eval_tasks: tuple[str, ...] = Field(
        (), description="Names of lm-eval tasks; requires pip install 'gpubloom[eval]'."
    )


RepositoryName = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$", max_length=120)]


class HubDestination(Part):
    """A repository on a model hub."""

    repository: RepositoryName
    private: bool = True


ExportFormName = Literal["adapter", "merged", "gguf"]


class ExportSettings(BaseModel):
    """Settings of an export; requests to the server have the same fields."""

    form: ExportFormName = Field(
        "merged",
        json_schema_extra=shown(
            choices={
                "merged": ("Merged", "the whole model, for transformers and vLLM"),
                "adapter": ("Adapter", "only the adapter weights, for PEFT"),
                "gguf": ("GGUF", "one file, for llama.cpp and Ollama"),
            }
        ),
    )
    dtype: Literal["fp32", "bf16", "fp16"] = Field(
        "bf16",
        description="Number format of the exported weights; fp32 loses nothing and takes twice the space.",
        json_schema_extra=shown(choices={"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}),
    )


class ExportTask(OfAModel, ExportSettings):
    """Writes a model for use in other programs, and compares answers to prompts before and after."""

    kind: Literal["export"] = "export"
    average_with: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        max_length=limits.MAX_AVERAGED_CHECKPOINTS - 1,
        description="Paths of other checkpoints of the same run. The mean of `model` and these is exported.",
    )
    name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Name of the model in a GGUF file; the default is the name of its folder.",
    )
    prompts: Prompts = Field(
        (),
        description="Prompts to compare before and after the export; the default is "
        "some prompts of the data.",
    )
    hub: HubDestination | None = Field(
        None, description="Repository to push the export to, after it is written and checked."
    )


class SweepSettings(BaseModel):
    """Settings of the learning-rate finder; requests to the server have the same fields."""

    lowest: float = Field(1e-6, gt=0, le=limits.MAX_LEARNING_RATE, allow_inf_nan=False)
    highest: float = Field(1e-1, gt=0, le=limits.MAX_LEARNING_RATE, allow_inf_nan=False)
    steps: int = Field(60, ge=10, le=1_000)


class FindLearningRateTask(Part, SweepSettings):
    """A short run that raises the learning rate at every step, to find where the loss falls fastest."""

    kind: Literal["find_learning_rate"] = "find_learning_rate"
    train: TrainConfig

    @model_validator(mode="after")
    def _rates_grow(self) -> "FindLearningRateTask":
        if self.highest < 10 * self.lowest:
            raise PydanticCustomError(
                "rates_too_close", "highest must be at least ten times as large as lowest"
            )
        return self


class Result(BaseModel):
    """Base of task results. Unknown fields of a newer engine are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_serialization_defaults_required=True)


Task = ServeTask | EvaluateTask | ExportTask | FindLearningRateTask

_KINDS: dict[str, type[Task]] = {
    "serve": ServeTask,
    "evaluate": EvaluateTask,
    "export": ExportTask,
    "find_learning_rate": FindLearningRateTask,
}


class Measured(Result):
    """Loss and perplexity of a model on held-out text."""

    loss: float | None = None
    perplexity: float | None = None
    tokens: int | None = None


class BaseAndTuned(Result):
    """The measurements of the base model and of the model that was trained from it."""

    base: Measured | None = None
    tuned: Measured | None = None


class Answers(Result):
    """Answers of the base model and of the trained model to one prompt."""

    prompt: str = ""
    base: str | None = None
    tuned: str | None = None


class Benchmarks(Result):
    """Scores of lm-eval, by task and metric."""

    base: dict[str, dict[str, float | None]] | None = None
    tuned: dict[str, dict[str, float | None]] | None = None


class EvaluationResult(Result):
    """The result of an evaluation."""

    kind: Literal["evaluate"] = "evaluate"
    perplexity: BaseAndTuned = BaseAndTuned()
    prompts: tuple[Answers, ...] = ()
    lm_eval: Benchmarks | None = None
    notes: tuple[str, ...] = ()


class ExportedFile(Result):
    path: str = ""
    size: int = 0


class ReplayedPrompt(Result):
    """The answer to one prompt before and after an export."""

    prompt: str = ""
    before: str = ""
    after: str = ""
    same: bool = False


class PushedTo(Result):
    """The hub repository that received the files."""

    repository: str
    url: str | None = None
    revision: str | None = None


class ExportResult(Result):
    """The result of an export."""

    kind: Literal["export"] = "export"
    form: ExportFormName = "merged"
    dtype: str | None = None
    files: tuple[ExportedFile, ...] = ()
    bytes: int | None = None
    replay: tuple[ReplayedPrompt, ...] = ()
    same: int = 0
    of: int = 0
    largest_logit_difference: float | None = None
    hub: PushedTo | None = None
    notes: tuple[str, ...] = ()


class TriedRate(Result):
    """One step of a learning-rate sweep."""

    learning_rate: float
    loss: float
    smoothed: float


class FinderResult(Result):
    """The result of a learning-rate finder. `suggested` is None when the sweep gives no clear answer."""

    kind: Literal["find_learning_rate"] = "find_learning_rate"
    points: tuple[TriedRate, ...] = ()
    suggested: float | None = None
    reason: str | None = None
    diverged_at: float | None = None
    notes: tuple[str, ...] = ()


class ServeResult(Result):
    """Totals of a served model: requests and tokens."""

    kind: Literal["serve"] = "serve"
    requests: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    notes: tuple[str, ...] = ()


TaskResult = EvaluationResult | ExportResult | FinderResult | ServeResult

_RESULTS: dict[str, type[TaskResult]] = {
    "evaluate": EvaluationResult,
    "export": ExportResult,
    "find_learning_rate": FinderResult,
    "serve": ServeResult,
}


def result_from(kind: str, fields: dict[str, Any]) -> TaskResult:
    """A task's answer from its result.json; ValueError with a sentence for one that is none."""
    model = _RESULTS[kind]
    try:
        return model.model_validate({**fields, "kind": kind})
    except ValidationError as problem:
        raise InvalidConfig(problem, model) from None


def task_from(fields: dict[str, Any]) -> Task:
    """A task from JSON values; ValueError with a sentence that names what is wrong."""
    kind = fields.get("kind")
    if kind not in _KINDS:
        raise InputError("unknown_task", f"unknown task kind {kind!r}; available kinds: {', '.join(_KINDS)}")
    try:
        return _KINDS[kind].model_validate(fields)
    except ValidationError as problem:
        raise InvalidConfig(problem, _KINDS[kind]) from None


def read_task(folder: Path) -> Task:
    """The task of a directory."""
    return task_from(read_json(folder / TASK_FILE))


def task_files(task: Task, package_version: str) -> dict[str, str]:
    """File name to text: what a directory needs so that `python task.py` does the task."""
    return {
        TASK_FILE: task.model_dump_json(indent=2) + "\n",
        TASK_SCRIPT: _SCRIPT,
        "requirements.txt": f"gpubloom[train]=={package_version}\n",
    }
