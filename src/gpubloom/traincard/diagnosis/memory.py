"""Out of memory soon: memory that grows step by step and will not be enough."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import linear_regression

from gpubloom.traincard.diagnosis.finding import Finding, Limits, duration
from gpubloom.traincard.diagnosis.telemetry_window import gpus, last, values
from gpubloom.traincard.reading import Reading

_GIB = 1024**3
_WINDOW_SECONDS = 600.0
_FEWEST_LOOKS = 6
# Allocators take a GPU's memory in large pieces early and keep it: full is normal there, growing is not.
_ALREADY_USED = 0.7
_GROWTH_SHARE = 0.01


def out_of_memory_soon(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """GPUs by their growth, the machine's own memory by its growth or when it is nearly full."""
    for gpu in gpus(reading):
        prefix = f"gpu/{gpu.index}/memory_"
        evidence = {"gpu": gpu.index, "host": gpu.host}
        yield from _growing(reading, gpu.rank, gpu.words, f"{prefix}used", f"{prefix}total", evidence, limits)
    for rank in sorted(reading.looks):
        host = reading.ranks[rank].host
        words = "The machine" if len(reading.looks) < 2 or not host else host
        found = list(_growing(reading, rank, words, "ram/used", "ram/total", {"host": host}, limits))
        used, total = last(reading, rank, "ram/used"), last(reading, rank, "ram/total")
        if not found and used is not None and total and used / total > limits.memory_full:
            sentence = (
                f"{words} has little memory left: {used / _GIB:.1f} of {total / _GIB:.1f} GiB are used. "
                "Without room the system ends the run."
            )
            room = {"host": host, "used": used, "total": total}
            found.append(Finding("out_of_memory_soon", "warning", sentence, room, None))
        yield from found


def _growing(
    reading: Reading,
    rank: int,
    words: str,
    used_name: str,
    total_name: str,
    evidence: Mapping[str, object],
    limits: Limits,
) -> Iterator[Finding]:
    looks = values(reading, rank, used_name, _WINDOW_SECONDS)
    total = last(reading, rank, total_name)
    if len(looks) < _FEWEST_LOOKS or not total or looks[-1][1] / total < _ALREADY_USED:
        return
    times, used = zip(*looks, strict=True)
    if times[-1] <= times[0]:
        return
    slope = linear_regression(times, used).slope
    grown = slope * (times[-1] - times[0])
    # Up and down again, or one piece at the start, is no trend: most looks must be above the one before.
    rising = sum(after > before for before, after in pairwise(used))
    if grown < _GROWTH_SHARE * total or rising < 0.6 * (len(used) - 1):
        return
    left = (total - used[-1]) / slope
    if left > limits.memory_seconds_left:
        return
    sentence = (
        f"{words} runs out of memory in about {duration(left)} if this goes on: {used[-1] / _GIB:.1f} of "
        f"{total / _GIB:.1f} GiB are used, {slope * 60 / _GIB:.2f} GiB more every minute."
    )
    more = {"used": used[-1], "total": total, "bytes_per_second": slope, "seconds_left": left}
    yield Finding("out_of_memory_soon", "warning", sentence, {**evidence, **more}, times[0])
