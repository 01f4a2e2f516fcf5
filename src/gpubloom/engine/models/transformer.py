"""TransformerLM and LlamaBlocks: the Llama architecture as a torch module and as a list of blocks.

Both compute the same. Submodules of a layer carry the names that Hugging Face gives them, so that an export
renames blocks only. A block maps a hidden state to a hidden state; it does not know which device it is on,
who called it or what comes next.

Shape letters: B rows, T positions, D hidden size, N heads, K key-value heads, H head size, F feed-forward
size, V vocabulary.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from gpubloom.engine.models.adapted_swiglu import adapted_swiglu, fuses_adapters
from gpubloom.engine.models.blocks import BlockSpec, Tables, TensorSpec, Weights
from gpubloom.engine.models.dropout import Dropout
from gpubloom.engine.models.packed_documents import (
    attend_within_documents,
    document_boundaries,
    document_mask,
    document_starts,
    uses_boundaries,
)
from gpubloom.engine.models.projections import project_together
from gpubloom.plan import ModelShape

_INIT_STD = 0.02

# Cosine and sine of every position's rotation; for packed documents also what each position may see.
LayerTables = tuple[Tensor, ...]

_LAYER = "layer"
_EMBEDDING_KIND = "embedding"
EMBEDDING, _NORM, _HEAD = "weight", "norm.weight", "head.weight"
_NAMES = {
    EMBEDDING: "model.embed_tokens.weight",
    _NORM: "model.norm.weight",
    _HEAD: "lm_head.weight",
}


class Sizes(Protocol):
    """What decides the tensors of a model; `ModelShape` is one."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_size(self) -> int: ...
    @property
    def ffn_size(self) -> int: ...
    @property
    def tie_embeddings(self) -> bool: ...
    @property
    def rope_theta(self) -> float: ...
    @property
    def norm_eps(self) -> float: ...


@dataclass(frozen=True)
class Variant:
    """What pretrained models of this architecture have besides: biases, and norms of queries and keys."""

    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    head_norms: bool = False


_PLAIN = Variant()


class Embedding(nn.Module):
    """Tokens to hidden states."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape.vocab_size, shape.hidden_size))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return F.embedding(tokens_BT, self.weight)


class LayerCache:
    """Keys and values that one layer computed for earlier positions; for generating, never for training."""

    def __init__(self) -> None:
        self._k_BKTH: Tensor | None = None
        self._v_BKTH: Tensor | None = None

    @property
    def length(self) -> int:
        return 0 if self._k_BKTH is None else self._k_BKTH.shape[2]

    def extend(self, k_BKTH: Tensor, v_BKTH: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, the new ones last."""
        if self._k_BKTH is not None and self._v_BKTH is not None:
            assert k_BKTH.shape[2] == 1, "after the first call, positions come one by one"
            k_BKTH = torch.cat((self._k_BKTH, k_BKTH), dim=2)
            v_BKTH = torch.cat((self._v_BKTH, v_BKTH), dim=2)
        self._k_BKTH, self._v_BKTH = k_BKTH, v_BKTH
        return k_BKTH, v_BKTH


