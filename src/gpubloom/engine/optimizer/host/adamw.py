"""AdamW on flat host arrays, shared by threads: the C kernel in adamw.c, or the same arithmetic in torch.

Threads take ranges of the arrays until none is left. In C that is one call for each thread, which releases
the interpreter lock meanwhile. Machines without a C compiler use torch operations: each rounds once, in the
order of adamw.c, so masters and moments are the same bits.

The result depends on neither the number of threads nor the ranges: no element depends on another. This module
does not know which parameters an array holds: weight decay for matrices only is the caller's business.
"""

import ctypes
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gpubloom.engine.optimizer.encoding import Flat, random_bits, round_into, seed_of
from gpubloom.engine.optimizer.host.build import CannotBuild, load
from gpubloom.errors import InputError

Kind = tuple[torch.dtype, torch.dtype | None]
# Gradient and compute copy. Without a copy, weights are computed with the master itself.
KINDS: tuple[Kind, ...] = (
    (torch.float32, None),
    (torch.bfloat16, None),
    (torch.float16, None),
    (torch.float32, torch.float32),
    (torch.float32, torch.bfloat16),
    (torch.float32, torch.float16),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16),
)
# What each thread of an update calls.
Work = Callable[[], None]
# Large enough that starting a range costs nothing, small enough that threads end together.
_LARGEST = 1 << 18
_SMALLEST = 1 << 15
_RANGES_PER_THREAD = 8
# A cache line of the narrowest type, and of all others too.
_ALIGNMENT = 64
_PIECE = 1 << 15
_SOURCE = Path(__file__).with_name("adamw.c")


