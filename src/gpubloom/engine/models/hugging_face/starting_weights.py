"""First weights as a family's own rules draw them, written into tensors that somebody else owns."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gpubloom.engine.models.blocks import Weights

_DRAWING = (Tensor.normal_, Tensor.uniform_)


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
