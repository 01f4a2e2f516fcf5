"""Which layers of a model are alike: the same modules, shapes and settings, called the same way."""

from collections.abc import Hashable
from typing import Any

from torch import nn

# Where a layer stands says nothing about what it computes; what does (a window, no rotary positions) is in
# settings of its own.
_PATH = frozenset({"layer_idx", "layer_index", "layer_id", "block_idx"})


def fingerprint(layer: nn.Module) -> Hashable:
    """Equal for layers that compute the same function of weights and inputs."""
    return tuple(
        (
            path,
            type(module).__qualname__,
            tuple((name, tuple(value.shape)) for name, value in module.named_parameters(recurse=False)),
            tuple(
                sorted(
                    (name, repr(value)) for name, value in vars(module).items() if _is_setting(name, value)
                )
            ),
        )
        for path, module in layer.named_modules()
    )


def _is_setting(name: str, value: Any) -> bool:
    return name not in _PATH and isinstance(value, bool | int | float | str | tuple | list | type(None))
