"""A base in four bits, as QLoRA trained on it: the matrices of its decoder layers as NF4, all else as it is.

On a GPU they stay packed and are decoded when a layer is used, so that what could be trained there can be
served there. On a CPU, where decoding is slow, they are decoded once: the same values in full size.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.models.hugging_face.structure import find_layers
from gpubloom.engine.models.lora import is_transposed
from gpubloom.engine.quantize.nf4 import Nf4, dequantize, quantize


@torch.no_grad()
def to_four_bit(
    model: nn.Module, device: torch.device, dtype: torch.dtype, *, packed: bool | None = None
) -> nn.Module:
    """Quantizes a loaded model in place and brings it to the device in the precision of computing."""
    packed = device.type == "cuda" if packed is None else packed
    layers = model.get_submodule(find_layers(model))
    for layer in cast(nn.ModuleList, layers):
        for path, module in list(layer.named_modules()):
            if packed and (isinstance(module, nn.Linear) or is_transposed(module)):
                _replace(layer, path, PackedLinear(module, device, dtype))
                continue
            for parameter in module.parameters(recurse=False):
                if parameter.ndim > 1:
                    parameter.data = dequantize(quantize(parameter.data.float()))
    return model.to(device, dtype)


class PackedLinear(nn.Module):
    """A linear layer whose matrix is NF4."""

    def __init__(self, linear: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        weight = cast(Tensor, linear.weight)
        self._transposed = is_transposed(linear)
        inputs, outputs = weight.shape if self._transposed else weight.shape[::-1]
        self.in_features, self.out_features = int(inputs), int(outputs)
        self._weight: Nf4 = quantize(weight.to(device).float())
        self._dtype = dtype
        bias = cast(Any, linear).bias
        self.bias = None if bias is None else nn.Parameter(bias.to(device, dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        room = torch.empty(self._weight.shape, dtype=self._dtype, device=self._weight.packed.device)
        weight = dequantize(self._weight, room)
        return F.linear(x, weight.T if self._transposed else weight, self.bias)


def _replace(layer: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(layer.get_submodule(parent), name, module)