@dataclass(frozen=True)
class AdamWStep:
    """`updates` is t, counted from 1: the number of this update, not of those before it."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    updates: int


class Constants(NamedTuple):
    """In double; kernels round each to FP32 once. The order is that of `struct constants` in adamw.c."""

    scale: float
    beta1: float
    rest1: float
    beta2: float
    rest2: float
    decay: float
    rate: float
    root2: float
    eps: float

    @classmethod
    def of(cls, step: AdamWStep, scale: float) -> "Constants":
        if step.updates < 1:
            raise InputError(
                "invalid_argument", f"AdamW counts updates from 1, but got update {step.updates}."
            )
        return cls(
            scale=scale,
            beta1=step.beta1,
            rest1=1 - step.beta1,
            beta2=step.beta2,
            rest2=1 - step.beta2,
            decay=1 - step.lr * step.weight_decay,
            rate=step.lr / (1 - step.beta1**step.updates),
            root2=math.sqrt(1 - step.beta2**step.updates),
            eps=step.eps,
        )


@dataclass(frozen=True)
class Arrays:
    """Flat, contiguous, equally long, on the CPU, none the same memory as another.

    But a copy may overwrite the gradient, if it is of the same type.
    """

    master: Tensor
    first: Tensor
    second: Tensor
    gradient: Tensor
    copy: Tensor | None

    def __post_init__(self) -> None:
        given = [tensor for tensor in self.tensors() if tensor is not None]
        for tensor in given:
            if tensor.device.type != "cpu" or tensor.ndim != 1 or not tensor.is_contiguous():
                raise InputError(
                    "invalid_argument", "The host AdamW accepts only flat, contiguous tensors in CPU memory."
                )
        if len({len(tensor) for tensor in given}) != 1:
            raise InputError(
                "invalid_argument",
                f"The host AdamW needs tensors of equal length, not {[len(tensor) for tensor in given]}.",
            )
        if {self.master.dtype, self.first.dtype, self.second.dtype} != {torch.float32}:
            raise InputError(
                "invalid_argument", "The host AdamW accepts only fp32 master weights and moments."
            )
        if self.kind not in KINDS:
            raise InputError(
                "invalid_argument",
                f"The host AdamW has no kernel for these data types (gradient_copy): {kind_name(self.kind)}.",
            )
        pointers = [self.master.data_ptr(), self.first.data_ptr(), self.second.data_ptr()]
        pointers.append(self.gradient.data_ptr())
        if self.copy is not None and not self._copy_overwrites_gradient(self.copy):
            pointers.append(self.copy.data_ptr())
        if len(self.master) > 0 and len(set(pointers)) != len(pointers):
            raise InputError(
                "invalid_argument",
                "The host AdamW got the same memory twice: weights, moments, gradient and copy must not "
                "share memory.",
            )

    def _copy_overwrites_gradient(self, copy: Tensor) -> bool:
        return copy.dtype == self.gradient.dtype and copy.data_ptr() == self.gradient.data_ptr()

    @property
    def kind(self) -> Kind:
        return self.gradient.dtype, None if self.copy is None else self.copy.dtype

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.master, self.first, self.second, self.gradient, self.copy

    def packed(self) -> "PackedArrays":
        master, first, second = (Flat("fp32", (each,)) for each in (self.master, self.first, self.second))
        return PackedArrays(master, first, second, self.gradient, self.copy, base=0, updates=0)


def kind_name(kind: Kind) -> str:
    return "_".join(str(dtype).removeprefix("torch.") for dtype in kind if dtype is not None)


def range_size(length: int, threads: int) -> int:
    """Several ranges for each thread, so that all end together; whole cache lines and blocks."""
    size = min(_LARGEST, max(_SMALLEST, -(-length // (threads * _RANGES_PER_THREAD))))
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _in_turns(work: Callable[[int, int], None], length: int, size: int) -> Work:
    starts = iter(range(0, length, size))

    def run() -> None:
        for start in starts:
            work(start, min(start + size, length))

    return run


class TorchAdamW:
    def __call__(self, arrays: Arrays, constants: Constants, size: int) -> Work:
        return _in_turns(partial(self._update, arrays, constants), len(arrays.master), size)

    @torch.no_grad()
    def _update(self, arrays: Arrays, constants: Constants, start: int, end: int) -> None:
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
        round_into(arrays.copy[here], p)


class _Constants(ctypes.Structure):
    _fields_ = [(name, ctypes.c_float) for name in Constants._fields]


@dataclass(frozen=True)
class PackedArrays:
    """Like `Arrays`, but in any encoding. `base` is the place of the first element in its block.

    A split master has no copy: its upper half is one.
    """

    master: Flat
    first: Flat
    second: Flat
    gradient: Tensor
    copy: Tensor | None
    base: int
    updates: int

    def __post_init__(self) -> None:
        held = (self.master, self.first, self.second)
        tensors = [*(tensor for flat in held for tensor in flat.tensors), self.gradient]
        if any(tensor.device.type != "cpu" or not tensor.is_contiguous() for tensor in tensors):
            raise InputError(
                "invalid_argument", "The host AdamW accepts only flat, contiguous tensors in CPU memory."
            )
        if {len(flat) for flat in held} != {len(self.gradient)}:
            raise InputError("invalid_argument", "The host AdamW needs tensors of equal length.")
        if self.first.encoding != self.second.encoding:
            raise InputError("invalid_argument", "The host AdamW needs both moments in the same encoding.")


_KIND_NUMBERS = {
    "fp32": 0,
    torch.float32: 0,
    "bf16": 1,
    torch.bfloat16: 1,
    torch.float16: 2,
    "split": 3,
    "8bit": 4,
    None: 5,
}


class _Packed(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                "master",
                "low",
                "first",
                "first_scales",
                "second",
                "second_scales",
                "copy",
                "gradient",
            )
        ),
        ("length", ctypes.c_int64),
        ("base", ctypes.c_int64),
        *((f"{name}_kind", ctypes.c_int32) for name in ("master", "moment", "gradient", "copy")),
        ("seed", ctypes.c_uint32),
        ("constants", _Constants),
    ]


class NativeAdamW:
    """The C kernel."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._function = library.adamw_shared
        self._function.argtypes = [
            ctypes.POINTER(_Packed),
            ctypes.POINTER(ctypes.c_int64),
            ctypes.c_int64,
        ]
        self._function.restype = None

    def __call__(self, arrays: Arrays | PackedArrays, constants: Constants, size: int) -> Work:
        packed = arrays if isinstance(arrays, PackedArrays) else arrays.packed()
        held = [flat.tensors for flat in (packed.master, packed.first, packed.second)]
        described = _Packed(
            *(
                tensors[part].data_ptr() if part < len(tensors) else None
                for tensors in held
                for part in (0, 1)
            ),
            None if packed.copy is None else packed.copy.data_ptr(),
            packed.gradient.data_ptr(),
            len(packed.gradient),
            packed.base,
            _KIND_NUMBERS[packed.master.encoding],
            _KIND_NUMBERS[packed.first.encoding],
            _KIND_NUMBERS[packed.gradient.dtype],
            _KIND_NUMBERS[None if packed.copy is None else packed.copy.dtype],
            seed_of(packed.updates),
            _Constants(*constants),
        )
        return partial(self._function, described, ctypes.c_int64(0), size)


