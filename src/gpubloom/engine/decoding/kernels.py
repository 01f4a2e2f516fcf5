"""Triton kernels of one decode step on a GPU. `operations.py` has the same in torch, which is the reference.

One row reads every weight once and computes little, so a step takes as long as the weights take to arrive.
What surrounds a matrix therefore happens in the kernel that reads it: the norm before it, bias, adapter, gate
and residual after it. Sizes of tiles are fixed: nothing is tuned while a model is served.

Shape letters as in `operations.py`. Pointers are of contiguous tensors.
"""

# The parameters of kernels are what Triton makes of them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import struct
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpubloom.engine.nf4 import NF4

_TILE = 64


def _nf4_in_registers() -> str:
    """PTX: the eight weights of a word in FP32, from a table in registers.

    A look-up in memory takes a load for each weight, which is slower than the weights arrive. `prmt` picks
    four bytes of eight at once: twice for the lower and the upper half of the table, and once to choose
    between the two by the highest bit of each code. That is done for both bytes of a value in FP16.
    """
    halves = [struct.pack("<e", value) for value in NF4]
    planes = {
        name: [
            int.from_bytes(bytes(half[byte] for half in halves[at : at + 4]), "little")
            for at in range(0, 16, 4)
        ]
        for name, byte in (("low", 0), ("high", 1))
    }
    lines = [
        ".reg .b32 code, choice, under, over, low, high, pair;",
        ".reg .b16 first, second;",
    ]
    for group in range(2):
        lines += [
            f"shr.u32 code, $8, {16 * group};",
            "shr.u32 choice, code, 1;",
            "and.b32 choice, choice, 0x44444444;",
            "or.b32 choice, choice, 0x32103210;",
            "and.b32 code, code, 0x77777777;",
        ]
        for name, words in planes.items():
            lines += [
                f"prmt.b32 under, {words[0]:#010x}, {words[1]:#010x}, code;",
                f"prmt.b32 over, {words[2]:#010x}, {words[3]:#010x}, code;",
                f"prmt.b32 {name}, under, over, choice;",
            ]
        for half, select in enumerate(("0x5140", "0x7362")):
            output = 4 * group + 2 * half
            lines += [
                f"prmt.b32 pair, low, high, {select};",
                "mov.b32 {first, second}, pair;",
                # The weight in the upper half of a byte comes before the one in its lower half.
                f"cvt.f32.f16 ${output + 1}, first;",
                f"cvt.f32.f16 ${output}, second;",
            ]
    return "{" + " ".join(lines) + "}"


_NF4_IN_REGISTERS = tl.constexpr(_nf4_in_registers())


@triton.jit
def _eight_weights(packed):
    return tl.inline_asm_elementwise(
        _NF4_IN_REGISTERS,
        "=f,=f,=f,=f,=f,=f,=f,=f,r",
        [packed],
        dtype=(
            tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32
        ),
        is_pure=True,
        pack=1,
    )  # fmt: skip


