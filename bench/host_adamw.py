"""What the host AdamW costs, beside torch's fused CPU AdamW with the copies between precisions that it needs.

    python bench/host_adamw.py [--elements 100000000] [--threads 14]

Both take turns in this one process on the same arrays. One JSON line for each kind of gradient and copy; then
one for each kind of moments beside masters of two halves, which streamed layers have: there the kernel takes
turns with itself on FP32 masters (bf16 gradient and copy), since torch has no peer.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from gpubloom.engine.host_memory import host_buffer
from gpubloom.engine.optimizer.encoding import BLOCK, Encoding, Flat
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW

KINDS = ((torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16), (torch.float32, None))
LR, BETA1, BETA2, EPS, DECAY = 1e-5, 0.9, 0.999, 1e-8, 0.01


def touched(length: int, dtype: torch.dtype, spread: float) -> Tensor:
    """A buffer like the engine's, with every page in memory."""
    buffer = host_buffer(length, dtype, pinned=False)
    piece = torch.randn(1 << 20) * spread
    for start in range(0, length, len(piece)):
        room = buffer[start : start + len(piece)]
        room.copy_(piece[: len(room)])
    return buffer


def seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(
    elements: int, threads: int, repeats: int, gradient_dtype: torch.dtype, copy_dtype: torch.dtype | None
) -> None:
    ours = HostAdamW(threads)
    master, first = touched(elements, torch.float32, 0.02), touched(elements, torch.float32, 1e-4)
    second = touched(elements, torch.float32, 1e-4).square_()
    gradient = touched(elements, gradient_dtype, 1e-3)
    copy = None if copy_dtype is None else touched(elements, copy_dtype, 0.02)
    widened = None if gradient_dtype == torch.float32 else touched(elements, torch.float32, 0.0)
    step, count = AdamWStep(LR, BETA1, BETA2, EPS, DECAY, updates=100), torch.tensor(100.0)

    def host() -> None:
        ours.update(master, first, second, gradient, copy, step, 0.5)

    def fused() -> None:
        taken = gradient if widened is None else widened.copy_(gradient)
        torch._fused_adamw_(
            [master],
            [taken],
            [first],
            [second],
            [],
            [count],
            lr=LR,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=DECAY,
            eps=EPS,
            amsgrad=False,
            maximize=False,
        )
        if copy is not None:
            copy.copy_(master)

    host(), fused()
    times = [(seconds(host), seconds(fused)) for _ in range(repeats)]
    ours_s, torch_s = (statistics.median(column) for column in zip(*times, strict=True))
    # What has to move: masters and moments both ways, the gradient in, the copy out.
    moved = elements * (24 + gradient.element_size() + (0 if copy is None else copy.element_size()))
    line = {
        "gradient": str(gradient_dtype).removeprefix("torch."),
        "copy": None if copy_dtype is None else str(copy_dtype).removeprefix("torch."),
        "kernel": ours.description,
        "elements": elements,
        "seconds_per_billion": round(ours_s / elements * 1e9, 3),
        "gigabytes_per_second": round(moved / ours_s / 1e9, 1),
        "torch_threads": torch.get_num_threads(),
        "torch_seconds_per_billion": round(torch_s / elements * 1e9, 3),
        "times_faster": round(torch_s / ours_s, 2),
    }
    print(json.dumps(line), flush=True)


def measure_split(elements: int, threads: int, repeats: int, moments: Encoding) -> None:
    ours = HostAdamW(threads)
    gradient, copy = touched(elements, torch.bfloat16, 1e-3), touched(elements, torch.bfloat16, 0.02)
    fp32 = [touched(elements, torch.float32, spread) for spread in (0.02, 1e-4, 0.0)]
    master = Flat("split", (copy.clone(), touched(elements, torch.bfloat16, 0.0).view(torch.int16)))
    first, second = (
        Flat(
            moments,
            tuple(torch.zeros(length, dtype=dtype) for length, dtype in Flat.lengths(moments, elements)),
            roots=roots,
        )
        for roots in (False, True)
    )
    step = AdamWStep(LR, BETA1, BETA2, EPS, DECAY, updates=100)

    def split() -> None:
        ours.update_packed(master, first, second, gradient, None, step, 0.5, 0)

    def whole() -> None:
        ours.update(fp32[0], fp32[1], fp32[2], gradient, copy, step, 0.5)

    split(), whole()
    times = [(seconds(split), seconds(whole)) for _ in range(repeats)]
    split_s, whole_s = (statistics.median(column) for column in zip(*times, strict=True))
    state = sum(tensor.nbytes for flat in (master, first, second) for tensor in flat.tensors)
    line = {
        "master": "two halves",
        "moments": moments,
        "elements": elements,
        "seconds_per_billion": round(split_s / elements * 1e9, 3),
        "gigabytes_per_second": round((2 * state + gradient.nbytes) / split_s / 1e9, 1),
        "times_fp32_masters": round(split_s / whole_s, 2),
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--elements", type=int, default=100_000_000)
    arguments.add_argument("--threads", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    arguments.add_argument("--repeats", type=int, default=7)
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    for gradient_dtype, copy_dtype in KINDS:
        measure(given.elements, given.threads, given.repeats, gradient_dtype, copy_dtype)
    moments: tuple[Encoding, ...] = ("fp32", "bf16", "8bit")
    for each in moments:
        # Arrays of 8 bits hold whole blocks.
        measure_split(given.elements // BLOCK * BLOCK, given.threads, given.repeats, each)


if __name__ == "__main__":
    main()
