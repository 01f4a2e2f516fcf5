"""What the GPU does in one step: the kernels that took longest, by kind, and how long it waited."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

LONGEST = 25
# The first that matches a kernel's name.
KINDS = {
    "attention": r"flash|fmha|sdpa|attention",
    "products": r"gemm|nvjet|cutlass|cublas|matmul|splitK",
    "copies": r"^Memcpy|^Memset",
    "compiled": r"^triton",
}


def profiled(step: Callable[[], Any]) -> dict[str, Any]:
    """Milliseconds of one step on the GPU. Kinds add up to more where kernels of several streams overlap."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        step()
        torch.cuda.synchronize()
    events = [
        event for event in recorded.events() or () if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    kinds: dict[str, float] = defaultdict(float)
    kernels: dict[str, list[float]] = {}
    busy, until = 0.0, 0.0
    for event in sorted(events, key=lambda each: each.time_range.start):
        begin, end = event.time_range.start, event.time_range.end
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
        kinds[kind_of(event.name)] += end - begin
        entry = kernels.setdefault(event.name[:110], [0.0, 0])
        entry[0] += end - begin
        entry[1] += 1
    begin = min((event.time_range.start for event in events), default=0.0)
    longest = sorted(kernels.items(), key=lambda item: -item[1][0])[:LONGEST]
    return {
        "kernels": len(events),
        "from_first_to_last_ms": _ms(until - begin),
        "busy_ms": _ms(busy),
        "by_kind_ms": {kind: _ms(total) for kind, total in sorted(kinds.items(), key=lambda item: -item[1])},
        "longest": [f"{_ms(total)} ms {count}x {name}" for name, (total, count) in longest],
    }


def kind_of(kernel: str) -> str:
    """The kind of a kernel by its name."""
    for kind, pattern in KINDS.items():
        if re.search(pattern, kernel, re.IGNORECASE):
            return kind
    return "other"


def _ms(microseconds: float) -> float:
    return round(microseconds / 1e3, 3)
