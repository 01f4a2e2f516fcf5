"""LlamaDecoder: the Llama architecture, one token for each row of a batch or a piece of one prompt.

Takes the weights of the engine's own model or of transformers' Llama, Mistral, Qwen2 and Qwen3, and computes
what they compute. Matrices with the same input are joined; the modules they come from keep them as views, so
memory holds each weight once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.engine.decoding.kv_blocks import KvPool, flat_positions
from gpubloom.engine.decoding.operations import (
    Lora,
    LoraTerm,
    Matrix,
    Norm,
    PackedRows,
    attend_prompt,
    attend_rows,
    project,
    rotate_and_store,
)
from gpubloom.engine.models.transformer import TransformerLM, rotary_tables
from gpubloom.engine.nf4 import Nf4
from gpubloom.plan.families import OWN_LAYERS

# Rotations that depend on the position alone; others change with the length of a sequence.
_FIXED_ROTATIONS = frozenset({"default", "linear", "llama3", "yarn"})


@dataclass(frozen=True)
class Rows:
    """One token for each row of a batch. `tuned_B` is 1 where the adapter counts; None: nowhere."""

    tokens_B: Tensor
    positions_B: Tensor
    tables_BM: Tensor
    tuned_B: Tensor | None = None


@dataclass(frozen=True)
class Piece:
    """Tokens of one prompt from position `start` on."""

    tokens_T: Tensor
    start: int
    table_M: Tensor
    tuned: bool = False


@dataclass(frozen=True)
class _Layer:
    input_norm: Norm
    qkv: Matrix
    head_norms: tuple[Norm, Norm] | None
    out: Matrix
    norm: Norm
    gate_up: Matrix
    down: Matrix


class LlamaDecoder:
    """Computes logits; keys and values go to the pool it is given."""

    def __init__(
        self,
        embedding: Tensor,
        layers: Sequence[_Layer],
        norm: Norm,
        head: Matrix,
        rotary: tuple[Tensor, Tensor],
        heads: int,
        kv_heads: int,
    ) -> None:
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._rotary = rotary
        self._heads = heads
        self.kv_heads = kv_heads
        self.head_size = rotary[0].shape[1]
        self.layers = len(layers)
        self.context_length = len(rotary[0])
        self.device, self.dtype = embedding.device, embedding.dtype
        self.has_adapter = any(
            matrix.lora is not None
            for layer in layers
            for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down)
        )
        self._scale = self.head_size**-0.5

    def rows(self, rows: Rows, pool: KvPool) -> Tensor:
        """Logits (B, V) of the token after each row's."""
        where_B = flat_positions(rows.tables_BM, rows.positions_B)

        def attend(layer: int, q_BNH: Tensor) -> Tensor:
            keys, values = pool.keys[layer], pool.values[layer]
            return attend_rows(q_BNH, keys, values, rows.tables_BM, rows.positions_B, self._scale)

        x_BD = self._run(rows.tokens_B, rows.positions_B, where_B, rows.tuned_B, pool, attend)
        return project(x_BD, self._head, norm=self._norm)

    def prompt(self, piece: Piece, pool: KvPool) -> Tensor:
        """Logits (1, V) of the token after the piece."""
        length = len(piece.tokens_T)
        positions_T = torch.arange(piece.start, piece.start + length, device=self.device)
        where_T = flat_positions(piece.table_M.expand(length, -1), positions_T)
        tuned_T = positions_T.new_ones(length, dtype=self.dtype) if piece.tuned else None

        def attend(layer: int, q_TNH: Tensor) -> Tensor:
            keys, values = pool.keys[layer], pool.values[layer]
            return attend_prompt(q_TNH, keys, values, piece.table_M, piece.start, self._scale)

        x_TD = self._run(piece.tokens_T, positions_T, where_T, tuned_T, pool, attend)
        return project(x_TD[-1:], self._head, norm=self._norm)

    def _run(
        self,
        tokens: Tensor,
        positions: Tensor,
        where: Tensor,
        tuned: Tensor | None,
        pool: KvPool,
        attend: Any,
    ) -> Tensor:
        x = F.embedding(tokens, self._embedding)
        for index, layer in enumerate(self._layers):
            qkv = project(x, layer.qkv, norm=layer.input_norm, tuned_B=tuned)
            keys, values = pool.keys[index], pool.values[index]
            q = rotate_and_store(
                qkv, self._rotary, layer.head_norms, positions, where, keys, values, self._heads
            )
            x = project(attend(index, q), layer.out, residual=x, tuned_B=tuned)
            gated = project(x, layer.gate_up, norm=layer.norm, gated=True, tuned_B=tuned)
            x = project(gated, layer.down, residual=x, tuned_B=tuned)
        return x

    @classmethod
    def of_own(cls, model: TransformerLM) -> "LlamaDecoder":
        """The engine's own architecture."""
        shape = model.shape
        eps = shape.norm_eps
        weight = model.embedding.weight
        return cls(
            weight.data,
            [_layer(layer, "", {}, eps) for layer in model.layers],
            Norm(model.head.norm.weight.data, eps),
            Matrix(model.head.weight.data),
            rotary_tables(shape, shape.context_length, weight.device),
            shape.heads,
            shape.kv_heads,
        )

    @classmethod
    def of_transformers(
        cls, module: Any, adapter: Mapping[str, LoraTerm], context_length: int
    ) -> "LlamaDecoder | None":
        """A model of transformers; None when it is not one that is computed here. `adapter` is by path."""
        config = module.config
        if not _is_supported(config, adapter) or not _fits(module):
            return None
        inner = module.model
        weight = inner.embed_tokens.weight.data
        positions = torch.arange(context_length, device=weight.device)[None]
        cos, sin = inner.rotary_emb(weight.new_empty(0, dtype=torch.float32), positions)
        head = module.lm_head
        return cls(
            weight,
            [
                _layer(layer, f"model.layers.{index}.", adapter, config.rms_norm_eps)
                for index, layer in enumerate(inner.layers)
            ],
            Norm(inner.norm.weight.data, config.rms_norm_eps),
            Matrix(head.weight.data, None if head.bias is None else head.bias.data),
            (cos[0].contiguous(), sin[0].contiguous()),
            config.num_attention_heads,
            config.num_key_value_heads,
        )