class Attention(nn.Module):
    """Causal self-attention with rotary positions; key-value heads are shared by groups of heads."""

    def __init__(self, shape: Sizes, variant: Variant = _PLAIN) -> None:
        super().__init__()
        self.head_size = shape.head_size
        q_size, kv_size = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(shape.hidden_size, q_size, bias=variant.qkv_bias)
        self.k_proj = nn.Linear(shape.hidden_size, kv_size, bias=variant.qkv_bias)
        self.v_proj = nn.Linear(shape.hidden_size, kv_size, bias=variant.qkv_bias)
        self.o_proj = nn.Linear(q_size, shape.hidden_size, bias=variant.out_bias)
        self.q_norm: nn.RMSNorm | None = None
        self.k_norm: nn.RMSNorm | None = None
        if variant.head_norms:
            self.q_norm = nn.RMSNorm(shape.head_size, eps=shape.norm_eps)
            self.k_norm = nn.RMSNorm(shape.head_size, eps=shape.norm_eps)

    def forward(self, x_BTD: Tensor, tables: LayerTables, cache: LayerCache | None = None) -> Tensor:
        cos, sin, *masks = tables
        q_BTD, k_BTD, v_BTD = project_together(x_BTD, (self.q_proj, self.k_proj, self.v_proj))
        q_BNTH, k_BKTH = self._heads(q_BTD), self._heads(k_BTD)
        if self.q_norm is not None and self.k_norm is not None:
            q_BNTH, k_BKTH = self.q_norm(q_BNTH), self.k_norm(k_BKTH)
        rotary = cos.to(q_BNTH.dtype), sin.to(q_BNTH.dtype)
        q_BNTH, k_BKTH = rotate(q_BNTH, rotary), rotate(k_BKTH, rotary)
        # Kept for the backward pass; as a part of a product it would keep the other parts too.
        v_BKTH = self._heads(v_BTD.contiguous())
        if masks:
            assert cache is None, "packed documents are for training"
            y_BNTH = attend_within_documents(q_BNTH, k_BKTH, v_BKTH, masks[0])
        else:
            y_BNTH = self._attend_causally(q_BNTH, k_BKTH, v_BKTH, cache)
        out: Tensor = self.o_proj(y_BNTH.transpose(1, 2).flatten(2))
        return out

    @staticmethod
    def _attend_causally(q_BNTH: Tensor, k_BKTH: Tensor, v_BKTH: Tensor, cache: LayerCache | None) -> Tensor:
        if cache is not None:
            k_BKTH, v_BKTH = cache.extend(k_BKTH, v_BKTH)
        return F.scaled_dot_product_attention(
            q_BNTH,
            k_BKTH,
            v_BKTH,
            # A single newest position may see everything before it.
            is_causal=q_BNTH.shape[2] == k_BKTH.shape[2],
            enable_gqa=q_BNTH.shape[1] != k_BKTH.shape[1],
        )

    def _heads(self, x_BTD: Tensor) -> Tensor:
        rows, length, _ = x_BTD.shape
        return x_BTD.view(rows, length, -1, self.head_size).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Sizes, variant: Variant = _PLAIN) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.ffn_size, bias=variant.ffn_bias)
        self.up_proj = nn.Linear(shape.hidden_size, shape.ffn_size, bias=variant.ffn_bias)
        self.down_proj = nn.Linear(shape.ffn_size, shape.hidden_size, bias=variant.ffn_bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        if fuses_adapters(x_BTD, self.gate_proj, self.up_proj, self.down_proj):
            return adapted_swiglu(x_BTD, self.gate_proj, self.up_proj, self.down_proj)
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD))
        return out


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each behind a norm and around a residual."""

    def __init__(self, shape: Sizes, variant: Variant = _PLAIN) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
        self.self_attn = Attention(shape, variant)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
        self.mlp = FeedForward(shape, variant)

    def forward(self, x_BTD: Tensor, tables: LayerTables, cache: LayerCache | None = None) -> Tensor:
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), tables, cache)
        out: Tensor = x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))
        return out


class Head(nn.Module):
    """Final norm and the projection to the vocabulary, which may be the embedding's own weight."""

    def __init__(self, shape: ModelShape, tied_to: Embedding | None) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
        own_size = (shape.vocab_size, shape.hidden_size)
        self.weight = nn.Parameter(torch.empty(own_size)) if tied_to is None else tied_to.weight

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.linear(self.norm(x_BTD), self.weight)


class TransformerLM(nn.Module):
    """A decoder-only language model in the Llama architecture. `stream`: see `generate_tokens`."""

    stream: Any = None

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = Embedding(shape)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.head = Head(shape, tied_to=self.embedding if shape.tie_embeddings else None)

    @classmethod
    def create(cls, shape: ModelShape, seed: int) -> "TransformerLM":
        """A new model whose weights depend on shape and seed only, not on torch's global generator."""
        model = cls(shape)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim == 1:
                    parameter.fill_(1.0)
                else:
                    parameter.normal_(0.0, initial_deviation(shape, name), generator=generator)
        return model

    @property
    def context_length(self) -> int:
        return self.shape.context_length

    def blocks(self) -> Iterator[tuple[str, nn.Module]]:
        """The blocks in the order of the forward pass."""
        yield "embedding", self.embedding
        for index, layer in enumerate(self.layers):
            yield f"layers.{index}", layer
        yield "head", self.head

    def new_cache(self) -> list[LayerCache]:
        return [LayerCache() for _ in self.layers]

    @property
    def reads_in_pieces(self) -> bool:
        """A cache that remembers something takes one further position at a time."""
        return False

    def forward(
        self, tokens_BT: Tensor, cache: list[LayerCache] | None = None, *, last_only: bool = False
    ) -> Tensor:
        """Logits of every position given, or of the last. With a cache, earlier ones are remembered in it."""
        start = cache[0].length if cache else 0
        rotary = rotary_tables(self.shape, tokens_BT.shape[1], tokens_BT.device, start)
        x_BTD = self.embedding(tokens_BT)
        for index, layer in enumerate(self.layers):
            x_BTD = layer(x_BTD, rotary, cache[index] if cache else None)
        logits_BTV: Tensor = self.head(x_BTD[:, -1:] if last_only else x_BTD)
        return logits_BTV


def initial_deviation(shape: ModelShape, name: str) -> float:
    """The standard deviation of a matrix's first weights."""
    # Residual branches add up over depth; shrinking their last projection keeps the sum near one.
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        return _INIT_STD / math.sqrt(2 * shape.layers)
    return _INIT_STD


def rotary_tables(shape: Sizes, length: int, device: torch.device, start: int = 0) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's rotation, in fp32 whatever the precision of computing."""
    pairs = torch.arange(0, shape.head_size, 2, dtype=torch.float32, device=device)
    return rotations(shape.rope_theta ** -(pairs / shape.head_size), length, start)


