"""RoPE scaling: rotary positions stretched beyond those that a model was trained with.

Pure functions of a config.json: engine, TRL, exports and the planner ask the same ones. transformers 5 keeps
the settings in `rope_parameters`; models with several kinds of layers have one entry per kind, of which only
full attention reaches far enough to be scaled.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError
from gpubloom.plan.model_config import ModelConfig

_FULL = "full_attention"


def rope_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary settings of a config.json, old or new; those of full attention where kinds differ."""
    said = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    said = said.get(_FULL, said)
    theta = settings.get("rope_theta")
    named = {"rope_theta": theta} | dict(said) if theta is not None else dict(said)
    named["rope_type"] = named.pop("type", None) or named.get("rope_type") or "default"
    return named


def rope_factor(model: ModelConfig, positions: int | None) -> float:
    """How many times the positions of the model are stretched; 1 without scaling."""
    if model.rope_scaling is None:
        return 1.0
    if model.rope_factor is not None:
        return model.rope_factor
    return float(math.ceil((model.context_length or 0) / positions)) if positions else 1.0


def scaled_settings(settings: Mapping[str, Any], model: ModelConfig) -> dict[str, Any]:
    """The config.json of a model with the RoPE scaling of a run; as it is without one."""
    scaled = dict(settings)
    if model.rope_scaling is None:
        return scaled
    positions = settings.get("max_position_embeddings")
    if not isinstance(positions, int):
        raise InputError(
            "rope_scaling_unsupported",
            "model.rope_scaling needs a model with rotary positions: config.json does not name "
            "max_position_embeddings.",
        )
    before = rope_parameters(settings)
    if before["rope_type"] != "default":
        raise InputError(
            "rope_scaling_unsupported",
            f"The model already scales its rotary positions ({before['rope_type']}): remove "
            "model.rope_scaling.",
        )
    factor = rope_factor(model, positions)
    if factor <= 1:
        raise InputError(
            "rope_scaling_not_needed",
            f"model.context_length {model.context_length or positions:,} is within the {positions:,} "
            "positions of the model: remove model.rope_scaling, or set model.rope_factor above 1.",
        )
    after = before | {"rope_type": model.rope_scaling, "factor": factor}
    if model.rope_scaling == "yarn":
        after["original_max_position_embeddings"] = positions
    kinds = settings.get("rope_parameters") or {}
    scaled["rope_parameters"] = {**kinds, _FULL: after} if _FULL in kinds else after
    scaled.pop("rope_scaling", None)
    if model.rope_scaling != "dynamic":
        # Dynamic scaling begins behind the positions that the model was trained with.
        scaled["max_position_embeddings"] = int(positions * factor)
    return scaled


def scaling_beside(adapter: Path) -> dict[str, Any]:
    """The fields of config.json by which an adapter's base model is scaled; none without a scaling.

    The adapter was trained with them, so whoever loads the base model for it must load it with them.
    """
    try:
        settings = json.loads((adapter / "config.json").read_text(encoding="utf-8"))
        rope, positions = settings.get("rope_parameters"), settings.get("max_position_embeddings")
        if not isinstance(rope, dict) or not isinstance(positions, int):
            return {}
        is_scaled = rope_parameters(settings)["rope_type"] != "default"
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return {"rope_parameters": rope, "max_position_embeddings": positions} if is_scaled else {}


def must_reach(model: ModelConfig, positions: int | None, *, is_table: bool) -> None:
    """Refuses sequences that are longer than the model's positions, scaled or not."""
    wanted = model.context_length
    if positions is None or wanted is None:
        return
    factor = rope_factor(model, positions)
    if wanted <= positions * factor:
        return
    longer = (
        f"The max sequence length (model.context_length) of {wanted:,} is longer than the {positions:,} "
        "positions of the model"
    )
    if is_table:
        advice = f"set it to {positions:,} or less; positions from a table cannot be scaled"
    elif model.rope_scaling is not None:
        advice = f"set model.rope_factor to {math.ceil(wanted / positions)} or more"
    else:
        advice = (
            f"set it to {positions:,} or less, or choose a RoPE scaling "
            "(model.rope_scaling: yarn, dynamic or linear)"
        )
    raise InputError("context_too_long", f"{longer}: {advice}.")