@triton.jit
def _matvec_kernel(  # noqa: C901 - one kernel, whose branches are decided when it is compiled
    x_ptr, weight_ptr, absmax_ptr, codes_ptr, bias_ptr, norm_ptr, residual_ptr, low_ptr, up_ptr,
    tuned_ptr, out_ptr,
    outputs, inputs, eps,
    NF4: tl.constexpr, HALF: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr, RESIDUAL: tl.constexpr,
    GATED: tl.constexpr,
    RANK: tl.constexpr, RANK_TILE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """BLOCK_N outputs for one row: the products of a tile are added up where they are, and reduced once."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_n = n < outputs
    row = n.to(tl.int64)
    total = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    second = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    squares = tl.zeros((BLOCK_K,), dtype=tl.float32)
    if NF4:
        # A word of 32 bits holds eight weights of one block, the first in the upper half of its lowest byte.
        # BLOCK_K counts words.
        words_in_row = inputs // 8
        for start in range(0, words_in_row, BLOCK_K):
            w = start + tl.arange(0, BLOCK_K)
            in_k = w < words_in_row
            here = in_n[:, None] & in_k[None, :]
            at = row[:, None] * words_in_row + w[None, :]
            scale_at = row[:, None] * (words_in_row // 8) + (w // 8)[None, :]
            packed = tl.load(weight_ptr + at, mask=here, other=0)
            scale = tl.load(absmax_ptr + scale_at, mask=here, other=0.0)
            part = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
            if GATED:
                below = outputs.to(tl.int64)
                packed_2 = tl.load(weight_ptr + below * words_in_row + at, mask=here, other=0)
                scale_2 = tl.load(absmax_ptr + below * (words_in_row // 8) + scale_at, mask=here, other=0.0)
                part_2 = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
            if HALF:
                values = _eight_weights(packed)
                if GATED:
                    values_2 = _eight_weights(packed_2)
            for j in tl.static_range(8):
                # `_spread_kernel` has put the inputs of one place in all words side by side, and normed them.
                x = tl.load(x_ptr + j * words_in_row + w, mask=in_k, other=0.0)
                if HALF:
                    part += values[j] * x[None, :]
                    if GATED:
                        part_2 += values_2[j] * x[None, :]
                else:
                    code = (packed >> (8 * (j // 2) + 4 * (1 - j % 2))) & 15
                    part += tl.load(codes_ptr + code) * x[None, :]
                    if GATED:
                        code_2 = (packed_2 >> (8 * (j // 2) + 4 * (1 - j % 2))) & 15
                        part_2 += tl.load(codes_ptr + code_2) * x[None, :]
            total += scale * part
            if GATED:
                second += scale_2 * part_2
    else:
        for start in range(0, inputs, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            in_k = k < inputs
            x = tl.load(x_ptr + k, mask=in_k, other=0.0).to(tl.float32)
            if NORM:
                squares += x * x
                x = x * tl.load(norm_ptr + k, mask=in_k, other=0.0).to(tl.float32)
            here = in_n[:, None] & in_k[None, :]
            at = row[:, None] * inputs + k[None, :]
            total += tl.load(weight_ptr + at, mask=here, other=0.0).to(tl.float32) * x[None, :]
            if GATED:
                at += outputs.to(tl.int64) * inputs
                second += tl.load(weight_ptr + at, mask=here, other=0.0).to(tl.float32) * x[None, :]
    y = tl.sum(total, axis=1)
    z = tl.sum(second, axis=1)
    if NORM and not NF4:
        root = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / inputs + eps)
        y *= root
        z *= root
    if BIAS:
        y += tl.load(bias_ptr + n, mask=in_n, other=0.0).to(tl.float32)
        if GATED:
            z += tl.load(bias_ptr + outputs + n, mask=in_n, other=0.0).to(tl.float32)
    if RANK > 0:
        r = tl.arange(0, RANK_TILE)
        low_rank = tl.load(low_ptr + r, mask=r < RANK, other=0.0).to(tl.float32)
        low_rank *= tl.load(tuned_ptr).to(tl.float32)
        here = in_n[:, None] & (r < RANK)[None, :]
        at = row[:, None] * RANK + r[None, :]
        y += tl.sum(tl.load(up_ptr + at, mask=here, other=0.0).to(tl.float32) * low_rank[None, :], axis=1)
        if GATED:
            at += outputs.to(tl.int64) * RANK
            z += tl.sum(tl.load(up_ptr + at, mask=here, other=0.0).to(tl.float32) * low_rank[None, :], axis=1)
    if GATED:
        y = y / (1.0 + tl.exp(-y)) * z
    if RESIDUAL:
        y += tl.load(residual_ptr + n, mask=in_n, other=0.0).to(tl.float32)
    tl.store(out_ptr + n, y.to(out_ptr.dtype.element_ty), mask=in_n)


def matvec(
    x_1D: Tensor,
    weight: Tensor,
    *,
    outputs: int,
    absmax: Tensor | None = None,
    codes: Tensor | None = None,
    bias: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual_1N: Tensor | None = None,
    low_1R: Tensor | None = None,
    up_NR: Tensor | None = None,
    tuned_1: Tensor | None = None,
    gated: bool = False,
    tile: tuple[int, int, int] | None = None,
) -> Tensor:
    """One row times a matrix; `tile` is outputs, inputs (or words) and warps of one program."""
    inputs = x_1D.shape[1]
    dtype = x_1D.dtype
    if absmax is not None:
        weight = weight.view(torch.int32)
        x_1D = _spread(x_1D, norm, eps)
    out_1N = torch.empty(1, outputs, dtype=dtype, device=x_1D.device)
    block_n, block_k, warps = tile or _tile(outputs, inputs, packed=absmax is not None, gated=gated)
    rank = 0 if up_NR is None else up_NR.shape[1]
    _matvec_kernel[(triton.cdiv(outputs, block_n),)](
        x_1D,
        weight,
        x_1D if absmax is None else absmax,
        x_1D if codes is None else codes,
        x_1D if bias is None else bias,
        x_1D if norm is None else norm,
        x_1D if residual_1N is None else residual_1N,
        x_1D if low_1R is None else low_1R,
        x_1D if up_NR is None else up_NR,
        x_1D if tuned_1 is None else tuned_1,
        out_1N,
        outputs,
        inputs,
        eps,
        NF4=absmax is not None,
        # FP16 is nearer to a code's value than a weight in 16 bits is; models in FP32 look it up.
        HALF=dtype != torch.float32,
        BIAS=bias is not None,
        NORM=norm is not None,
        RESIDUAL=residual_1N is not None,
        GATED=gated,
        RANK=rank,
        RANK_TILE=triton.next_power_of_2(max(1, rank)),
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        num_warps=warps,
    )
    return out_1N


@triton.jit
def _spread_kernel(x_ptr, norm_ptr, out_ptr, size, eps, NORM: tl.constexpr, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = i < size
    x = tl.load(x_ptr + i, mask=here, other=0.0).to(tl.float32)
    if NORM:
        root = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / size + eps)
        x = x * root * tl.load(norm_ptr + i, mask=here, other=0.0).to(tl.float32)
    to = out_ptr + (i % 8) * (size // 8) + i // 8
    tl.store(to, x, mask=here)


def _spread(x_1D: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """The normed row as (8, D / 8): what one place of neighbouring words is multiplied by lies together."""
    size = x_1D.shape[1]
    out = torch.empty(1, size, dtype=torch.float32, device=x_1D.device)
    given = x_1D if norm is None else norm
    # A norm needs the whole row in one program.
    tile, warps = (1024, 4) if norm is None else (triton.next_power_of_2(size), 16)
    _spread_kernel[(triton.cdiv(size, tile),)](
        x_1D, given, out, size, eps, NORM=norm is not None, TILE=tile, num_warps=warps
    )
    return out


def _tile(outputs: int, inputs: int, *, packed: bool, gated: bool) -> tuple[int, int, int]:
    """What was fastest on an H200 for the matrices of a 7B model."""
    if packed:
        return 4, 128, 2
    return (2, 1024, 4) if outputs >= 4096 and inputs < 8192 and not gated else (1, 1024, 4)


@triton.jit
def _rotate_kernel(
    qkv_ptr, cos_ptr, sin_ptr, q_norm_ptr, k_norm_ptr, position_ptr, where_ptr, q_ptr, k_ptr, v_ptr,
    eps, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, HALF_TILE: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """One head of one row: normed, rotated and, if it is a key or a value, written to its place."""
    row, head = tl.program_id(0), tl.program_id(1)
    half: tl.constexpr = SIZE // 2
    i = tl.arange(0, HALF_TILE)
    here = i < half
    at = qkv_ptr + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE + i
    first = tl.load(at, mask=here, other=0.0).to(tl.float32)
    second = tl.load(at + half, mask=here, other=0.0).to(tl.float32)
    if head < HEADS + KV_HEADS:
        if NORM:
            root = 1.0 / tl.sqrt(
                (tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / SIZE + eps
            )
            norm = q_norm_ptr if head < HEADS else k_norm_ptr
            first = first * root * tl.load(norm + i, mask=here, other=0.0).to(tl.float32)
            second = second * root * tl.load(norm + half + i, mask=here, other=0.0).to(tl.float32)
        position = tl.load(position_ptr + row)
        cos = tl.load(cos_ptr + position * SIZE + i, mask=here, other=0.0)
        sin = tl.load(sin_ptr + position * SIZE + i, mask=here, other=0.0)
        turned = first * cos - second * sin
        second = second * cos + first * sin
        first = turned
    if head < HEADS:
        to = q_ptr + (row * HEADS + head) * SIZE + i
    else:
        where = tl.load(where_ptr + row)
        if head < HEADS + KV_HEADS:
            to = k_ptr + (where * KV_HEADS + head - HEADS) * SIZE + i
        else:
            to = v_ptr + (where * KV_HEADS + head - HEADS - KV_HEADS) * SIZE + i
    tl.store(to, first.to(q_ptr.dtype.element_ty), mask=here)
    tl.store(to + half, second.to(q_ptr.dtype.element_ty), mask=here)


def rotate_and_store(
    qkv: Tensor,
    rotary: tuple[Tensor, Tensor],
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    positions_B: Tensor,
    where_B: Tensor,
    keys: Tensor,
    values: Tensor,
    heads: int,
) -> Tensor:
    """Queries of shape (B, N, H); keys and values go to their places in the pool."""
    rows = qkv.shape[0]
    kv_heads, size = keys.shape[-2:]
    q_BNH = torch.empty(rows, heads, size, dtype=qkv.dtype, device=qkv.device)
    _rotate_kernel[(rows, heads + 2 * kv_heads)](
        qkv,
        *rotary,
        *(norms or (qkv, qkv)),
        positions_B,
        where_B,
        q_BNH,
        keys,
        values,
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        SIZE=size,
        HALF_TILE=triton.next_power_of_2(size // 2),
        NORM=norms is not None,
        num_warps=1,
    )
    return q_BNH


@triton.jit
def _attend_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, position_ptr, out_ptr, most_ptr, sum_ptr, scale, blocks_in_row,
    GROUP: tl.constexpr, GROUP_TILE: tl.constexpr, SIZE: tl.constexpr, SIZE_TILE: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The heads that share keys, over one part of a row's positions: unfinished sums for `_join_kernel`."""
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_heads = tl.num_programs(1)
    length = tl.load(position_ptr + row).to(tl.int32) + 1
    part = tl.cdiv(tl.cdiv(length, SPLITS), TILE) * TILE
    begin = split * part
    end = tl.minimum(begin + part, length)
    g = tl.arange(0, GROUP_TILE)
    h = tl.arange(0, SIZE_TILE)
    head = kv_head * GROUP + g
    q_at = (row * kv_heads * GROUP + head[:, None]) * SIZE + h[None, :]
    in_q = (g < GROUP)[:, None] & (h < SIZE)[None, :]
    q = tl.load(q_ptr + q_at, mask=in_q, other=0.0)
    most = tl.full((GROUP_TILE,), float("-inf"), dtype=tl.float32)
    weights = tl.zeros((GROUP_TILE,), dtype=tl.float32)
    total = tl.zeros((GROUP_TILE, SIZE_TILE), dtype=tl.float32)
    for start in range(begin, end, TILE):
        p = start + tl.arange(0, TILE)
        seen = p < end
        block = tl.load(table_ptr + row * blocks_in_row + p // BLOCK, mask=seen, other=0).to(tl.int64)
        at = ((block * BLOCK + p % BLOCK) * kv_heads + kv_head) * SIZE
        in_kv = seen[:, None] & (h < SIZE)[None, :]
        k = tl.load(k_ptr + at[:, None] + h[None, :], mask=in_kv, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_most = tl.maximum(most, tl.max(scores, axis=1))
        shrink = tl.exp(most - new_most)
        share = tl.exp(scores - new_most[:, None])
        v = tl.load(v_ptr + at[:, None] + h[None, :], mask=in_kv, other=0.0)
        total = total * shrink[:, None] + tl.dot(share.to(v.dtype), v, input_precision=PRECISION)
        weights = weights * shrink + tl.sum(share, axis=1)
        most = new_most
    to = (row * kv_heads * GROUP + head) * SPLITS + split
    tl.store(most_ptr + to, most, mask=g < GROUP)
    tl.store(sum_ptr + to, weights, mask=g < GROUP)
    tl.store(out_ptr + to[:, None] * SIZE + h[None, :], total, mask=in_q)


@triton.jit
def _join_kernel(
    part_ptr, most_ptr, sum_ptr, out_ptr,
    SIZE: tl.constexpr, SIZE_TILE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, SPLITS)
    h = tl.arange(0, SIZE_TILE)
    most = tl.load(most_ptr + head * SPLITS + s)
    share = tl.exp(most - tl.max(most, axis=0))
    weights = tl.sum(tl.load(sum_ptr + head * SPLITS + s) * share, axis=0)
    parts = tl.load(
        part_ptr + (head * SPLITS + s[:, None]) * SIZE + h[None, :], mask=(h < SIZE)[None, :], other=0.0
    )
    out = tl.sum(parts * share[:, None], axis=0) / weights
    tl.store(out_ptr + head * SIZE + h, out.to(out_ptr.dtype.element_ty), mask=h < SIZE)


def attend(
    q_BNH: Tensor, keys: Tensor, values: Tensor, tables_BM: Tensor, positions_B: Tensor, scale: float
) -> Tensor:
    """Each row's newest position over all of its own; (B, N·H). Reads only the blocks that are in use."""
    rows, heads, size = q_BNH.shape
    block, kv_heads = keys.shape[1:3]
    # About two programs for each multiprocessor; a power of two, as ranges in Triton are.
    splits = min(64, max(1, triton.next_power_of_2(264 // (rows * kv_heads))))
    device = q_BNH.device
    parts = torch.empty(rows, heads, splits, size, dtype=torch.float32, device=device)
    most = torch.empty(rows, heads, splits, dtype=torch.float32, device=device)
    weights = torch.empty_like(most)
    out = torch.empty(rows, heads * size, dtype=q_BNH.dtype, device=device)
    sizes: dict[str, Any] = {"SIZE": size, "SIZE_TILE": max(16, triton.next_power_of_2(size))}
    _attend_kernel[(rows, kv_heads, splits)](
        q_BNH,
        keys,
        values,
        tables_BM,
        positions_B,
        parts,
        most,
        weights,
        scale,
        tables_BM.shape[1],
        GROUP=heads // kv_heads,
        GROUP_TILE=max(16, triton.next_power_of_2(heads // kv_heads)),
        BLOCK=block,
        TILE=_TILE,
        SPLITS=splits,
        PRECISION="ieee" if q_BNH.dtype == torch.float32 else "tf32",
        num_warps=4,
        **sizes,
    )
    _join_kernel[(rows * heads,)](parts, most, weights, out, SPLITS=splits, num_warps=2, **sizes)
    return out


@triton.jit
def _norm_kernel(x_ptr, weight_ptr, out_ptr, size, eps, TILE: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, TILE)
    x = tl.load(x_ptr + row * size + i, mask=i < size, other=0.0).to(tl.float32)
    root = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / size + eps)
    weight = tl.load(weight_ptr + i, mask=i < size, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * size + i, (x * root * weight).to(out_ptr.dtype.element_ty), mask=i < size)


def rms_norm(x_BD: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x_BD)
    size = x_BD.shape[1]
    _norm_kernel[(x_BD.shape[0],)](
        x_BD, weight, out, size, eps, TILE=triton.next_power_of_2(size), num_warps=8
    )
    return out


@triton.jit
def _gate_kernel(x_ptr, out_ptr, size, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = i < size
    gate = tl.load(x_ptr + row * 2 * size + i, mask=here, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * size + size + i, mask=here, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * size + i, y.to(out_ptr.dtype.element_ty), mask=here)


def silu_gate(x_BF2: Tensor) -> Tensor:
    """silu(first half) · second half."""
    rows, size = x_BF2.shape[0], x_BF2.shape[1] // 2
    out = torch.empty(rows, size, dtype=x_BF2.dtype, device=x_BF2.device)
    _gate_kernel[(rows, triton.cdiv(size, 1024))](x_BF2, out, size, TILE=1024, num_warps=4)
    return out
