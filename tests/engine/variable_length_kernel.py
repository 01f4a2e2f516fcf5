"""A kernel for torch's variable-length attention on a CPU, where torch has none: plain, document by document.

With it everything around the kernel of a GPU runs here: boundaries, shared heads, torch's own gradient and
tracing. Importing this registers it.
"""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.attention import varlen


def _probabilities(q_TNH: Tensor, k_TNH: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Causal attention weights of one document, and the log-sum-exp of its scores."""
    scores_NTS = torch.einsum("tnh,snh->nts", q_TNH, k_TNH) * scale
    future_TS = torch.ones(scores_NTS.shape[1:], dtype=torch.bool).triu(1)
    scores_NTS = scores_NTS.masked_fill(future_TS, float("-inf"))
    return scores_NTS.softmax(-1), scores_NTS.logsumexp(-1)


def _with_heads_of_their_own(q: Tensor, *shared: Tensor) -> list[Tensor]:
    """In fp32, with as many key-value heads as heads."""
    return [q.float(), *(each.float().repeat_interleave(q.shape[1] // each.shape[1], 1) for each in shared)]


def _documents(boundaries: Tensor) -> list[slice]:
    """Those with positions."""
    return [slice(begin, end) for begin, end in pairwise(boundaries.tolist()) if begin < end]


@varlen._varlen_attn.register_kernel("cpu")  # type: ignore[untyped-decorator, unused-ignore]
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: list[int] | None = None,
    *others: object,
) -> tuple[Tensor, Tensor, Tensor]:
    assert is_causal
    assert window_size == [-1, 0]
    assert torch.equal(cu_seq_q, cu_seq_k)
    assert cu_seq_q.dtype == torch.int32
    spans = _documents(cu_seq_q)
    assert sum(span.stop - span.start for span in spans) == len(query), "every position is of a document"
    assert max(span.stop - span.start for span in spans) <= max_q == max_k
    q, k, v = _with_heads_of_their_own(query, key, value)
    out, lse = torch.empty_like(q), torch.empty(q.shape[1], len(q))
    for span in spans:
        p_NTS, lse[:, span] = _probabilities(q[span], k[span], _scale(scale, q))
        out[span] = torch.einsum("nts,snh->tnh", p_NTS, v[span])
    return out.to(query.dtype), lse, torch.zeros(2, dtype=torch.uint64)


@varlen._varlen_attn_backward.register_kernel("cpu")  # type: ignore[untyped-decorator, unused-ignore]
def _backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool,
    rng_state: Tensor,
    scale: float | None = None,
    window_size: list[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = _with_heads_of_their_own(query, key, value)
    grad, factor = grad_out.float(), _scale(scale, q)
    grad_q, grad_k, grad_v = (torch.empty_like(each) for each in (q, k, v))
    for span in _documents(cu_seq_q):
        p_NTS, _ = _probabilities(q[span], k[span], factor)
        grad_v[span] = torch.einsum("nts,tnh->snh", p_NTS, grad[span])
        grad_p_NTS = torch.einsum("tnh,snh->nts", grad[span], v[span])
        grad_s_NTS = p_NTS * (grad_p_NTS - (p_NTS * grad_p_NTS).sum(-1, keepdim=True)) * factor
        grad_q[span] = torch.einsum("nts,snh->tnh", grad_s_NTS, k[span])
        grad_k[span] = torch.einsum("nts,tnh->snh", grad_s_NTS, q[span])
    heads = key.shape[1]
    grad_k, grad_v = (each.unflatten(1, (heads, -1)).sum(2) for each in (grad_k, grad_v))
    return grad_q.to(query.dtype), grad_k.to(query.dtype), grad_v.to(query.dtype)


def _scale(scale: float | None, q: Tensor) -> float:
    return float(q.shape[-1] ** -0.5 if scale is None else scale)
