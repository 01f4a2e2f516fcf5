"""The same arithmetic as adamw.c in torch operations, for machines without a C compiler.

Each operation rounds once, in the order written there, so masters and moments are the same bits. A range is
worked on in pieces that stay in the cache; operations this small run in the thread that calls them.
"""

import numpy as np
import torch
from torch import Tensor

from gpubloom.engine.optimizer.host.ranges import Arrays
from gpubloom.engine.optimizer.host.step import Constants

_PIECE = 1 << 15


class TorchAdamW:
    @torch.no_grad()
    def __call__(self, arrays: Arrays, constants: Constants, start: int, end: int) -> None:
        length = min(_PIECE, end - start)
        gradient, scratch = torch.empty(length), torch.empty(length)
        for begin in range(start, end, _PIECE):
            here = slice(begin, min(begin + _PIECE, end))
            size = here.stop - here.start
            _update(arrays, constants, here, gradient[:size], scratch[:size])


def _update(arrays: Arrays, constants: Constants, here: slice, g: Tensor, scratch: Tensor) -> None:
    # torch's operations that take a factor fuse a product and a sum, so each step is an operation of its own.
    p, m, v = arrays.master[here], arrays.first[here], arrays.second[here]
    g.copy_(arrays.gradient[here]).mul_(constants.scale)
    m.mul_(constants.beta1).add_(torch.mul(g, constants.rest1, out=scratch))
    v.mul_(constants.beta2).add_(torch.mul(g, constants.rest2, out=scratch).mul_(g))
    # torch's square root may be off by one unit in the last place; numpy's is rounded correctly.
    with np.errstate(all="ignore"):
        np.sqrt(v.detach().numpy(), out=scratch.numpy())
    denominator = scratch.div_(constants.root2).add_(constants.eps)
    p.mul_(constants.decay).sub_(torch.mul(m, constants.rate, out=g).div_(denominator))
    if arrays.copy is not None:
        arrays.copy[here].copy_(p)
