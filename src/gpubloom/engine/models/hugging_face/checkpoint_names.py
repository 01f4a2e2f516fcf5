"""Which tensors of a checkpoint a model's tensors are made of.

Checkpoints of one family differ: with or without the prefix of the base model, older names, experts one by
one. transformers knows these differences; this asks it, and keeps the tensors themselves for later.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Load = Callable[[str], Tensor]


@dataclass(frozen=True)
class Origin:
    """The tensors of a checkpoint that one tensor is made of, and how."""

    names: tuple[str, ...]
    combine: Callable[[Load], Tensor] | None = None

    def load(self, read: Load) -> Tensor:
        return self.combine(read) if self.combine else read(self.names[0])


def origins(model: Any, names: Iterable[str]) -> dict[str, Origin]:
    """By tensor of `model`: its origin among `names`. Tensors that the model does not have are left out."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    converter_of = {pattern: entry for entry in converters for pattern in entry.source_patterns}
    wanted = model.state_dict()
    found: dict[str, Origin] = {}
    collected: dict[str, list[tuple[str, str]]] = {}
    # Experts are stacked in the order of their numbers.
    for name in sorted(names, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, model.base_model_prefix, wanted)
        if target not in wanted:
            target, pattern = rename_source_key(name, [], [], model.base_model_prefix, wanted)
        if target not in wanted:
            continue
        if pattern is None:
            found[target] = Origin((name,))
        else:
            collected.setdefault(target, []).append((pattern, name))
    for target, pieces in collected.items():
        converter = converter_of[pieces[0][0]]
        if len(converter.target_patterns) > 1:
            raise ValueError(
                f"The checkpoint holds {pieces[0][1]} joined with others, which this engine does not split."
            )
        found[target] = Origin(tuple(name for _, name in pieces), _combine(converter, target, pieces, model))
    return found


def _combine(
    converter: Any, target: str, pieces: Sequence[tuple[str, str]], model: Any
) -> Callable[[Load], Tensor]:
    def combine(read: Load) -> Tensor:
        own = copy.deepcopy(converter)
        for pattern, name in pieces:
            own.add_tensor(target, name, pattern, read(name))
        made = own.convert(target, model=model, config=model.config)[target]
        tensor: Tensor = made[0] if isinstance(made, list) else made
        return tensor

    return combine
