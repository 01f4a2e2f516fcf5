"""AdamW on flat arrays of the device, with the arithmetic of the host kernel (host/adamw.c).

On a CPU it is that kernel, so that every placement gives the same bits. On a GPU it is one pass over memory
when compiled, and a few otherwise; the clipping factor stays on the device, so that nothing waits for it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW

# Uncompiled, whole-array temporaries would need several times the memory of the state itself. Compiled, torch
# tries variants of the kernel on its first call and saves what they overwrite in pinned host memory, which it
# rounds up to powers of two and never gives back.
_PIECE = 1 << 24
_COMPILED_PIECE = 1 << 26
# Norms and biases are not.
_WORTH_COMPILING = 1 << 20


class DeviceAdamW:
    """`host` does the work when the device is a CPU."""

    def __init__(self, device: torch.device, host: HostAdamW, *, compiled: bool) -> None:
        self._host = host if device.type == "cpu" else None
        self._compiled: Callable[..., None] | None = None
        if compiled and self._host is None:
            # Of any length: one program for all blocks and pieces.
            self._compiled = torch.compile(_update, dynamic=True, fullgraph=True)

    @torch.no_grad()
    def update(
        self,
        master: Tensor,
        first: Tensor,
        second: Tensor,
        gradient: Tensor,
        copy: Tensor | None,
        step: AdamWStep,
        scale: Tensor,
    ) -> None:
        """One update in place, ordered on the current stream."""
        if self._host is not None:
            self._host.update(master, first, second, gradient, copy, step, float(scale))
            return
        correction1 = 1 - step.beta1**step.updates
        correction2 = 1 - step.beta2**step.updates
        # As tensors, so that a new value is no new program.
        numbers = torch.tensor(
            [1 - step.lr * step.weight_decay, step.lr / correction1, correction2**-0.5],
            dtype=torch.float32,
        ).to(master.device, non_blocking=True)
        constants = (step.beta1, step.beta2, step.eps)
        fast = self._compiled is not None and len(master) >= _WORTH_COMPILING
        update, size = (self._compiled, _COMPILED_PIECE) if fast else (_update, _PIECE)
        assert update is not None
        for start in range(0, len(master), size):
            piece = slice(start, start + size)
            update(
                master[piece],
                first[piece],
                second[piece],
                gradient[piece],
                None if copy is None else copy[piece],
                numbers,
                scale,
                constants,
            )


def _update(
    master: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    copy: Tensor | None,
    numbers: Tensor,
    scale: Tensor,
    constants: tuple[float, float, float],
) -> None:
    beta1, beta2, eps = constants
    keep, rate, root = numbers.unbind()
    g = gradient.float() * scale
    m = first * beta1 + g * (1 - beta1)
    v = second * beta2 + g * g * (1 - beta2)
    p = master * keep - rate * m / (v.sqrt() * root + eps)
    first.copy_(m)
    second.copy_(v)
    master.copy_(p)
    if copy is not None:
        copy.copy_(p)