class TorchPackedAdamW:
    """Decodes a piece, updates it as `TorchAdamW` does, and encodes it again."""

    def __call__(self, arrays: PackedArrays, constants: Constants, size: int) -> Work:
        return _in_turns(partial(self._update, arrays, constants), len(arrays.gradient), size)

    @torch.no_grad()
    def _update(self, arrays: PackedArrays, constants: Constants, start: int, end: int) -> None:
        for begin in range(start, end, _PIECE):
            here = slice(begin, min(begin + _PIECE, end))
            size = here.stop - here.start
            held = [flat.part(here) for flat in (arrays.master, arrays.first, arrays.second)]
            values = master, first, second = held[0].read(), held[1].read(), held[2].read()
            copy = None if arrays.copy is None else arrays.copy[here]
            whole = Arrays(master, first, second, arrays.gradient[here], copy)
            _update(whole, constants, slice(0, size), torch.empty(size), torch.empty(size))
            noise = random_bits(size, arrays.base + begin + seed_of(arrays.updates), values[0].device)
            for flat, each in zip(held, values, strict=True):
                flat.write(each, noise)


class _Kernel(Protocol):
    """Prepares an update, of which threads take ranges of `size`."""

    def __call__(self, arrays: Arrays, constants: Constants, size: int) -> Work: ...


class _PackedKernel(Protocol):
    def __call__(self, arrays: PackedArrays, constants: Constants, size: int) -> Work: ...


class HostAdamW:
    """`description` says what computes, and why if it is not the C kernel: announce it."""

    description: str

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise InputError("invalid_argument", f"The host AdamW needs at least one thread, not {threads}.")
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="host-adamw")
        self._kernel: _Kernel
        self._packed_kernel: _PackedKernel
        counted = f"{threads} thread{'s' if threads > 1 else ''}"
        try:
            library = load(_SOURCE)
            self._kernel = self._packed_kernel = NativeAdamW(library)
            self.description = f"C, {counted}"
        except CannotBuild as reason:
            self._kernel = TorchAdamW()
            self._packed_kernel = TorchPackedAdamW()
            self.description = f"torch ({reason}), {counted}"

    def update(
        self,
        master: Tensor,
        first: Tensor,
        second: Tensor,
        gradient: Tensor,
        copy: Tensor | None,
        step: AdamWStep,
        scale: float,
    ) -> None:
        """One update in place, from any thread; returns when it is done. `scale` multiplies the gradient."""
        arrays = Arrays(master, first, second, gradient, copy)
        self._run(self._kernel(arrays, Constants.of(step, scale), self._size(gradient)), len(gradient))

    def update_packed(
        self,
        master: Flat,
        first: Flat,
        second: Flat,
        gradient: Tensor,
        copy: Tensor | None,
        step: AdamWStep,
        scale: float,
        base: int,
    ) -> None:
        """The same for arrays in other encodings than FP32."""
        arrays = PackedArrays(master, first, second, gradient, copy, base, step.updates)
        self._run(self._packed_kernel(arrays, Constants.of(step, scale), self._size(gradient)), len(gradient))

    def _size(self, gradient: Tensor) -> int:
        return range_size(len(gradient), self._threads)

    def _run(self, work: Work, length: int) -> None:
        """Let every thread take ranges of `work` until none is left."""
        ranges = -(-length // range_size(length, self._threads))
        if ranges <= 1:
            work()
            return
        for part in [self._pool.submit(work) for _ in range(min(self._threads, ranges))]:
            part.result()
