"""Triton kernels of `adapted_swiglu.py`.

A program has some features and goes through positions tile by tile: it multiplies the narrow factors of a
tile and adds the result to what it reads. On the way back it also sums what the adapters' matrices learn, so
that nothing as wide as the feed-forward is read again for that. Shape letters as there.
"""

# The parameters of kernels are what Triton makes of them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import functools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime import driver

# Positions and features of a tile, warps, stages of the pipeline that loads tiles, and parts that all
# positions are split into: what was fastest on an H200 for a 7B model and rank 16.
_FORWARD = (32, 128, 4, 3, 32)
_BACKWARD = (32, 128, 8, 3, 8)
# A stage of the backward kernel keeps its tiles in shared memory. Three fit where a program may have more
# bytes of it than this, as in data centres; elsewhere as many as a rank, rounded up, leaves room for.
_MUCH_SHARED_MEMORY = 160_000
_STAGES_IN_LITTLE = {16: 3, 32: 2, 64: 1}


@triton.jit
def _matrix(ptr, f, in_f, features, RANK: tl.constexpr, TILE: tl.constexpr, IS_RF: tl.constexpr):
    """A tile of an adapter's wide matrix as (R, F)."""
    r = tl.arange(0, TILE)
    at = r[:, None] * features + f[None, :] if IS_RF else f[None, :] * RANK + r[:, None]
    return tl.load(ptr + at, mask=(r < RANK)[:, None] & in_f[None, :], other=0.0)


@triton.jit
def _factor(ptr, m, in_m, RANK: tl.constexpr, TILE: tl.constexpr):
    """A tile of a narrow factor, (M, R)."""
    r = tl.arange(0, TILE)
    mask = in_m[:, None] & (r < RANK)[None, :]
    return tl.load(ptr + m[:, None] * RANK + r[None, :], mask=mask, other=0.0)


@triton.jit
def _store_sum(ptr, total_FR, f, in_f, RANK: tl.constexpr, TILE: tl.constexpr):
    r = tl.arange(0, TILE)
    mask = in_f[:, None] & (r < RANK)[None, :]
    tl.store(ptr + f[:, None] * RANK + r[None, :], total_FR, mask=mask)


