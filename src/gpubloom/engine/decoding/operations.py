"""The operations that decoding is made of, in torch; on a GPU those of one step are kernels of `kernels.py`.

Shape letters: B rows (one token each), T positions of one prompt, D inputs, N heads or outputs, K key-value
heads, H head size, M blocks of a row, R rank, V vocabulary. A pool of keys or of values is (blocks, block,
K, H).
"""

import functools
import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.engine.nf4 import BLOCK, NF4, Nf4, dequantize, dequantize_scales

# Up to so many rows, a product is computed row by row by the kernel that reads a matrix once for each; for
# more rows, a packed matrix is decoded whole before it.
_MATVEC_ROWS = 1
_PACKED_ROWS = 4


@dataclass(frozen=True)
class PackedRows:
    """A matrix in NF4 whose rows are whole blocks; scales are decoded once, for kernels to read them."""

    packed: Tensor
    absmax: Tensor
    codes: Tensor
    shape: tuple[int, int]

    @classmethod
    def join(cls, matrices: Sequence[Nf4]) -> "PackedRows":
        """Matrices of the same width, one below the other."""
        outputs = sum(matrix.shape[0] for matrix in matrices)
        device = matrices[0].packed.device
        return cls(
            torch.cat([matrix.packed for matrix in matrices]),
            torch.cat([dequantize_scales(matrix) for matrix in matrices]),
            torch.tensor(NF4, device=device),
            (outputs, matrices[0].shape[1]),
        )

    @staticmethod
    def fits(matrix: Nf4) -> bool:
        return len(matrix.shape) == 2 and matrix.shape[1] % BLOCK == 0

    def rows(self, start: int, count: int) -> Nf4:
        """Some rows as a matrix of their own, which shares this one's memory."""
        blocks_in_row = self.shape[1] // BLOCK
        bytes_in_row = self.shape[1] // 2
        return Nf4(
            self.packed[start * bytes_in_row : (start + count) * bytes_in_row],
            self.absmax[start * blocks_in_row : (start + count) * blocks_in_row],
            None,
            None,
            torch.Size((count, self.shape[1])),
            torch.float32,
        )

    def decoded(self, dtype: torch.dtype) -> Tensor:
        room = torch.empty(self.shape, dtype=dtype, device=self.packed.device)
        return dequantize(Nf4(self.packed, self.absmax, None, None, room.shape, dtype), room)


@dataclass(frozen=True)
class LoraTerm:
    """An adapter's matrices for one linear layer: y = base(x) + scale · B(A(x))."""

    a: Tensor
    b: Tensor
    scale: float


@dataclass(frozen=True)
class Lora:
    """An adapter's term of a matrix. `up_NR` is scaled; for joined matrices it is zero off its diagonal."""

    down_RD: Tensor
    up_NR: Tensor


@dataclass(frozen=True)
class Matrix:
    """A linear layer, or several with the same input as one."""

    weight: Tensor | PackedRows
    bias: Tensor | None = None
    lora: Lora | None = None

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True)
class Norm:
    weight: Tensor
    eps: float


def project(
    x_BD: Tensor,
    matrix: Matrix,
    *,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
    tuned_B: Tensor | None = None,
) -> Tensor:
    """matrix(norm(x)), gated as SwiGLU does, plus the residual. `tuned_B` is 1 where the adapter counts."""
    kernels = _kernels(x_BD)
    lora = matrix.lora if tuned_B is not None else None
    most = _MATVEC_ROWS if isinstance(matrix.weight, Tensor) else _PACKED_ROWS
    if kernels is not None and len(x_BD) <= most:
        rows = [
            _project_row(
                kernels,
                x_BD[row : row + 1],
                matrix,
                norm,
                None if residual is None else residual[row : row + 1],
                gated,
                lora,
                None if tuned_B is None else tuned_B[row : row + 1],
            )
            for row in range(len(x_BD))
        ]
        return rows[0] if len(rows) == 1 else torch.cat(rows)
    if norm is not None:
        x_BD = rms_norm(x_BD, norm)
    weight = matrix.weight if isinstance(matrix.weight, Tensor) else matrix.weight.decoded(x_BD.dtype)
    y_BN = F.linear(x_BD, weight, matrix.bias)
    if lora is not None and tuned_B is not None:
        y_BN = y_BN + F.linear(F.linear(x_BD, lora.down_RD) * tuned_B[:, None], lora.up_NR)
    if gated:
        y_BN = _silu_gate(y_BN)
    return y_BN if residual is None else residual + y_BN


def _project_row(
    kernels: Any,
    x_1D: Tensor,
    matrix: Matrix,
    norm: Norm | None,
    residual: Tensor | None,
    gated: bool,
    lora: Lora | None,
    tuned_1: Tensor | None,
) -> Tensor:
    before: dict[str, Any] = {} if norm is None else {"norm": norm.weight, "eps": norm.eps}
    after: dict[str, Any] = {}
    if lora is not None:
        low_1R = kernels.matvec(x_1D, lora.down_RD, outputs=lora.down_RD.shape[0], **before)
        after = {"low_1R": low_1R, "up_NR": lora.up_NR, "tuned_1": tuned_1}
    weight = matrix.weight
    if isinstance(weight, PackedRows):
        after |= {"absmax": weight.absmax, "codes": weight.codes}
    outputs = matrix.outputs // 2 if gated else matrix.outputs
    data = weight if isinstance(weight, Tensor) else weight.packed
    found: Tensor = kernels.matvec(
        x_1D, data, outputs=outputs, bias=matrix.bias, residual_1N=residual, gated=gated, **before, **after
    )
    return found


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """In FP32, rounded before the weight is applied, as transformers does it."""
    kernels = _kernels(x)
    if kernels is not None and x.ndim == 2:
        found: Tensor = kernels.rms_norm(x, norm.weight, norm.eps)
        return found
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm.eps)
    return norm.weight * wide.to(x.dtype)


