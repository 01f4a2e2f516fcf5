"""The rules of diagnosis: each looks at a Reading and yields findings, one sentence and what it rests on.

Data-starved: the device waits for batches. Degraded: a rank died, failed, or broke its promise to say
something. Diverging: the loss is no longer a number, or far above where it was. No learning: the loss has
not fallen at all. Out of memory soon: memory grows step by step and will not be enough. Stalled: the loop has
shown no sign of moving for longer than it announced. Straggler: the others wait for one rank. Throttled: a
GPU works slower than it could, because of heat or power.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise, takewhile
from statistics import linear_regression, median

from gpubloom.traincard.findings import Finding
from gpubloom.traincard.number_encoding import decode_number
from gpubloom.traincard.ranks import RankReading
from gpubloom.traincard.reading import Point, Reading


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something is wrong. Seconds, fractions of one, °C."""

    stall_seconds: float = 300.0
    idle_gpu: float = 0.10
    spike_deviations: float = 8.0
    spike_share: float = 0.5
    waiting_for_data: float = 0.3
    hot: float = 87.0
    slow_clock: float = 0.75
    memory_full: float = 0.95
    memory_seconds_left: float = 900.0
    straggler: float = 1.3


def duration(seconds: float) -> str:
    """2 h 05 min, 3 min 20 s, 12 s."""
    whole = max(0, round(seconds))
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole} s"


def clock_time(t: float | None) -> str:
    """A moment in UTC; the evidence has the number, for viewers that know the reader's time zone."""
    return "an unknown time" if t is None else f"{datetime.fromtimestamp(t, UTC):%H:%M:%S} UTC"


WINDOW_SECONDS = 120.0
_FEWEST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of one machine."""

    rank: int
    host: str | None
    index: int
    hosts: int

    @property
    def words(self) -> str:
        return f"GPU {self.index}" if self.hosts < 2 or not self.host else f"GPU {self.index} of {self.host}"


def values(
    reading: Reading, rank: int, name: str, seconds: float = WINDOW_SECONDS
) -> list[tuple[float, float]]:
    """Time and value of one reading of a rank's machine, oldest first, within the last `seconds` of it."""
    looks = reading.looks.get(rank)
    if not looks:
        return []
    newest = looks[-1][0]
    found = []
    for t, look in looks:
        value = decode_number(look.get(name))
        if newest - t <= seconds and isinstance(value, (int, float)):
            found.append((t, float(value)))
    return found


def mean(reading: Reading, rank: int, name: str, seconds: float = WINDOW_SECONDS) -> float | None:
    """The mean of the last minutes; None when there are too few values to say."""
    found = [value for _, value in values(reading, rank, name, seconds)]
    return sum(found) / len(found) if len(found) >= _FEWEST_SAMPLES else None


def last(reading: Reading, rank: int, name: str) -> float | None:
    """The newest value; None when the last look did not have it."""
    looks = reading.looks.get(rank)
    value = decode_number(looks[-1][1].get(name)) if looks else None
    return float(value) if isinstance(value, (int, float)) else None


def fixed(reading: Reading, rank: int, name: str) -> float | None:
    """What a machine described once, such as a GPU's highest clock."""
    value = reading.facts.get(rank, {}).get(name)
    return float(value) if isinstance(value, (int, float)) else None


def gpus(reading: Reading) -> Iterator[Gpu]:
    """Every GPU that the last telemetry of its machine told about."""
    hosts = len({reading.ranks[rank].host for rank in reading.looks})
    for rank, looks in sorted(reading.looks.items()):
        indices = {name.split("/")[1] for name in looks[-1][1] if name.startswith("gpu/")}
        for index in sorted(int(word) for word in indices if word.isdecimal()):
            yield Gpu(rank, reading.ranks[rank].host, index, hosts)


def gpu_use(reading: Reading) -> float | None:
    """The mean utilization of all GPUs in the last minutes, from 0 to 1; None when none tells."""
    found = [mean(reading, gpu.rank, f"gpu/{gpu.index}/utilization") for gpu in gpus(reading)]
    known = [use for use in found if use is not None]
    return sum(known) / len(known) / 100 if known else None


_FEWEST_STEPS = 10
_BUSY_CPU = 85.0
_HALF_IDLE_GPU = 0.5


