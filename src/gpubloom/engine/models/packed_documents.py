"""Documents that are packed into one row: where each starts, and attention that stays within it.

A document is a run of equal ids; which numbers they are does not matter. On a GPU attention is given the
boundaries of all documents (variable-length attention) and neither computes nor stores what lies between two
documents. Elsewhere, and where a kernel for that is missing, it is given a mask of length × length.

Shape letters: B rows, T positions, N heads, K key-value heads, H head size.
"""

import functools
import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.plan.workload import most_documents_by_boundaries

# What the kernels of variable-length attention take.
_PRECISIONS = (torch.bfloat16, torch.float16)
_LARGEST_HEAD, _HEAD_MULTIPLE = 256, 8
# Of the comparison with a mask on a new device, in bf16.
_TOLERANCE = 0.05


def document_starts(documents_BT: Tensor) -> Tensor:
    """Where each position's document starts in its row."""
    positions_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    first_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    first_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    return torch.where(first_BT, positions_T, 0).cummax(dim=1).values


def document_mask(documents_BT: Tensor) -> Tensor:
    """True where a position may look: back, within its document; (B, 1, T, T)."""
    starts_BT = document_starts(documents_BT)
    positions_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    same_B1TT = starts_BT[:, None, :, None] == starts_BT[:, None, None, :]
    return same_B1TT & (positions_T[:, None] >= positions_T[None, :])


def document_boundaries(documents_BT: Tensor, most_per_row: int) -> Tensor:
    """Where the documents begin if all rows stand end to end, and where the last ends: cu_seqlens, int32.

    Its length depends on `most_per_row` only, so that all batches of a run are computed by one program:
    what is left over are documents without positions at the end. Nothing is read from the device.
    """
    rows, length = documents_BT.shape
    positions_T = torch.arange(length, device=documents_BT.device)
    is_first = (document_starts(documents_BT) == positions_T).flatten()
    numbers = is_first.cumsum(0) - 1
    positions = torch.arange(rows * length, dtype=torch.int32, device=documents_BT.device)
    found = positions.new_full((rows * most_per_row + 1,), rows * length)
    return found.scatter_reduce_(0, numbers, positions, "amin")


def are_boundaries(mask: Tensor) -> bool:
    """Whether a mask is what `document_boundaries` gives."""
    return mask.ndim == 1


def attend_within_documents(
    q_BNTH: Tensor, k_BKTH: Tensor, v_BKTH: Tensor, mask: Tensor, scale: float | None = None
) -> Tensor:
    """Attention of packed rows, (B, N, T, H); `mask` is a mask or boundaries."""
    if are_boundaries(mask) and _has_kernel(q_BNTH, v_BKTH):
        return _attend_by_boundaries(q_BNTH, k_BKTH, v_BKTH, mask, scale)
    if are_boundaries(mask):
        mask = mask_of(mask, q_BNTH.shape[0], q_BNTH.shape[2])
    # Fused kernels that take a mask do not share key-value heads between heads.
    k_BNTH, v_BNTH = (repeat_heads(each, q_BNTH.shape[1]) for each in (k_BKTH, v_BKTH))
    return F.scaled_dot_product_attention(q_BNTH, k_BNTH, v_BNTH, attn_mask=mask, scale=scale)


def mask_of(boundaries: Tensor, rows: int, length: int) -> Tensor:
    """The mask that boundaries stand for."""
    positions = torch.arange(rows * length, dtype=boundaries.dtype, device=boundaries.device)
    return document_mask(torch.searchsorted(boundaries, positions, right=True).view(rows, length))


def repeat_heads(x_BKTH: Tensor, heads: int) -> Tensor:
    """Every key-value head as often as heads share it."""
    groups = heads // x_BKTH.shape[1]
    return x_BKTH if groups == 1 else x_BKTH.repeat_interleave(groups, dim=1)


def _has_kernel(q_BNTH: Tensor, v_BKTH: Tensor) -> bool:
    head = q_BNTH.shape[-1]
    return (
        q_BNTH.dtype in _PRECISIONS
        and head == v_BKTH.shape[-1]
        and head <= _LARGEST_HEAD
        and head % _HEAD_MULTIPLE == 0
    )


def _attend_by_boundaries(
    q_BNTH: Tensor, k_BKTH: Tensor, v_BKTH: Tensor, boundaries: Tensor, scale: float | None
) -> Tensor:
    # Loaded here: a run that packs nothing need not have it.
    from torch.nn.attention.varlen import varlen_attn

    rows, heads, length, size = q_BNTH.shape
    more: dict[str, Any] = {"scale": scale, "window_size": (-1, 0)}
    # Its kernels share key-value heads between heads; newer versions of torch want to be told.
    if heads != k_BKTH.shape[1] and _must_be_told_of_shared_heads():
        more["enable_gqa"] = True
    # Rows end to end: (positions of all rows, heads, head size).
    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (q_BNTH, k_BKTH, v_BKTH))
    y = varlen_attn(q, k, v, boundaries, boundaries, length, length, **more)
    assert isinstance(y, Tensor)
    return y.view(rows, length, heads, size).transpose(1, 2)


@functools.cache
def _must_be_told_of_shared_heads() -> bool:
    from torch.nn.attention.varlen import varlen_attn

    return "enable_gqa" in inspect.signature(varlen_attn).parameters


def uses_boundaries(device: torch.device, length: int, most_per_row: int | None) -> bool:
    """Whether tables of packed rows on this device are boundaries instead of masks."""
    return (
        most_per_row is not None
        and most_per_row <= most_documents_by_boundaries(length)
        # Its backward pass does not promise the same bits every time.
        and not torch.are_deterministic_algorithms_enabled()
        and why_not_boundaries(device) is None
    )


@functools.cache
def why_not_boundaries(device: torch.device) -> str | None:
    """Why packed rows need masks on this device; None: they do not. Tried once, on a few positions."""
    if device.type != "cuda":
        return "only GPUs have a kernel for variable-length attention"
    try:
        apart = _distance_from_mask(device)
    except Exception as problem:  # noqa: BLE001 - whatever is wrong with the kernel, masks work
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        return f"variable-length attention does not run on this GPU: {lines[0]}"
    if not apart < _TOLERANCE:
        return f"variable-length attention differs from attention with a mask by {apart:.2g}"
    return None


def _distance_from_mask(device: torch.device) -> float:
    """How far outputs and gradients by boundaries are from those with a mask, at most, relative."""
    documents_BT = torch.tensor([[1] * 5 + [2] * 11, [1] * 16], device=device)
    generator = torch.Generator(device).manual_seed(0)
    half = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    q_BNTH, k_BKTH, v_BKTH, grad_BNTH = (
        torch.randn(2, heads, 16, 64, generator=generator, device=device).to(half) for heads in (4, 2, 2, 4)
    )
    found = []
    for mask in (document_mask(documents_BT), document_boundaries(documents_BT, 3)):
        with torch.enable_grad():
            q, k, v = (each.detach().requires_grad_() for each in (q_BNTH, k_BKTH, v_BKTH))
            y_BNTH = attend_within_documents(q, k, v, mask)
        found.append([y_BNTH.detach(), *torch.autograd.grad((y_BNTH * grad_BNTH).sum(), (q, k, v))])
    apart = [
        (by_boundaries.float() - masked.float()).norm() / masked.float().norm()
        for masked, by_boundaries in zip(*found, strict=True)
    ]
    return float(torch.stack(apart).max())
