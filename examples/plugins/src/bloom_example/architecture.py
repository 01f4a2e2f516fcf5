"""An architecture: causal convolutions instead of attention."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class Layer(nn.Module):
    """Mixes each position with the ones just before it."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(size)
        self.mix = nn.Conv1d(size, size, width)
        self.out = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        past = self.mix.kernel_size[0] - 1
        mixed = self.mix(functional.pad(self.norm(x).transpose(1, 2), (past, 0))).transpose(1, 2)
        return x + self.out(functional.gelu(mixed))


class Convolutions:
    """`options`: width, how many positions a layer sees (4)."""

    def __init__(self, shape: Any, options: dict[str, Any]) -> None:
        self.shape = shape
        self.width = int(options.get("width", 4))

    def embedding(self) -> nn.Module:
        return nn.Embedding(self.shape.vocab_size, self.shape.hidden_size)

    def layer(self, index: int) -> nn.Module:
        return Layer(self.shape.hidden_size, self.width)

    def head(self) -> nn.Module:
        size = self.shape.hidden_size
        return nn.Sequential(nn.RMSNorm(size), nn.Linear(size, self.shape.vocab_size, bias=False))