def data_starved(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """By the loop's own measure (`data_seconds`) where it has one, else by idle GPUs beside a busy CPU."""
    if reading.state.phase not in {None, "train"}:
        return
    waited, took = (reading.recent.get(f"train/{name}") for name in ("data_seconds", "step_seconds"))
    if waited and took and min(len(waited), len(took)) >= _FEWEST_STEPS:
        waiting = median(point.value for point in list(waited)[-50:])
        step = median(point.value for point in list(took)[-50:])
        if step > 0 and waiting / step > limits.waiting_for_data:
            yield Finding(
                "data_starved",
                "warning",
                f"Steps spend {waiting / step:.0%} of their time waiting for data ({waiting:.3g} of "
                f"{step:.3g} s). Use more data loader workers, or preprocess the data.",
                {"data_seconds": waiting, "step_seconds": step, "share": round(waiting / step, 3)},
                waited[-1].t,
            )
        return
    use, cpu = gpu_use(reading), mean(reading, 0, "cpu/utilization")
    main = reading.ranks.get(0)
    is_moving = main is not None and main.loop_is_quiet_for(now) < limits.stall_seconds
    if is_moving and use is not None and cpu is not None and use < _HALF_IDLE_GPU and cpu > _BUSY_CPU:
        yield Finding(
            "data_starved",
            "info",
            f"The GPUs are {use:.0%} busy while the CPU is at {cpu:.0f} %: steps probably wait for data.",
            {"gpu_utilization": round(use, 3), "cpu_utilization": round(cpu, 1)},
            None,
        )


def degraded(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """One finding for each rank of the running attempt that is missing."""
    for rank in (reading.ranks[number] for number in sorted(reading.ranks)):
        # One that only took part in an earlier attempt is not missed.
        if rank.attempt != reading.state.attempt and 0 in reading.ranks:
            continue
        life = rank.life(now)
        evidence = {
            "rank": rank.rank,
            "host": rank.host,
            "pid": rank.pid,
            "state": life,
            "last_seen": rank.last_seen,
            "step": rank.step,
        }
        if life == "ended" and rank.rank > 0 and rank.status in {"failed", "preempted", "interrupted"}:
            yield Finding(
                "degraded", "critical", _ended(rank), {**evidence, "status": rank.status}, rank.last_seen
            )
        elif life == "dead":
            sentence = (
                f"{_who(rank, reading)} is dead: the process ended without reporting a reason. "
                f"Last seen: {clock_time(rank.last_seen)}{_at_step(rank)}."
            )
            yield Finding("degraded", "critical", sentence, evidence, rank.last_seen)
        elif life == "silent":
            quiet = now - rank.seen_at
            promised = max(rank.own_promise, rank.promise or 0.0)
            sentence = (
                f"{_who(rank, reading)} has not reported for {duration(quiet)}; a report was due "
                f"within {duration(promised)}. Last seen: {clock_time(rank.last_seen)}{_at_step(rank)}."
            )
            more = {"silent_seconds": round(quiet, 1), "promised_seconds": promised}
            yield Finding("degraded", "critical", sentence, {**evidence, **more}, rank.last_seen)


def missing_ranks(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Several ranks report, but not all. Where rank 0 alone reports, the others were never meant to."""
    state = reading.state
    there = {rank.rank for rank in reading.ranks.values() if rank.attempt == state.attempt}
    # Processes of a large run start one after the other.
    begun = min((rank.started_at or now for rank in reading.ranks.values()), default=now)
    if not 1 < len(there) < state.world_size or now - begun < limits.stall_seconds:
        return
    absent = sorted(set(range(state.world_size)) - there)
    named = ", ".join(str(rank) for rank in absent[:8]) + (" …" if len(absent) > 8 else "")
    yield Finding(
        "degraded",
        "warning",
        f"Only {len(there)} of {state.world_size} ranks report. Missing: {named}. Check that these "
        "processes run.",
        {"world_size": state.world_size, "reporting": len(there), "missing": absent[:64]},
        None,
    )


def straggler(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """One rank whose own work takes much longer than that of the others, which wait for it."""
    times = {
        rank.rank: median(rank.step_seconds)
        for rank in reading.ranks.values()
        if rank.attempt == reading.state.attempt and len(rank.step_seconds) >= _FEWEST_STEPS
    }
    if len(times) < 3:  # Of two nobody can say which one is unusual.
        return
    slowest = max(times, key=lambda rank: times[rank])
    usual = median(seconds for rank, seconds in times.items() if rank != slowest)
    if usual > 0 and times[slowest] > limits.straggler * usual:
        yield Finding(
            "straggler",
            "warning",
            f"{_who(reading.ranks[slowest], reading)} takes {times[slowest]:.3g} s for a step; the others "
            f"take {usual:.3g} s. Check its GPU, its data and what else runs on its machine.",
            {"rank": slowest, "step_seconds": times[slowest], "others": usual},
            None,
        )


def _who(rank: RankReading, reading: Reading) -> str:
    if rank.rank == 0 and reading.state.world_size == 1:
        return "The training process"
    return f"Rank {rank.rank}" + (f" on {rank.host}" if rank.host else "")


def _at_step(rank: RankReading) -> str:
    return "" if rank.step is None else f", at step {rank.step:,}"


def _ended(rank: RankReading) -> str:
    who = f"Rank {rank.rank}" + (f" on {rank.host}" if rank.host else "")
    sentence = f"{who} {_ENDINGS[rank.status or '']} at {clock_time(rank.last_seen)}{_at_step(rank)}"
    if rank.error is None:
        return f"{sentence}."
    message = str(rank.error.get("message", "")).strip().partition("\n")[0][:200]
    return f"{sentence}: {rank.error.get('type')}" + (f": {message}" if message else "")


_ENDINGS = {"failed": "failed", "preempted": "was preempted", "interrupted": "was interrupted"}


_NEWEST = 5
_FEWEST_BEFORE = 20
# The median distance from the median of normal noise, as a standard deviation.
_DEVIATION_OF_MEDIAN_DISTANCE = 1.4826


def diverging(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Losses and gradient norms of rank 0."""
    for name, points in sorted(reading.recent.items()):
        if name.endswith(("loss", "grad_norm")):
            found = _not_a_number(name, list(points)) or (
                _rise(name, reading) or _spike(name, list(points), limits) if name.endswith("loss") else None
            )
            if found:
                yield found


_RISE_SHARE = 0.2
_FEWEST_FOR_RISE = 10


def _rise(name: str, reading: Reading) -> Finding | None:
    """The training loss ends far above where it began: slow or fast, such a run has diverged."""
    if name != "train/loss" or reading.state.resumed_from_step:
        return None
    curves = reading.curves.attempts(name, 0)
    values = [
        value
        for number in sorted(curves)
        for value in curves[number].condensed().value
        if math.isfinite(value)
    ]
    if len(values) < _FEWEST_FOR_RISE:
        return None
    part = max(3, len(values) // 10)
    begin, end = median(values[:part]), median(values[-part:])
    if end - begin <= _RISE_SHARE * abs(begin):
        return None
    return Finding(
        "diverging",
        "critical",
        f"{name} has risen from {begin:.4g} to {end:.4g}: the run has diverged.",
        {"series": name, "first": begin, "value": end},
        None,
        "Start again with a lower learning rate; the learning-rate finder suggests one.",
    )


_FEWEST_FOR_LEARNING = 500


def no_learning(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """The training loss of a whole run lies where it began, within its own noise."""
    curves = reading.curves.attempts("train/loss", 0)
    values = [
        value
        for number in sorted(curves)
        for value in curves[number].condensed().value
        if math.isfinite(value)
    ]
    steps = reading.state.step or 0
    if steps < _FEWEST_FOR_LEARNING or len(values) < 20 or reading.state.resumed_from_step:
        return
    tenth = len(values) // 10
    begin, end = median(values[:tenth]), median(values[-tenth:])
    noise = _DEVIATION_OF_MEDIAN_DISTANCE * median(abs(value - median(values)) for value in values)
    if abs(begin) > 1e-3 and begin - end < max(0.01 * abs(begin), 0.1 * noise):
        yield Finding(
            "no_learning",
            "warning",
            f"train/loss has not fallen in {steps:,} steps: {begin:.4g} at the beginning, {end:.4g} now. "
            "Check that the learning rate is not too low or too high, that parameters are trained, and that "
            "labels fit the rows.",
            {"first": begin, "last": end, "steps": steps},
            None,
        )


def _not_a_number(name: str, points: list[Point]) -> Finding | None:
    bad = list(takewhile(lambda point: not math.isfinite(point.value), reversed(points)))
    if not bad:
        return None
    first = bad[-1]
    word = "NaN" if math.isnan(first.value) else "infinite"
    # One gradient norm that overflows is how mixed precision finds its scale; a loss is not.
    if name.endswith("grad_norm") and len(bad) < _NEWEST:
        return None
    return Finding(
        "diverging",
        "critical",
        f"{name} has been {word} since step {first.step:,.0f}. Resume from the last checkpoint before that "
        "step with a lower learning rate, and check the data of that step.",
        {
            "series": name,
            "step": first.step,
            "value": word,
            "steps": len(bad),
            "before": _last_number(points),
        },
        first.t,
    )


def _last_number(points: list[Point]) -> dict[str, float] | None:
    for point in reversed(points):
        if math.isfinite(point.value):
            return {"step": point.step, "value": point.value}
    return None


def _spike(name: str, points: list[Point], limits: Limits) -> Finding | None:
    points = [point for point in points if math.isfinite(point.value)]
    before = [point.value for point in points[:-_NEWEST]]
    if len(before) < _FEWEST_BEFORE:
        return None
    usual = median(before)
    deviation = _DEVIATION_OF_MEDIAN_DISTANCE * median(abs(value - usual) for value in before)
    # Both: far outside the noise, and much in itself. A falling loss lies below its own median.
    allowed = usual + max(limits.spike_deviations * deviation, limits.spike_share * abs(usual))
    newest = points[-_NEWEST:]
    high = median(point.value for point in newest)
    if high <= allowed:
        return None
    since = next(point for point in newest if point.value > allowed)
    return Finding(
        "diverging",
        "warning",
        f"{name} jumped to {high:.4g} at step {since.step:,.0f}. The typical value before was {usual:.4g}.",
        {"series": name, "step": since.step, "value": high, "usual": usual, "allowed": allowed},
        since.t,
    )


_GB = 1e9
_MEMORY_WINDOW_SECONDS = 600.0
_FEWEST_MEMORY_SAMPLES = 6
# Allocators take a GPU's memory in large pieces early and keep it: full is normal there, growing is not.
_ALREADY_USED = 0.7
_GROWTH_SHARE = 0.01


def out_of_memory_soon(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """GPUs by their growth, the machine's own memory by its growth or when it is nearly full."""
    full: list[Finding] = []
    for gpu in gpus(reading):
        prefix = f"gpu/{gpu.index}/memory_"
        evidence = {"gpu": gpu.index, "host": gpu.host}
        full += _growing(reading, gpu.rank, gpu.words, f"{prefix}used", f"{prefix}total", evidence, limits)
    yield from _first_of(full)
    for rank in sorted(reading.looks):
        host = reading.ranks[rank].host
        words = "The machine" if len(reading.looks) < 2 or not host else host
        found = list(_growing(reading, rank, words, "ram/used", "ram/total", {"host": host}, limits))
        used, total = last(reading, rank, "ram/used"), last(reading, rank, "ram/total")
        if not found and used is not None and total and used / total > limits.memory_full:
            sentence = (
                f"{words} has little memory left: {used / _GB:.1f} of {total / _GB:.1f} GB are used. "
                "If no memory is left, the operating system ends the run."
            )
            room = {"host": host, "used": used, "total": total}
            found.append(Finding("out_of_memory_soon", "warning", sentence, room, None))
        yield from found


def _first_of(full: list[Finding]) -> Iterator[Finding]:
    """GPUs of one run fill up together: one finding, about the GPU that is full first."""
    if len(full) < 2:
        yield from full
        return
    first = min(full, key=lambda finding: finding.evidence["seconds_left"])
    others = [{"gpu": each.evidence["gpu"], "host": each.evidence["host"]} for each in full]
    sentence = f"{len(full)} GPUs run out of memory soon. {first.sentence}"
    yield Finding(first.kind, first.severity, sentence, {**first.evidence, "gpus": others}, first.since)


def _growing(
    reading: Reading,
    rank: int,
    words: str,
    used_name: str,
    total_name: str,
    evidence: Mapping[str, object],
    limits: Limits,
) -> Iterator[Finding]:
    looks = values(reading, rank, used_name, _MEMORY_WINDOW_SECONDS)
    total = last(reading, rank, total_name)
    if len(looks) < _FEWEST_MEMORY_SAMPLES or not total or looks[-1][1] / total < _ALREADY_USED:
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
        f"{words} runs out of memory in about {duration(left)} at the current growth: "
        f"{used[-1] / _GB:.1f} of {total / _GB:.1f} GB are used, {slope * 60 / _GB:.2f} GB more "
        "every minute."
    )
    more = {"used": used[-1], "total": total, "bytes_per_second": slope, "seconds_left": left}
    yield Finding("out_of_memory_soon", "warning", sentence, {**evidence, **more}, times[0])


def stalled(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Looks at rank 0, which all others wait for. A process that is gone is another finding."""
    main = reading.ranks.get(0)
    if main is None or main.life(now) in {"dead", "ended"} or reading.state.phase == "idle":
        return
    quiet = main.loop_is_quiet_for(now)
    if quiet < limits.stall_seconds:
        return
    use = gpu_use(reading)
    where = "" if reading.state.step is None else f" at step {reading.state.step:,}"
    phase = f" in phase {reading.state.phase}" if reading.state.phase else ""
    sentence = f"Training appears stalled{where}{phase}: no progress for {duration(quiet)}"
    if use is None:
        sentence += "."
    elif use < limits.idle_gpu:
        sentence += f", and the GPUs are idle ({use:.0%} busy)."
    else:
        sentence += (
            f", although the GPUs are {use:.0%} busy. The step may take very long, or ranks may be waiting "
            "for each other."
        )
    yield Finding(
        "stalled",
        "warning" if use is not None and use >= limits.idle_gpu else "critical",
        sentence,
        {
            "step": reading.state.step,
            "phase": reading.state.phase,
            "seconds_without_progress": round(quiet, 1),
            "allowed_seconds": limits.stall_seconds,
            "gpu_utilization": None if use is None else round(use, 3),
        },
        main.loop_last,
    )


_BUSY = 50.0
_THROTTLING_WINDOW_SECONDS = 60.0


def throttled(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """One finding per GPU."""
    for gpu in gpus(reading):
        if found := _of(reading, gpu, limits):
            yield found


def _of(reading: Reading, gpu: Gpu, limits: Limits) -> Finding | None:
    prefix = f"gpu/{gpu.index}/"

    def recent(name: str) -> float | None:
        return mean(reading, gpu.rank, prefix + name, _THROTTLING_WINDOW_SECONDS)

    temperature, clock = recent("temperature"), recent("clock")
    top = fixed(reading, gpu.rank, f"{prefix}clock_max")
    hot = fixed(reading, gpu.rank, f"{prefix}temperature_limit") or limits.hot
    by_heat, by_power = recent("slowed_by_heat"), recent("slowed_by_power")
    busy = recent("utilization")
    slow = clock is not None and top is not None and top > 0 and clock / top < limits.slow_clock
    is_busy = busy is not None and busy >= _BUSY
    if by_heat is None:
        # A driver that does not say why leaves the thermometer.
        by_heat = float(temperature is not None and temperature >= hot and (slow or clock is None))
    if by_heat > 0.5:
        why = "heat"
    elif slow and is_busy and by_power is not None and by_power > 0.5:
        why = "its power limit"
    else:
        return None
    figures: list[str] = []
    if temperature is not None:
        figures.append(f"{temperature:.0f} °C")
    if clock is not None and top:
        figures.append(f"{clock:.0f} of {top:.0f} MHz")
    power = recent("power")
    if why != "heat" and power is not None:
        figures.append(f"{power:.0f} W")
    looks = values(reading, gpu.rank, f"{prefix}temperature", _THROTTLING_WINDOW_SECONDS)
    evidence = {
        "gpu": gpu.index,
        "host": gpu.host,
        "temperature": temperature,
        "temperature_limit": hot,
        "clock": clock,
        "clock_max": top,
        "power": power,
    }
    details = f" ({', '.join(figures)})" if figures else ""
    sentence = f"{gpu.words} is throttled by {why}{details}."
    return Finding("throttled", "warning", sentence, evidence, looks[0][0] if looks else None)
