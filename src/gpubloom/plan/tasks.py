"""What can be asked of a model besides training it: talk to it, evaluate it, export it, find a learning rate.

A task is a value like TrainConfig, validated once for the command line, the server and the engine. It lies as
task.json in a directory of its own, and its answer as result.json beside it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.errors import InputError
from gpubloom.plan import limits
from gpubloom.plan.config import TrainConfig, read_json
from gpubloom.plan.validation import InvalidConfig, Part

TASK_FILE = "task.json"
TASK_SCRIPT = "task.py"
RESULT_FILE = "result.json"

Prompts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=20_000)], ...], Field(max_length=1_000)
]

_SCRIPT = '''\
"""Does what task.json in this folder asks for; the answer becomes result.json."""

from pathlib import Path

from gpubloom.engine.tasks import run_task

if __name__ == "__main__":
    run_task(Path(__file__).parent)
'''


class OfAModel(Part):
    """A task about something that was trained: a run directory, one checkpoint of it, or a model folder."""

    model: str = Field(min_length=1, description="A run directory, a checkpoint, or a model folder.")
    base: str | None = Field(
        None,
        min_length=1,
        description="The model it was tuned from; by default what the run says. An adapter alone needs it.",
    )
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")


class ServeTask(OfAModel):
    """Holds a model in memory and answers over HTTP on loopback until nobody asks any more."""

    kind: Literal["serve"] = "serve"
    idle_minutes: float = Field(10.0, gt=0, le=10_080)


class EvaluateTask(OfAModel):
    """Perplexity on held-out data and answers to prompts, of the base and of what was trained."""

    kind: Literal["evaluate"] = "evaluate"
    data_path: str | None = Field(None, min_length=1, description="By default the run's own held-out part.")
    prompts: Prompts = ()
    max_new_tokens: int = Field(128, ge=1, le=4_096)
    max_batches: int = Field(20, ge=1, le=limits.MAX_STEPS)
    lm_eval_tasks: tuple[str, ...] = Field((), description="Names of lm-eval tasks; needs the extra eval.")


class HubDestination(Part):
    """A repository of a model hub."""

    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$", max_length=120)
    private: bool = True


class ExportTask(OfAModel):
    """Writes a model in the form that others read, and replays prompts before and after."""

    kind: Literal["export"] = "export"
    form: Literal["adapter", "merged", "gguf"] = "merged"
    dtype: Literal["fp32", "bf16", "fp16"] = "bf16"
    prompts: Prompts = Field((), description="Replayed before and after; by default some of the data's own.")
    hub: HubDestination | None = Field(None, description="Pushed there when it is written and checked.")


class FindLearningRateTask(Part):
    """A short run whose learning rate grows at every step, to see where the loss falls fastest."""

    kind: Literal["find_learning_rate"] = "find_learning_rate"
    train: TrainConfig
    lowest: float = Field(1e-6, gt=0, le=10)
    highest: float = Field(1e-1, gt=0, le=10)
    steps: int = Field(60, ge=10, le=1_000)

    @model_validator(mode="after")
    def _rates_grow(self) -> "FindLearningRateTask":
        if self.highest < 10 * self.lowest:
            raise PydanticCustomError("rates_too_close", "highest must be at least ten times lowest")
        return self


Task = ServeTask | EvaluateTask | ExportTask | FindLearningRateTask

_KINDS: dict[str, type[Task]] = {
    "serve": ServeTask,
    "evaluate": EvaluateTask,
    "export": ExportTask,
    "find_learning_rate": FindLearningRateTask,
}


def task_from(fields: dict[str, Any]) -> Task:
    """A task from JSON values; ValueError with a sentence that names what is wrong."""
    kind = fields.get("kind")
    if kind not in _KINDS:
        raise InputError("unknown_task", f"unknown kind of task {kind!r}; there are {', '.join(_KINDS)}")
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
