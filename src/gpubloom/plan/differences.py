"""What several configs do not agree on. Values in, values out; for the command line and the server.

Configs are compared as they act, not as they were written: what was left out counts as its default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from gpubloom.plan.config import TrainConfig

# They name a run and say nothing about how it is trained.
_NAMES = frozenset({"name", "version"})


@dataclass(frozen=True)
class Difference:
    """One field by its path, and its value in each config, in their order."""

    path: str
    values: tuple[Any, ...]


def differences(configs: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The fields that are not the same in all configs, in the order of TrainConfig."""
    flat = [_flat(_as_it_acts(config)) for config in configs]
    paths = list(dict.fromkeys(path for fields in flat for path in fields))
    found = [Difference(path, tuple(fields.get(path) for fields in flat)) for path in paths]
    return [each for each in found if any(value != each.values[0] for value in each.values[1:])]


def _as_it_acts(config: Mapping[str, Any]) -> dict[str, Any]:
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
        fields["data"]["tokenizer"] = {"kind": "the model's own"}
    if read.method == "full":
        del fields["lora"]
    return fields


def _flat(fields: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        path = f"{inside}{name}"
        if path in _NAMES:
            continue
        if isinstance(value, Mapping) and value:
            flat.update(_flat(value, f"{path}."))
        else:
            flat[path] = value
    return flat
