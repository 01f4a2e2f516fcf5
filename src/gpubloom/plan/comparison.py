"""Runs side by side: how their configs differ, and what came of each. Values in, values out.

The command line reads run directories and the server its database; both describe a run by `outcome` and
compare configs by `differences`, so that they show the same numbers for the same runs.

Configs are compared as they act, not as they were written: what was left out counts as its default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from gpubloom.plan.config import TrainConfig
from gpubloom.traincard.number_encoding import NON_FINITE, encode_number

SPEED_SERIES = "train/tokens_per_second"
BEST_SERIES = "eval/loss"
_FINAL_SERIES = ("train/loss", "eval/loss", "eval/perplexity", "eval/accuracy")
# They name a run and say nothing about how it is trained.
_NAMES = frozenset({"name", "version"})


@dataclass(frozen=True)
class Outcome:
    """What came of a run so far; None where it has reported nothing.

    `final` holds the last value of each series, NaN and the infinities by their names. `tokens_per_second` is
    the mean over the whole run, repeated steps included. `seconds` go from the first start to the end, pauses
    included.
    """

    final: dict[str, float | str]
    best_eval_loss: float | None
    steps: int | None
    tokens: float | None
    tokens_per_second: float | None
    seconds: float | None


def outcome(
    *,
    values: Mapping[str, Any],
    steps: int | None,
    best_eval_loss: float | None,
    speed_total: float,
    speed_count: int,
    seconds: float | None,
) -> Outcome:
    """What came of a run.

    `values` holds the last value of each series, as latest.json and a job's summary do. `speed_total` and
    `speed_count` are the sum and the number of all finite values of SPEED_SERIES that rank 0 reported, and
    `best_eval_loss` is the lowest finite one of BEST_SERIES.
    """
    final = {name: value for name in _FINAL_SERIES if (value := _reported(values, name)) is not None}
    tokens = _reported(values, "train/tokens_seen")
    return Outcome(
        final=final,
        best_eval_loss=best_eval_loss,
        steps=steps,
        tokens=tokens if isinstance(tokens, float) else None,
        tokens_per_second=speed_total / speed_count if speed_count else None,
        seconds=seconds,
    )


def _reported(values: Mapping[str, Any], name: str) -> float | str | None:
    found = values.get(name)
    value = found.get("value") if isinstance(found, Mapping) else None
    if isinstance(value, str) and value in NON_FINITE:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return encode_number(float(value))


@dataclass(frozen=True)
class Difference:
    """One field by its path, and its value in each config, in their order."""

    path: str
    values: tuple[Any, ...]


def differences(configs: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The fields in which training differs, in the order of TrainConfig."""
    return field_differences([config_as_it_acts(config) for config in configs])


def field_differences(configs: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The fields that are not the same in all configs, compared as they are written.

    An empty config, as a script has, differs in no field: it would hide how the others differ.
    """
    flat = [flat_fields(config) for config in configs]
    paths = dict.fromkeys(path for fields in flat for path in fields)
    return [
        Difference(path, tuple(fields.get(path) for fields in flat))
        for path in paths
        if any(fields.get(path) != others.get(path) for fields, others in pairwise(filter(None, flat)))
    ]


def config_as_it_acts(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with its defaults; one that is no TrainConfig stays as it is written."""
    try:
        read = TrainConfig.model_validate(config)
    except ValidationError:
        # Of another version: compared as it is written.
        return dict(config)
    fields = read.model_dump(mode="json")
    fields["learning_rate"] = read.peak_learning_rate
    folder, tokenizer = read.model.path, read.data.tokenizer
    if (
        folder is not None
        and tokenizer.path is not None
        and PurePath(tokenizer.path).parent == PurePath(folder)
    ):
        # It comes with the model, which is a difference of its own.
        fields["data"]["tokenizer"] = {"kind": "from the model"}
    if read.method == "full":
        del fields["lora"]
    return fields


def flat_fields(fields: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    """The fields by their paths, such as lora.rank. The name of a run is not one of them."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        path = f"{inside}{name}"
        if path in _NAMES:
            continue
        if isinstance(value, Mapping) and value:
            flat.update(flat_fields(value, f"{path}."))
        else:
            flat[path] = value
    return flat
