"""AdamW on flat arrays of the device, with the arithmetic of the host kernel (host/adamw.c).

On a CPU it is that kernel, so that every placement gives the same bits. On a GPU it is one pass over memory
when compiled, and a few otherwise; the clipping factor stays on the device, so that nothing waits for it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from gpubloom.engine.compile_cache import compile_program
from gpubloom.engine.optimizer.encoding import Encoding, Flat, random_bits, seed_of
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW

# Uncompiled, whole-array temporaries would need several times the memory of the state itself. Compiled, torch
# tries variants of the kernel on its first call and saves what they overwrite in pinned host memory, which it
# rounds up to powers of two and never gives back.
_PIECE = 1 << 24
_COMPILED_PIECE = 1 << 26
# Uncompiled, encodings need temporaries of 8 bytes per element.
_PACKED_PIECE = 1 << 21
# Norms and biases are not.
_WORTH_COMPILING = 1 << 20
# A model of up to so many trained elements is updated by one program.
_TOGETHER_AT_MOST = 1 << 28


class UpdateProgram(NamedTuple):
    """What the program of one update of all blocks depends on: lengths, precisions, and who decays."""

    lengths: tuple[int, ...]
    # Of the gradient, and of the copy in the precision of computing if there is one.
    gradients: tuple[torch.dtype, ...]
    copies: tuple[torch.dtype | None, ...]
    rows: tuple[int, ...]
    constants: tuple[float, float, float]


class _OrderedUpdate(NamedTuple):
    """One call of `update`."""

    master: Tensor
    first: Tensor
    second: Tensor
    gradient: Tensor
    copy: Tensor | None
    step: AdamWStep
    scale: Tensor


class DeviceAdamW:
    """`host` does the work when the device is a CPU."""

    def __init__(self, device: torch.device, host: HostAdamW, *, compiled: bool) -> None:
        self._host = host if device.type == "cpu" else None
        self._compiled: Callable[..., None] | None = None
        self._all_compiled: Callable[..., None] | None = None
        self._packed_compiled: Callable[..., None] | None = None
        self._ordered: list[_OrderedUpdate] | None = None
        self._recorded_numbers: Tensor | None = None
        if compiled:
            self.use_compiled()

    def use_compiled(self) -> None:
        """From here on updates on a GPU are compiled."""
        if self._host is not None:
            return
        # Of any length: one program for all blocks and pieces.
        self._compiled = compile_program(_update, dynamic=True)
        self._all_compiled = compile_program(_update_all)
        self._packed_compiled = compile_program(_update_packed, dynamic=True)

    def prepare(self, step: AdamWStep, device: torch.device) -> None:
        """Puts the numbers of a step where recorded updates find them."""
        if self._recorded_numbers is None:
            self._recorded_numbers = torch.empty(2, 3, device=device)
        self._recorded_numbers.copy_(_numbers(step, device), non_blocking=True)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Updates in here are collected and run at its end, by one program if they are small enough."""
        if self._all_compiled is None:
            yield
            return
        self._ordered = []
        try:
            yield
            ordered = self._ordered
        finally:
            self._ordered = None
        if not _are_one_program(ordered):
            for each in ordered:
                self._update_now(each)
        elif ordered:
            self._update_together(ordered)

    def program_of(self, order: Callable[[], object]) -> UpdateProgram | None:
        """The one program for the updates that `order` asks for, if it would be one; nothing is updated."""
        found: list[_OrderedUpdate] = []
        self._ordered = found
        try:
            order()
        finally:
            self._ordered = None
        if self._host is not None or not found or not _are_one_program(found):
            return None
        step = found[0].step
        return UpdateProgram(
            tuple(len(each.master) for each in found),
            tuple(each.gradient.dtype for each in found),
            tuple(None if each.copy is None else each.copy.dtype for each in found),
            tuple(_row(each.step) for each in found),
            (step.beta1, step.beta2, step.eps),
        )

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
        ordered = _OrderedUpdate(master, first, second, gradient, copy, step, scale)
        if self._ordered is not None:
            self._ordered.append(ordered)
        else:
            self._update_now(ordered)

    @torch.no_grad()
    def _update_now(self, ordered: _OrderedUpdate) -> None:
        master, first, second, gradient, copy, step, scale = ordered
        if self._host is not None:
            self._host.update(master, first, second, gradient, copy, step, float(scale))
            return
        numbers = self._numbers(step, master.device)[_row(step)]
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

    @torch.no_grad()
    def update_packed(
        self,
        master: Flat,
        first: Flat,
        second: Flat,
        gradient: Tensor,
        copy: Tensor | None,
        step: AdamWStep,
        scale: Tensor,
        base: int,
    ) -> None:
        """The same for arrays in other encodings than FP32; `base` is the place of the first element."""
        if self._host is not None:
            self._host.update_packed(master, first, second, gradient, copy, step, float(scale), base)
            return
        fast = self._packed_compiled is not None and len(master) >= _WORTH_COMPILING
        update, size = (self._packed_compiled, _COMPILED_PIECE) if fast else (_update_packed, _PACKED_PIECE)
        assert update is not None
        numbers = _numbers(step, master.device)[_row(step)].to(master.device, non_blocking=True)
        for start in range(0, len(master), size):
            here = slice(start, min(start + size, len(master)))
            held = [flat.part(here) for flat in (master, first, second)]
            update(
                [flat.tensors for flat in held],
                tuple(flat.encoding for flat in held),
                gradient[here],
                None if copy is None else copy[here],
                numbers,
                scale,
                (step.beta1, step.beta2, step.eps),
                # Made there: a number that is copied from the host would be waited for.
                torch.full((), base + start + seed_of(step.updates), device=master.device),
            )

    @torch.no_grad()
    def _update_together(self, ordered: Sequence[_OrderedUpdate]) -> None:
        assert self._all_compiled is not None
        # They differ in nothing but weight decay.
        step = max((each.step for each in ordered), key=lambda step: step.weight_decay)
        self._all_compiled(
            [each[:5] for each in ordered],
            tuple(_row(each.step) for each in ordered),
            self._numbers(step, ordered[0].master.device),
            ordered[0].scale,
            (step.beta1, step.beta2, step.eps),
        )

    def _numbers(self, step: AdamWStep, device: torch.device) -> Tensor:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            assert self._recorded_numbers is not None, "prepare comes first"
            return self._recorded_numbers
        return _numbers(step, device).to(device, non_blocking=True)


