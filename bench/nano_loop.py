"""What the engine is compared with on a CPU: a small GPT and a loop around it, as people write them.

Learned positions, LayerNorm without bias, one product for q, k and v, attention by torch's SDPA, GELU, tied
head; AdamW fused, with weight decay for matrices only; clipping by norm; all in fp32. Rows are drawn anywhere
in the text, one by one.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

DECAY = 0.1
CLIP = 1.0
BETAS = (0.9, 0.95)


class NanoLayer(nn.Module):
    """Attention and feed-forward."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(hidden, bias=False)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.attended = nn.Linear(hidden, hidden, bias=False)
        self.before_feed = nn.LayerNorm(hidden, bias=False)
        self.feed = nn.Linear(hidden, 4 * hidden, bias=False)
        self.back = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, hidden = x.shape
        parts = self.qkv(self.before_attention(x)).split(hidden, dim=2)
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attended(y.transpose(1, 2).reshape(rows, length, hidden))
        out: Tensor = x + self.back(functional.gelu(self.feed(self.before_feed(x))))
        return out


class NanoModel(nn.Module):
    """Tokens to logits."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(length, hidden)
        self.layers = nn.ModuleList(NanoLayer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.tokens.weight)


class PlainLoop:
    """The usual loop around a model that gives logits. `step` is one update, with getting its rows."""

    def __init__(
        self, model: nn.Module, text: NDArray[np.uint16], rows: int, length: int, *, bf16: bool = False
    ) -> None:
        self.model = model.train()
        self._bf16 = bf16
        self._text, self._rows, self._length = text, rows, length
        self._random = torch.Generator().manual_seed(0)
        matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
        vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=BETAS, fused=True)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def step(self) -> float:
        tokens, targets = self._draw()
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            logits = self.model(tokens)
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def _draw(self) -> tuple[Tensor, Tensor]:
        begins = torch.randint(len(self._text) - self._length - 1, (self._rows,), generator=self._random)
        rows = [self._text[begin : begin + self._length + 1].astype(np.int64) for begin in begins.tolist()]
        drawn = torch.stack([torch.from_numpy(row) for row in rows])
        return drawn[:, :-1], drawn[:, 1:].contiguous()
