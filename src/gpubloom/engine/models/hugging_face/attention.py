"""The attention that transformers' layers call here, and how transformers says what a layer may see.

`attend` is causal unless it is given a mask, which may be the boundaries of packed documents; a sliding
window arrives as a mask too, because only the caller knows whether the row is longer than the window.
Soft-capped scores are computed plainly: no fused kernel takes them.

Shape letters: B rows, N heads, K key-value heads, T positions, H head size.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.models.packed_documents import (
    are_boundaries,
    attend_within_documents,
    mask_of,
    repeat_heads,
)
from gpubloom.errors import InputError

IMPLEMENTATION = "gpubloom"

# Arguments of transformers' attention functions that change nothing here: the mask already holds the window,
# nothing is cached and dropout is off.
_WITHOUT_EFFECT = frozenset(
    {"sliding_window", "position_ids", "use_cache", "dropout", "output_attentions", "output_router_logits"}
)
# Above this size the fused kernels that share key-value heads between heads do not exist.
_LARGEST_SHARED_HEAD = 256


def attend(
    module: nn.Module,
    q_BNTH: Tensor,
    k_BKTH: Tensor,
    v_BKTH: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that is registered with transformers: (B, T, N, H) and no attention weights."""
    for name, value in others.items():
        if value is not None and value is not False and name not in _WITHOUT_EFFECT:
            raise InputError(
                "unsupported_architecture",
                f"The attention of this model uses {name}, which this engine does not support.",
            )
    heads = q_BNTH.shape[1]
    if softcap is not None:
        k_BNTH, v_BNTH = (repeat_heads(each, heads) for each in (k_BKTH, v_BKTH))
        y_BNTH = _soft_capped(q_BNTH, k_BNTH, v_BNTH, attention_mask, scaling, softcap)
    elif attention_mask is not None:
        y_BNTH = attend_within_documents(q_BNTH, k_BKTH, v_BKTH, attention_mask, scaling)
    else:
        shared = heads != k_BKTH.shape[1]
        if shared and k_BKTH.shape[-1] > _LARGEST_SHARED_HEAD:
            shared = False
            k_BKTH, v_BKTH = (repeat_heads(each, heads) for each in (k_BKTH, v_BKTH))
        y_BNTH = F.scaled_dot_product_attention(
            q_BNTH, k_BKTH, v_BKTH, is_causal=True, scale=scaling, enable_gqa=shared
        )
    return y_BNTH.transpose(1, 2).contiguous(), None


def _soft_capped(
    q_BNTH: Tensor, k_BNTH: Tensor, v_BNTH: Tensor, mask: Tensor | None, scaling: float | None, softcap: float
) -> Tensor:
    length = q_BNTH.shape[2]
    if mask is not None and are_boundaries(mask):
        mask = mask_of(mask, q_BNTH.shape[0], length)
    if mask is None:
        mask = torch.ones(length, length, dtype=torch.bool, device=q_BNTH.device).tril()
    scores_BNTT = (
        q_BNTH @ k_BNTH.transpose(-1, -2) * (q_BNTH.shape[-1] ** -0.5 if scaling is None else scaling)
    )
    scores_BNTT = torch.tanh(scores_BNTT / softcap) * softcap
    scores_BNTT = scores_BNTT.masked_fill(~mask, torch.finfo(scores_BNTT.dtype).min)
    return torch.softmax(scores_BNTT, dim=-1, dtype=torch.float32).to(q_BNTH.dtype) @ v_BNTH


def implementation_for(config: Any) -> str:
    """How this family's layers compute attention: by `attend` where transformers lets us choose."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    name = str(getattr(config, "model_type", "") or type(config).__name__)
    family = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if family is None:
        raise InputError(
            "unsupported_architecture", f"transformers has no causal language model for the family {name}."
        )
    if not getattr(family, "_supports_attention_backend", False):
        if not getattr(family, "_supports_sdpa", False):
            raise InputError(
                "unsupported_architecture",
                f"{name} has its own attention implementation or no attention, which this engine does not "
                "support.",
            )
        return "sdpa"
    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, attend)
    return IMPLEMENTATION


def passes_on_mask(layer: Callable[[Tensor], object]) -> bool:
    """Whether a layer gives its attention the very mask that it is given, so that this may be boundaries."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    boundaries = torch.zeros(7, dtype=torch.int32, device="meta")
    seen: list[object] = []

    def note(module: nn.Module, q_BNTH: Tensor, k: Tensor, v_BKTH: Tensor, mask: object, **_: Any) -> Any:
        seen.append(mask)
        rows, heads, length, _size = q_BNTH.shape
        return q_BNTH.new_empty(rows, length, heads, v_BKTH.shape[-1]), None

    # transformers takes an instance's own entry before the registered one.
    ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION] = note
    try:
        layer(boundaries)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return False
    finally:
        ALL_ATTENTION_FUNCTIONS.pop(IMPLEMENTATION)
    return bool(seen) and all(each is boundaries for each in seen)


@dataclass(frozen=True)
class Window:
    """What a layer may see: the last `size` positions, or everything before when there is no size."""

    size: int | None


@contextmanager
def recorded_windows(implementation: str) -> Iterator[Callable[[Any], Window | None]]:
    """While this is open, transformers' masks are tokens; the function yielded tells a token's window."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    tokens: list[tuple[Tensor, Callable[[], Window]]] = []

    def record(*, mask_function: Callable[..., Tensor], **arguments: Any) -> Tensor:
        token = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        tokens.append((token, partial(_window_of, mask_function, arguments.get("local_size"))))
        return token

    def meaning(mask: Any) -> Window | None:
        # Not before a layer is given it: some families make masks that none of their layers uses.
        return next((window() for token, window in tokens if token is mask), None)

    # transformers looks for the name among the registered ones first and then takes the instance's own entry.
    known = implementation in AttentionMaskInterface._global_mapping
    if not known:
        AttentionMaskInterface.register(implementation, record)
    ALL_MASK_ATTENTION_FUNCTIONS[implementation] = record
    try:
        yield meaning
    finally:
        ALL_MASK_ATTENTION_FUNCTIONS.pop(implementation)
        if not known:
            del AttentionMaskInterface._global_mapping[implementation]


def _window_of(visible: Callable[..., Tensor], size: int | None) -> Window:
    """The window that a mask function of transformers describes; ValueError when it is something else."""

    def sees(query: int, key: int) -> bool:
        return bool(visible(torch.tensor(0), torch.tensor(0), torch.tensor(query), torch.tensor(key)))

    far = 1 << 20
    causal = not sees(0, 1) and not sees(far, far + 1) and sees(far, far)
    expected = sees(far, 0) if size is None else not sees(far, far - size) and sees(far, far - size + 1)
    # A chunk looks like a window at its end, so a second place decides.
    expected = expected and (size is None or size == 1 or sees(far + 1, far + 2 - size))
    if not causal or not expected:
        raise InputError(
            "unsupported_architecture",
            "This engine supports only causal attention, with or without a sliding window; this model "
            "attends to other positions.",
        )
    return Window(size)