def compile_update(program: UpdateProgram, device: torch.device) -> None:
    """Compiles the update of all blocks, by a call with tensors of any values."""

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    parts = [
        (
            *(empty(length) for _ in range(3)),
            empty(length, dtype=gradient),
            None if copy is None else empty(length, dtype=copy),
        )
        for length, gradient, copy in zip(program.lengths, program.gradients, program.copies, strict=True)
    ]
    with torch.no_grad():
        compile_program(_update_all)(parts, program.rows, empty(2, 3), empty(), program.constants)


def _are_one_program(ordered: Sequence[_OrderedUpdate]) -> bool:
    return sum(len(each.master) for each in ordered) <= _TOGETHER_AT_MOST


def _row(step: AdamWStep) -> int:
    return 0 if step.weight_decay else 1


def _numbers(step: AdamWStep, device: torch.device) -> Tensor:
    """What differs from step to step, with weight decay and without, in memory that the device copies from.

    As a tensor, so that a new value is no new program.
    """
    correction1 = 1 - step.beta1**step.updates
    correction2 = 1 - step.beta2**step.updates
    rate, root = step.lr / correction1, correction2**-0.5
    rows = [[1 - step.lr * step.weight_decay, rate, root], [1.0, rate, root]]
    return torch.tensor(rows, dtype=torch.float32, pin_memory=device.type == "cuda")


def _update_all(
    parts: Sequence[tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]],
    kinds: tuple[int, ...],
    numbers: Tensor,
    scale: Tensor,
    constants: tuple[float, float, float],
) -> None:
    for part, kind in zip(parts, kinds, strict=True):
        _update(*part, numbers[kind], scale, constants)


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


def _update_packed(
    tensors: Sequence[tuple[Tensor, ...]],
    encodings: tuple[Encoding, ...],
    gradient: Tensor,
    copy: Tensor | None,
    numbers: Tensor,
    scale: Tensor,
    constants: tuple[float, float, float],
    offset: Tensor,
) -> None:
    beta1, beta2, eps = constants
    keep, rate, root = numbers.unbind()
    master, first, second = (
        Flat(encoding, held, roots=number == 2)
        for number, (encoding, held) in enumerate(zip(encodings, tensors, strict=True))
    )
    g = gradient.float() * scale
    m = first.read() * beta1 + g * (1 - beta1)
    v = second.read() * beta2 + g * g * (1 - beta2)
    p = master.read() * keep - rate * m / (v.sqrt() * root + eps)
    rounds_by_chance = first.encoding in {"bf16", "8bit"}
    noise = random_bits(len(gradient), offset, gradient.device) if rounds_by_chance else None
    first.write(m, noise)
    second.write(v, noise)
    master.write(p)
    if copy is not None:
        copy.copy_(p)