def rotate_and_store(
    qkv: Tensor,
    rotary: tuple[Tensor, Tensor],
    norms: tuple[Norm, Norm] | None,
    positions_B: Tensor,
    where_B: Tensor,
    keys: Tensor,
    values: Tensor,
    heads: int,
) -> Tensor:
    """Queries (B, N, H) of joined queries, keys and values; the latter two go to `where_B` in the pools."""
    kernels = _kernels(qkv)
    if kernels is not None:
        weights = None if norms is None else (norms[0].weight, norms[1].weight)
        eps = 0.0 if norms is None else norms[0].eps
        found: Tensor = kernels.rotate_and_store(
            qkv, rotary, weights, eps, positions_B, where_B, keys, values, heads
        )
        return found
    kv_heads, size = keys.shape[-2:]
    heads_BAH = qkv.view(len(qkv), -1, size)
    q_BNH, k_BKH, v_BKH = torch.split(heads_BAH, [heads, kv_heads, kv_heads], dim=1)
    if norms is not None:
        q_BNH, k_BKH = rms_norm(q_BNH, norms[0]), rms_norm(k_BKH, norms[1])
    tables = tuple(table[positions_B][:, None].to(qkv.dtype) for table in rotary)
    store(keys, values, where_B, _rotated(k_BKH, *tables), v_BKH)
    return _rotated(q_BNH, *tables)


def store(keys: Tensor, values: Tensor, where_B: Tensor, k_BKH: Tensor, v_BKH: Tensor) -> None:
    """Writes keys and values to their places in the pools."""
    keys.view(-1, *keys.shape[2:]).index_copy_(0, where_B, k_BKH.to(keys.dtype))
    values.view(-1, *values.shape[2:]).index_copy_(0, where_B, v_BKH.to(values.dtype))


def attend_rows(
    q_BNH: Tensor,
    keys: Tensor,
    values: Tensor,
    tables_BM: Tensor,
    positions_B: Tensor,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Each row's newest position over all of its own (or the last `window`); (B, N·H)."""
    kernels = _kernels(q_BNH)
    if kernels is not None and window is None and softcap is None:
        found: Tensor = kernels.attend(q_BNH, keys, values, tables_BM, positions_B, scale)
        return found
    rows, heads, size = q_BNH.shape
    kv_heads = keys.shape[2]
    k_BLKH, v_BLKH = (pool[tables_BM].flatten(1, 2) for pool in (keys, values))
    q_BKGH = q_BNH.view(rows, kv_heads, heads // kv_heads, size)
    scores = (q_BKGH @ k_BLKH.permute(0, 2, 3, 1)).float() * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    keys_L = torch.arange(k_BLKH.shape[1], device=q_BNH.device)
    hidden_BL = keys_L[None, :] > positions_B[:, None]
    if window is not None:
        hidden_BL = hidden_BL | (keys_L[None, :] <= positions_B[:, None] - window)
    scores = scores.masked_fill(hidden_BL[:, None, None, :], float("-inf"))
    y_BKGH = torch.softmax(scores, dim=-1).to(q_BNH.dtype) @ v_BLKH.transpose(1, 2)
    return y_BKGH.reshape(rows, heads * size)


def attend_prompt(
    q_TNH: Tensor,
    keys: Tensor,
    values: Tensor,
    table_M: Tensor,
    start: int,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Positions start, start + 1 … of one row over those before them; (T, N·H)."""
    length, heads, _ = q_TNH.shape
    k_NLH, v_NLH = (
        pool[table_M]
        .flatten(0, 1)[: start + length]
        .transpose(0, 1)
        .repeat_interleave(heads // pool.shape[2], 0)
        for pool in (keys, values)
    )
    q_NTH = q_TNH.transpose(0, 1)
    mask_TL = None
    if start or window is not None or softcap is not None:
        rows_T = torch.arange(start, start + length, device=q_TNH.device)[:, None]
        keys_L = torch.arange(start + length, device=q_TNH.device)[None, :]
        mask_TL = keys_L <= rows_T
        if window is not None:
            mask_TL &= keys_L > rows_T - window
    if softcap is not None and mask_TL is not None:
        scores = torch.tanh((q_NTH @ k_NLH.transpose(1, 2)) * (scale / softcap)) * softcap
        scores = scores.float().masked_fill(~mask_TL, float("-inf"))
        y_NTH = torch.softmax(scores, dim=-1).to(q_TNH.dtype) @ v_NLH
    else:
        y_NTH = F.scaled_dot_product_attention(
            q_NTH[None], k_NLH[None], v_NLH[None], attn_mask=mask_TL, is_causal=mask_TL is None, scale=scale
        )[0]
    return y_NTH.transpose(0, 1).flatten(1)


def _rotated(x_BNH: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x_BNH.chunk(2, dim=-1)
    return x_BNH * cos + torch.cat((-second, first), dim=-1) * sin


def _silu_gate(x_BF2: Tensor) -> Tensor:
    kernels = _kernels(x_BF2)
    if kernels is not None:
        found: Tensor = kernels.silu_gate(x_BF2)
        return found
    gate, up = x_BF2.chunk(2, dim=-1)
    return F.silu(gate) * up


def _kernels(x: Tensor) -> Any:
    """The module of kernels where they can run; None elsewhere."""
    return _load_kernels() if x.is_cuda or "TRITON_INTERPRET" in os.environ else None


@functools.cache
def _load_kernels() -> Any:
    try:
        return importlib.import_module("gpubloom.engine.decoding.kernels")
    except ImportError:
        return None