def rotations(frequencies: Tensor, length: int, start: int = 0) -> tuple[Tensor, Tensor]:
    """The same for any frequencies."""
    positions = torch.arange(start, start + length, dtype=torch.float32, device=frequencies.device)
    angles_TH = torch.outer(positions, frequencies).repeat(1, 2)
    return angles_TH.cos(), angles_TH.sin()


def document_tables(
    rotary: tuple[Tensor, Tensor], documents_BT: Tensor, most_per_row: int | None
) -> LayerTables:
    """Tables of rows with several documents: positions start again at each, and none sees another."""
    length = documents_BT.shape[1]
    cos_TH, sin_TH = rotary
    positions_T = torch.arange(length, device=documents_BT.device)
    positions_BT = positions_T - document_starts(documents_BT)
    if most_per_row is not None and uses_boundaries(documents_BT.device, length, most_per_row):
        mask = document_boundaries(documents_BT, most_per_row)
    else:
        mask = document_mask(documents_BT)
    return cos_TH[positions_BT][:, None], sin_TH[positions_BT][:, None], mask


def rotate(x_BNTH: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotates the pairs (i, i + H/2) of each head: the convention of Hugging Face's Llama."""
    cos, sin = rotary
    first, second = x_BNTH.chunk(2, dim=-1)
    return x_BNTH * cos + torch.cat((-second, first), dim=-1) * sin


class LlamaBlocks:
    """A model of the Llama architecture that is given its weights."""

    dropout: Dropout | None = None

    def __init__(self, shape: Sizes, variant: Variant = _PLAIN) -> None:
        self.shape = shape
        with torch.device("meta"):
            template = DecoderLayer(shape, variant)
        self.templates: dict[str, nn.Module] = {_LAYER: template}
        self.tied = shape.tie_embeddings
        self.eager_kinds: frozenset[str] = frozenset()
        layer = tuple(
            TensorSpec(name, tuple(parameter.shape)) for name, parameter in template.named_parameters()
        )
        table = (shape.vocab_size, shape.hidden_size)
        embedding = (TensorSpec(EMBEDDING, table),)
        head: tuple[TensorSpec, ...] = (TensorSpec(_NORM, (shape.hidden_size,)),)
        layers = tuple(BlockSpec(f"layers.{index}", _LAYER, layer) for index in range(shape.layers))
        if self.tied:
            self.blocks = (BlockSpec("embedding", _EMBEDDING_KIND, (*embedding, *head)), *layers)
        else:
            head = (*head, TensorSpec(_HEAD, table))
            self.blocks = (
                BlockSpec("embedding", _EMBEDDING_KIND, embedding),
                *layers,
                BlockSpec("head", "head", head),
            )

    def parameter_name(self, block: BlockSpec, tensor: TensorSpec) -> str:
        return f"model.{block.name}.{tensor.name}" if block.kind == _LAYER else _NAMES[tensor.name]

    def tables(
        self, tokens_BT: Tensor, documents_BT: Tensor | None, most_per_row: int | None = None
    ) -> Tables:
        rotary = self.rotary(tokens_BT.shape[1], tokens_BT.device)
        return rotary if documents_BT is None else document_tables(rotary, documents_BT, most_per_row)

    def rotary(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        return rotary_tables(self.shape, length, device)

    def embed(self, weights: Weights, tokens_BT: Tensor, tables: Tables) -> Tensor:
        return F.embedding(tokens_BT, weights[EMBEDDING])

    def layer(self, kind: str, weights: Weights, x_BTD: Tensor, tables: Tables) -> Tensor:
        out: Tensor = functional_call(self.templates[kind], dict(weights), (x_BTD, tables))
        return out

    def logits(self, weights: Weights, x_ND: Tensor) -> Tensor:
        normed = F.rms_norm(x_ND, (self.shape.hidden_size,), weights[_NORM], self.shape.norm_eps)
        return F.linear(normed, weights[EMBEDDING if self.tied else _HEAD])


class RandomLlama:
    """First weights that depend on shape, seed and kind of device only, not on torch's global generator."""

    def __init__(self, shape: ModelShape, seed: int) -> None:
        self._shape = shape
        self._seed = seed
        self._generator: torch.Generator | None = None

    @torch.no_grad()
    def fill(self, block: BlockSpec, tensors: Weights) -> None:
        if self._generator is None or block.kind == _EMBEDDING_KIND:
            # The first block begins the same sequence of numbers, however often a model is filled.
            device = next(iter(tensors.values())).device
            self._generator = torch.Generator(device).manual_seed(self._seed)
        for tensor in (*block.trained, *block.frozen):
            target = tensors[tensor.name]
            if target.ndim == 1:
                target.fill_(1.0)
            else:
                target.normal_(0.0, initial_deviation(self._shape, tensor.name), generator=self._generator)
