"""The catalogue: common base models by family. Sizes and memory are computed, not typed.

`catalogue.json` holds what cannot be computed: ids, licences, whether the model is gated, and the dimensions
of the architecture. The planner computes everything else from them.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from gpubloom.plan import Gpu, Hardware, MemoryConfig, ModelConfig, TrainConfig
from gpubloom.plan.config import Method
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.request import PlanRequest
from gpubloom.plan.search import least_need

METHODS: tuple[Method, ...] = get_args(Method)
# A common setting for fine-tuning; the page that shows the figures names it.
USUAL_TOKENS_PER_ROW = 2_048
USUAL_SETTING = f"one row of {USUAL_TOKENS_PER_ROW:,} tokens, bf16, adapters of rank 16 on all linear layers"
_LARGE = 1 << 44
_MACHINE = Hardware(
    name="any",
    host_memory_bytes=_LARGE,
    cpu_cores=16,
    gpus=(Gpu(name="any", memory_bytes=_LARGE),),
)


@dataclass(frozen=True)
class CatalogueModel:
    """A model of a hub. `memory` is the least GPU memory in bytes, by method, with everything on the GPU."""

    id: str
    parameters: int
    licence: str
    context_length: int
    chat: bool
    # None: not known.
    gated: bool | None
    unsloth_id: str | None
    memory: dict[Method, int]


@dataclass(frozen=True)
class Family:
    """Models that share an architecture and a name."""

    name: str
    models: tuple[CatalogueModel, ...]


@cache
def catalogue() -> tuple[Family, ...]:
    """All families, the most used first."""
    text = (files("gpubloom.hub") / "catalogue.json").read_text(encoding="utf-8")
    return tuple(
        Family(entry["name"], tuple(_model(model) for model in entry["models"])) for entry in json.loads(text)
    )


def memory_by_method(shape: DecoderShape) -> dict[Method, int]:
    """The least GPU memory in bytes that a model needs, by method, in the usual setting."""
    tokens = min(USUAL_TOKENS_PER_ROW, shape.max_positions or USUAL_TOKENS_PER_ROW)
    needs: dict[Method, int] = {}
    for method in METHODS:
        asked = TrainConfig(
            batch_size=1,
            method=method,
            model=ModelConfig(context_length=tokens),
            memory=MemoryConfig(mode="resident"),
        )
        request = PlanRequest.of(asked, _MACHINE, shape)
        # Without any device memory, the planner reports the least that it would need.
        nothing = type(request.limits)(device=0, host=_LARGE)
        needs[method] = least_need(request.timed, nothing, "resident").device
    return needs


def _model(entry: dict[str, Any]) -> CatalogueModel:
    config = entry["config"]
    shape = decoder_shape(config)
    assert shape.max_positions is not None, f"{entry['id']} has a context length"
    return CatalogueModel(
        id=entry["id"],
        parameters=shape.parameters,
        licence=entry["licence"],
        context_length=shape.max_positions,
        chat=entry["chat"],
        gated=entry["gated"],
        unsloth_id=entry["unsloth"],
        memory=memory_by_method(shape),
    )
