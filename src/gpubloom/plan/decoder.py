"""The shape of any decoder-only model: which tensors each block has, and how wide its parts are.

Pure arithmetic: nothing here knows a tensor, a device or a file. `families.py` makes such shapes from the
config.json of a model folder, `shapes.py` from a preset.
"""

from dataclasses import dataclass
from functools import cached_property

# Tensors of a block lie one after the other in a flat buffer. Each begins at such a boundary, so that vector
# loads are aligned on any device, whatever the element is.
ALIGNMENT = 64


@dataclass(frozen=True)
class Linear:
    """One matrix product of a layer. A mixture of experts has `copies` of it and uses `active` per token."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    copies: int = 1
    active: int = 1

    def is_adapted(self, targets: str | tuple[str, ...]) -> bool:
        """Whether LoRA adapts it: targets are ends of its path. Experts, in one tensor, stay as they are."""
        if self.copies > 1 or self.name == "gate":
            return False
        return targets == "all-linear" or any(_same_path(self.name, target) for target in targets)

    @property
    def weights(self) -> int:
        return self.copies * self.inputs * self.outputs

    @property
    def tensors(self) -> tuple[int, ...]:
        return (self.weights, self.copies * self.outputs) if self.bias else (self.weights,)


@dataclass(frozen=True)
class LayerShape:
    """One decoder layer. Layers of equal shape are of one kind."""

    linears: tuple[Linear, ...]
    others: tuple[int, ...]
    query_size: int
    kv_size: int
    ffn_size: int
    gated: bool = True
    window: int | None = None

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """Lengths of all tensors: matrices, biases, norms."""
        return tuple(length for linear in self.linears for length in linear.tensors) + self.others

    @cached_property
    def parameters(self) -> int:
        return sum(self.tensors)

    @cached_property
    def multiplied(self) -> int:
        """Weights that multiply each token."""
        return sum(linear.active * linear.inputs * linear.outputs for linear in self.linears)

    @cached_property
    def matrix_weights(self) -> int:
        return sum(linear.weights for linear in self.linears)

    @property
    def last_projection(self) -> int:
        """Weights of the layer's last product, whose result the backward pass does not need again."""
        return self.linears[-1].active * self.linears[-1].inputs * self.linears[-1].outputs

    def adapters(self, rank: int, targets: str | tuple[str, ...]) -> tuple[int, ...]:
        """Lengths of the adapters' tensors: two small matrices for each adapted linear layer."""
        return tuple(
            rank * width
            for linear in self.linears
            if linear.is_adapted(targets)
            for width in (linear.inputs, linear.outputs)
        )


@dataclass(frozen=True)
class DecoderShape:
    """A decoder-only language model as the planner sees it."""

    family: str
    vocab_size: int
    hidden_size: int
    layers: tuple[LayerShape, ...]
    # Lengths of tensors: the table of tokens (and of positions), and what the head has besides its matrix.
    embedding: tuple[int, ...]
    head_others: tuple[int, ...]
    tied: bool
    max_positions: int | None = None
    # A table of positions ends; rotary positions only grow worse beyond what was trained.
    positions_end: bool = False

    @property
    def embedding_block(self) -> tuple[int, ...]:
        """Tensors of the first block; a tied model's head has no block of its own."""
        return self.embedding + self.head_others if self.tied else self.embedding

    @property
    def head_block(self) -> tuple[int, ...]:
        return () if self.tied else (self.vocab_size * self.hidden_size, *self.head_others)

    @cached_property
    def parameters(self) -> int:
        layers = sum(layer.parameters for layer in self.layers)
        return sum(self.embedding_block) + layers + sum(self.head_block)

    @cached_property
    def multiplied(self) -> int:
        """Weights that multiply each token, the head's among them."""
        return sum(layer.multiplied for layer in self.layers) + self.vocab_size * self.hidden_size


def padded(tensors: tuple[int, ...]) -> int:
    """Elements of a flat buffer that holds these tensors."""
    return sum(-(-length // ALIGNMENT) * ALIGNMENT for length in tensors)


def _same_path(name: str, target: str) -> bool:
    """`q_proj` is meant by `self_attn.q_proj`, and `mlp.c_proj` by `c_proj`."""
    return name == target or name.endswith(f".{target}") or target.endswith(f".{name}")