def _is_supported(config: Any, adapter: Mapping[str, LoraTerm]) -> bool:
    windows = getattr(config, "layer_types", None) or ["full_attention"]
    sliding = any(kind != "full_attention" for kind in windows)
    if config.model_type == "mistral":
        sliding = getattr(config, "sliding_window", None) is not None
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return (
        config.model_type in OWN_LAYERS
        and not sliding
        and config.hidden_act == "silu"
        and rotation in _FIXED_ROTATIONS
        and all(path.startswith("model.layers.") for path in adapter)
    )


def _fits(module: Any) -> bool:
    """Whether every packed matrix has rows of whole blocks."""
    found = (getattr(part, "packed", None) for part in module.modules())
    return all(PackedRows.fits(packed) for packed in found if isinstance(packed, Nf4))


def _layer(layer: Any, path: str, adapter: Mapping[str, LoraTerm], eps: float) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp

    def matrix(parent: Any, prefix: str, *names: str) -> Matrix:
        terms = [adapter.get(f"{path}{prefix}.{name}") for name in names]
        return _joined([getattr(parent, name) for name in names], terms)

    head_norms = None
    if getattr(attention, "q_norm", None) is not None:
        head_norms = (Norm(attention.q_norm.weight.data, eps), Norm(attention.k_norm.weight.data, eps))
    return _Layer(
        Norm(layer.input_layernorm.weight.data, eps),
        matrix(attention, "self_attn", "q_proj", "k_proj", "v_proj"),
        head_norms,
        matrix(attention, "self_attn", "o_proj"),
        Norm(layer.post_attention_layernorm.weight.data, eps),
        matrix(mlp, "mlp", "gate_proj", "up_proj"),
        matrix(mlp, "mlp", "down_proj"),
    )


def _joined(linears: Sequence[Any], terms: Sequence[LoraTerm | None]) -> Matrix:
    sizes = [int(linear.out_features) for linear in linears]
    given = [linear.bias.data for linear in linears if linear.bias is not None]
    bias = None
    if given:
        # Some families have a bias for some of them only.
        parts = [
            given[0].new_zeros(size) if linear.bias is None else linear.bias.data
            for linear, size in zip(linears, sizes, strict=True)
        ]
        bias = torch.cat(parts)
    packed: list[Nf4] = [linear.packed for linear in linears if hasattr(linear, "packed")]
    weight: Tensor | PackedRows
    if packed:
        weight = PackedRows.join(packed)
        for linear, size, start in zip(linears, sizes, _starts(sizes), strict=True):
            linear.packed = weight.rows(start, size)
    elif len(linears) == 1:
        weight = linears[0].weight.data
    else:
        weight = torch.cat([linear.weight.data for linear in linears])
        for linear, size, start in zip(linears, sizes, _starts(sizes), strict=True):
            linear.weight.data = weight[start : start + size]
    return Matrix(weight, bias, _joined_lora(sizes, terms))


def _joined_lora(sizes: Sequence[int], terms: Sequence[LoraTerm | None]) -> Lora | None:
    present = [term for term in terms if term is not None]
    if not present:
        return None
    like = present[0].a
    rank = sum(len(term.a) for term in present)
    up_NR = like.new_zeros(sum(sizes), rank)
    row = column = 0
    for size, term in zip(sizes, terms, strict=True):
        if term is not None:
            up_NR[row : row + size, column : column + len(term.a)] = term.b * term.scale
            column += len(term.a)
        row += size
    return Lora(torch.cat([term.a for term in present]), up_NR)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:index]) for index in range(len(sizes))]
