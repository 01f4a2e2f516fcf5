"""Adapters as terms that can be switched: one set of weights answers as the base and as the tuned model.

y = base(x) + scale · B(A(x)), or base(x) alone. The switch belongs to the thread (or task) that computes, so
both can be asked at the same time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.adapters_on_disk import Adapter
from gpubloom.engine.models.lora import is_transposed

_A, _B = ".lora_A.weight", ".lora_B.weight"

_tuned: ContextVar[bool] = ContextVar("tuned", default=True)


@contextmanager
def tuned(wanted: bool) -> Iterator[None]:
    """Within it, adapters that were attached count (or do not) for what this thread computes."""
    before = _tuned.set(wanted)
    try:
        yield
    finally:
        _tuned.reset(before)


def attach(model: nn.Module, adapter: Adapter, dtype: torch.dtype) -> None:
    """Adds an adapter's terms to the modules it names; ValueError when they do not belong to this model."""
    for name, a in adapter.tensors.items():
        path, is_first, _ = name.partition(_A)
        if not is_first:
            if not name.endswith(_B):
                raise ValueError(f"The adapter holds {name}, which is no part of a LoRA adapter.")
            continue
        b = adapter.tensors.get(f"{path}{_B}")
        if b is None:
            raise ValueError(f"The adapter has {name}, but not the {path}{_B} that belongs to it.")
        module = _module(model, path)
        _must_fit(module, path, a, b)
        device = next(model.parameters()).device
        module.register_forward_hook(_adds(a.to(device, dtype), b.to(device, dtype), adapter.settings.scale))


def _module(model: nn.Module, path: str) -> nn.Module:
    try:
        return model.get_submodule(path)
    except AttributeError:
        raise ValueError(
            f"The adapter changes {path}, which its base does not have: it belongs to another model."
        ) from None


def _must_fit(module: nn.Module, path: str, a: Tensor, b: Tensor) -> None:
    outputs, inputs = _sizes(module)
    if (b.shape[0], a.shape[1]) != (outputs, inputs) or a.shape[0] != b.shape[1]:
        raise ValueError(
            f"The adapter's matrices for {path} have the sizes {tuple(b.shape)} and {tuple(a.shape)}, but "
            f"its base maps {inputs} values to {outputs} there: it belongs to another model."
        )


def _sizes(module: nn.Module) -> tuple[int, int]:
    if hasattr(module, "out_features"):
        return int(cast(Any, module).out_features), int(cast(Any, module).in_features)
    outputs, inputs = cast(Tensor, module.weight).shape
    return (inputs, outputs) if is_transposed(module) else (outputs, inputs)


def _adds(a: Tensor, b: Tensor, scale: float) -> Callable[[Any, Any, Tensor], Tensor]:
    def add(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not _tuned.get():
            return output
        return output + scale * F.linear(F.linear(inputs[0], a), b)

    return add
