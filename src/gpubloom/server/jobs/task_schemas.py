"""The JSON of tasks about a model, and of the trainers that there are."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from gpubloom.plan import limits
from gpubloom.server.schema import Flag, Line, Schema, Storable

Prompt = Annotated[str, Field(min_length=1, max_length=20_000), Storable]
Prompts = Annotated[list[Prompt], Field(max_length=1_000)]
OfCheckpoint = Annotated[
    UUID | None, Field(description="One checkpoint of the job; without one, its finished model.")
]


class NewEvaluation(Schema):
    """What to measure: perplexity on held-out data, answers to prompts, benchmarks."""

    checkpoint_id: OfCheckpoint = None
    prompts: Prompts = Field(default_factory=list)
    max_new_tokens: Annotated[int, Field(ge=1, le=4_096)] = 128
    max_batches: Annotated[int, Field(ge=1, le=limits.MAX_STEPS)] = 20
    lm_eval_tasks: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w.,:/-]+$")]],
        Field(max_length=50),
    ] = Field(default_factory=list)


class HubPush(Schema):
    """A repository to push to, with the token stored under Settings."""

    repository: Annotated[Line, Field(pattern=r"^[\w.-]+/[\w.-]+$", max_length=120)]
    private: Flag = True


class NewExport(Schema):
    """The form that others read."""

    checkpoint_id: OfCheckpoint = None
    form: Literal["adapter", "merged", "gguf"] = "merged"
    dtype: Literal["fp32", "bf16", "fp16"] = "bf16"
    prompts: Prompts = Field(default_factory=list)
    hub: HubPush | None = None


class BackendOut(Schema):
    """A trainer, and why it cannot run here."""

    name: Literal["engine", "trl", "unsloth"]
    available: bool
    reason: str | None
    brings: str
