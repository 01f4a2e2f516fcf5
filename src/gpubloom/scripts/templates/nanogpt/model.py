"""A GPT: a decoder that predicts the next token of a text."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass
class GPTConfig:
    """The sizes of a model."""

    vocab_size: int
    block_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float = 0.0


class Attention(nn.Module):
    """Causal attention: every position attends to itself and to earlier positions."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        if config.n_embd % config.n_head:
            raise ValueError(f"n_embd ({config.n_embd}) must be a multiple of n_head ({config.n_head}).")
        self.heads = config.n_head
        self.dropout = config.dropout
        self.incoming = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.outgoing = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        split = self.incoming(x).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.outgoing(seen.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    """Attention, then a feed-forward network; both with a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.network_norm = nn.LayerNorm(config.n_embd)
        self.network = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd),
            nn.GELU(),
            nn.Linear(4 * config.n_embd, config.n_embd),
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.network(self.network_norm(x)))


class GPT(nn.Module):
    """Token and position embeddings, blocks, and the embedding once more to choose the next token."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = nn.Embedding(config.block_size, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd)
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                if name.endswith("bias"):
                    nn.init.zeros_(weight)
                continue
            # What adds to the stream of every block starts smaller, so that the sum of many blocks does not.
            adds = name.endswith(("outgoing.weight", "network.2.weight"))
            nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * config.n_layer) if adds else 1))

    def forward(
        self, ids: torch.Tensor, targets: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def continued(self, ids: torch.Tensor, count: int) -> torch.Tensor:
        """The text with `count` more tokens, each drawn from what the model expects."""
        for _ in range(count):
            logits, _ = self(ids[:, -self.config.block_size :])
            chances = functional.softmax(logits[:, -1].float(), dim=-1)
            ids = torch.cat([ids, torch.multinomial(chances, 1)], dim=1)
        return ids
