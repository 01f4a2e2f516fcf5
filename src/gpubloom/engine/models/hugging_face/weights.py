"""The weights of a transformers model, made of a checkpoint's tensors or drawn at random.

Checkpoints of one family differ: with or without the prefix of the base model, older names, experts one by
one. transformers knows these differences; this module asks it which tensors to read. First weights are drawn
by the family's own rules into tensors that the caller owns.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gpubloom.engine.models.blocks import Weights
from gpubloom.errors import InputError

Load = Callable[[str], Tensor]

_DRAWING = (Tensor.normal_, Tensor.uniform_)


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
            raise InputError(
                "unsupported_architecture",
                f"The checkpoint stores {pieces[0][1]} fused with other tensors, which this engine cannot "
                "split.",
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


class _DrawFrom(TorchFunctionMode):
    """Lets transformers' rules draw from a generator of ours instead of torch's global one."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), by_name: Any = None) -> Any:
        by_name = dict(by_name or {})
        if function in _DRAWING or ("generator" in by_name and by_name["generator"] is None):
            # What is not to be filled is on the meta device, for which no generator exists.
            if arguments and arguments[0].is_meta:
                return arguments[0]
            by_name["generator"] = self._generator
        return function(*arguments, **by_name)


@torch.no_grad()
def initialize(
    model: Any, modules: Mapping[str, nn.Module], tensors: Weights, generator: torch.Generator
) -> None:
    """Fills `tensors` in place. `modules` are parts of `model`, by the prefix of their tensors' names."""
    slots = [
        (owner, name, tensors[full])
        for prefix, module in modules.items()
        for path, owner in module.named_modules()
        for name in owner._parameters
        if (full := ".".join(part for part in (prefix, path, name) if part)) in tensors
    ]
    kept = [owner._parameters[name] for owner, name, _ in slots]
    for owner, name, tensor in slots:
        owner._parameters[name] = nn.Parameter(tensor, requires_grad=False)
    try:
        with _DrawFrom(generator):
            for module in modules.values():
                # Inner modules first, as transformers does: GPT-2's blocks draw some projections again.
                module.apply(model._init_weights)
    finally:
        for (owner, name, _), parameter in zip(slots, kept, strict=True):
            owner._parameters[name] = parameter
