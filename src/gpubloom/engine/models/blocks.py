"""What the executor knows of a model: a list of blocks, and pure functions of weights and inputs.

A block is a set of named tensors that live and move together. Blocks of one kind have the same tensors and
share one function, so that a compiled layer is compiled once. A model holds no weights of its own: whoever
calls it brings them, as a mapping from the tensor's name within the block.

Shape letters: B rows, T positions, D hidden size, N positions of any rows, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gpubloom.engine.models.dropout import Dropout

Weights = Mapping[str, Tensor]
Tables = tuple[Tensor, ...]


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a block, by its name within the block."""

    name: str
    shape: tuple[int, ...]

    @property
    def length(self) -> int:
        return int(torch.Size(self.shape).numel())


@dataclass(frozen=True)
class BlockSpec:
    """Tensors that live and move together. Frozen ones have no gradient and no optimizer state."""

    name: str
    kind: str
    trained: tuple[TensorSpec, ...]
    frozen: tuple[TensorSpec, ...] = ()


class BlockModel(Protocol):
    """A decoder-only language model."""

    @property
    def blocks(self) -> tuple[BlockSpec, ...]:
        """Forward order: embedding, decoder layers, head; a tied head has no block of its own."""

    @property
    def tied(self) -> bool:
        """Whether the head uses the embedding's block, which then also holds the head's other tensors."""

    @property
    def eager_kinds(self) -> frozenset[str]:
        """Kinds of layers that cannot be compiled."""

    @property
    def dropout(self) -> Dropout | None:
        """What layers leave out in a training step; they are then given a draw as their last table."""

    def parameter_name(self, block: BlockSpec, tensor: TensorSpec) -> str:
        """The name in a model folder, as Hugging Face spells it."""

    def tables(
        self, tokens_BT: Tensor, documents_BT: Tensor | None, most_per_row: int | None = None
    ) -> Tables:
        """What all layers share for these rows: rotary tables, masks. On the device of the tokens.

        `most_per_row`: no row of the run holds more documents, if that is known.
        """

    def embed(self, weights: Weights, tokens_BT: Tensor, tables: Tables) -> Tensor:
        """x_BTD in the precision of the weights."""

    def layer(self, kind: str, weights: Weights, x_BTD: Tensor, tables: Tables) -> Tensor:
        """One decoder layer."""

    def logits(self, weights: Weights, x_ND: Tensor) -> Tensor:
        """Final norm and projection of single positions."""


class WeightSource(Protocol):
    """Where the first weights come from."""

    def fill(self, block: BlockSpec, tensors: Weights) -> None:
        """Writes a block's tensors (trained and frozen) in place; called once per block, in forward order."""