@triton.jit
def _forward_kernel(
    gate_ptr, up_ptr, low_gate_ptr, low_up_ptr, b_gate_ptr, b_up_ptr, h_ptr, positions, features, part,
    GATE_RANK: tl.constexpr, UP_RANK: tl.constexpr, GATE_TILE: tl.constexpr, UP_TILE: tl.constexpr,
    TILE_M: tl.constexpr, TILE_F: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    f = tl.program_id(0) * TILE_F + tl.arange(0, TILE_F)
    in_f = f < features
    b_gate = _matrix(b_gate_ptr, f, in_f, features, GATE_RANK, GATE_TILE, False)
    b_up = _matrix(b_up_ptr, f, in_f, features, UP_RANK, UP_TILE, False)
    begin = tl.program_id(1) * part
    end = tl.minimum(begin + part, positions)
    for start in tl.range(begin, end, TILE_M, num_stages=STAGES):
        m = (start + tl.arange(0, TILE_M)).to(tl.int64)
        in_m = m < end
        at = m[:, None] * features + f[None, :]
        here = in_m[:, None] & in_f[None, :]
        gate = tl.load(gate_ptr + at, mask=here, other=0.0).to(tl.float32)
        gate += tl.dot(_factor(low_gate_ptr, m, in_m, GATE_RANK, GATE_TILE), b_gate)
        up = tl.load(up_ptr + at, mask=here, other=0.0).to(tl.float32)
        up += tl.dot(_factor(low_up_ptr, m, in_m, UP_RANK, UP_TILE), b_up)
        h = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(h_ptr + at, h.to(h_ptr.dtype.element_ty), mask=here)


@triton.jit
def _backward_kernel(
    grad_ptr, low_down_ptr, a_down_ptr, gate_ptr, up_ptr, low_gate_ptr, low_up_ptr, b_gate_ptr, b_up_ptr,
    d_gate_ptr, d_up_ptr, gate_sum_ptr, up_sum_ptr, down_sum_ptr, positions, features, part,
    GATE_RANK: tl.constexpr, UP_RANK: tl.constexpr, DOWN_RANK: tl.constexpr,
    GATE_TILE: tl.constexpr, UP_TILE: tl.constexpr, DOWN_TILE: tl.constexpr,
    TILE_M: tl.constexpr, TILE_F: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    f = tl.program_id(0) * TILE_F + tl.arange(0, TILE_F)
    in_f = f < features
    b_gate = _matrix(b_gate_ptr, f, in_f, features, GATE_RANK, GATE_TILE, False)
    b_up = _matrix(b_up_ptr, f, in_f, features, UP_RANK, UP_TILE, False)
    a_down = _matrix(a_down_ptr, f, in_f, features, DOWN_RANK, DOWN_TILE, True)
    gate_sum = tl.zeros((TILE_F, GATE_TILE), dtype=tl.float32)
    up_sum = tl.zeros((TILE_F, UP_TILE), dtype=tl.float32)
    down_sum = tl.zeros((TILE_F, DOWN_TILE), dtype=tl.float32)
    dtype = d_gate_ptr.dtype.element_ty
    begin = tl.program_id(1) * part
    end = tl.minimum(begin + part, positions)
    for start in tl.range(begin, end, TILE_M, num_stages=STAGES):
        m = (start + tl.arange(0, TILE_M)).to(tl.int64)
        in_m = m < end
        at = m[:, None] * features + f[None, :]
        here = in_m[:, None] & in_f[None, :]
        low_gate = _factor(low_gate_ptr, m, in_m, GATE_RANK, GATE_TILE)
        low_up = _factor(low_up_ptr, m, in_m, UP_RANK, UP_TILE)
        low_down = _factor(low_down_ptr, m, in_m, DOWN_RANK, DOWN_TILE)
        gate = tl.load(gate_ptr + at, mask=here, other=0.0).to(tl.float32) + tl.dot(low_gate, b_gate)
        up = tl.load(up_ptr + at, mask=here, other=0.0).to(tl.float32) + tl.dot(low_up, b_up)
        grad = tl.load(grad_ptr + at, mask=here, other=0.0).to(tl.float32) + tl.dot(low_down, a_down)
        sigmoid = 1.0 / (1.0 + tl.exp(-gate))
        silu = gate * sigmoid
        d_gate = (grad * up * (sigmoid + silu * (1.0 - sigmoid))).to(dtype)
        d_up = (grad * silu).to(dtype)
        tl.store(d_gate_ptr + at, d_gate, mask=here)
        tl.store(d_up_ptr + at, d_up, mask=here)
        gate_sum = tl.dot(tl.trans(d_gate), low_gate, gate_sum)
        up_sum = tl.dot(tl.trans(d_up), low_up, up_sum)
        down_sum = tl.dot(tl.trans((silu * up).to(dtype)), low_down, down_sum)
    first = tl.program_id(1).to(tl.int64) * features
    _store_sum(gate_sum_ptr + first * GATE_RANK, gate_sum, f, in_f, GATE_RANK, GATE_TILE)
    _store_sum(up_sum_ptr + first * UP_RANK, up_sum, f, in_f, UP_RANK, UP_TILE)
    _store_sum(down_sum_ptr + first * DOWN_RANK, down_sum, f, in_f, DOWN_RANK, DOWN_TILE)


def forward(
    gate_MF: Tensor, up_MF: Tensor, low_gate_MR: Tensor, low_up_MR: Tensor, b_gate_FR: Tensor, b_up_FR: Tensor
) -> Tensor:
    """silu(gate + low_gate · B_gateᵀ) * (up + low_up · B_upᵀ)."""
    positions, features = gate_MF.shape
    h_MF = torch.empty(positions, features, dtype=gate_MF.dtype, device=gate_MF.device)
    tile_m, tile_f, warps, stages, parts = _FORWARD
    part = _part(positions, parts, tile_m)
    _forward_kernel[(triton.cdiv(features, tile_f), triton.cdiv(positions, part))](
        *_contiguous(gate_MF, up_MF, low_gate_MR, low_up_MR, b_gate_FR, b_up_FR),
        h_MF,
        positions,
        features,
        part,
        GATE_RANK=low_gate_MR.shape[1],
        UP_RANK=low_up_MR.shape[1],
        GATE_TILE=_tile(low_gate_MR),
        UP_TILE=_tile(low_up_MR),
        TILE_M=tile_m,
        TILE_F=tile_f,
        STAGES=stages,
        num_warps=warps,
    )
    return h_MF


def backward(
    grad_MF: Tensor,
    low_down_MR: Tensor,
    a_down_RF: Tensor,
    gate_MF: Tensor,
    up_MF: Tensor,
    low_gate_MR: Tensor,
    low_up_MR: Tensor,
    b_gate_FR: Tensor,
    b_up_FR: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of gate, up, B_gate, B_up and A_down for that of h, which is grad + low_down · A_down."""
    positions, features = gate_MF.shape
    d_gate_MF = torch.empty(positions, features, dtype=gate_MF.dtype, device=gate_MF.device)
    d_up_MF = torch.empty_like(d_gate_MF)
    tile_m, tile_f, warps, stages, parts = _BACKWARD
    tiles = [_tile(low_MR) for low_MR in (low_gate_MR, low_up_MR, low_down_MR)]
    if _shared_memory(gate_MF.device) < _MUCH_SHARED_MEMORY:
        stages = _STAGES_IN_LITTLE[max(tiles)]
    part = _part(positions, parts, tile_m)
    parts = triton.cdiv(positions, part)
    # Added up below, in an order that does not depend on which program ends first.
    sums = [
        torch.empty(parts, features, low_MR.shape[1], dtype=torch.float32, device=gate_MF.device)
        for low_MR in (low_gate_MR, low_up_MR, low_down_MR)
    ]
    _backward_kernel[(triton.cdiv(features, tile_f), parts)](
        *_contiguous(
            grad_MF, low_down_MR, a_down_RF, gate_MF, up_MF, low_gate_MR, low_up_MR, b_gate_FR, b_up_FR
        ),
        d_gate_MF,
        d_up_MF,
        *sums,
        positions,
        features,
        part,
        GATE_RANK=low_gate_MR.shape[1],
        UP_RANK=low_up_MR.shape[1],
        DOWN_RANK=low_down_MR.shape[1],
        GATE_TILE=tiles[0],
        UP_TILE=tiles[1],
        DOWN_TILE=tiles[2],
        TILE_M=tile_m,
        TILE_F=tile_f,
        STAGES=stages,
        num_warps=warps,
    )
    b_gate, b_up, a_down_FR = (each.sum(0).to(gate_MF.dtype) for each in sums)
    return d_gate_MF, d_up_MF, b_gate, b_up, a_down_FR.t().contiguous()


def _part(positions: int, parts: int, tile: int) -> int:
    """Positions of one program: whole tiles."""
    return int(triton.cdiv(triton.cdiv(positions, parts), tile)) * tile


@functools.cache
def _shared_memory(device: torch.device) -> int:
    """Bytes that one program may have; on a CPU, by Triton's interpreter, as many as it wants."""
    if device.type != "cuda":
        return _MUCH_SHARED_MEMORY
    return int(driver.active.utils.get_device_properties(device.index)["max_shared_mem"])


def _contiguous(*tensors: Tensor) -> Sequence[Tensor]:
    return [tensor.contiguous() for tensor in tensors]


def _tile(low_MR: Tensor) -> int:
    # The smallest that tensor cores take is 16.
    return max(16, int(triton.next_power_of_2(low_MR.shape[1])))
