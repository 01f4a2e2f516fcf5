"""Rules about how a run goes: each looks at a Reading and yields findings, one sentence and what it rests on.

Data-starved: the device waits for batches. Degraded: a rank died, failed, or broke its promise to say
something. Out of memory soon: memory grows step by step and will not be enough. Stalled: the loop has
shown no sign of moving for longer than it announced. Straggler: the others wait for one rank. Throttled: a
GPU works slower than it could, because of heat or power.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import linear_regression, median

from gpubloom.traincard.causes import FOLLOWS
from gpubloom.traincard.findings import Finding
from gpubloom.traincard.number_encoding import decode_number
from gpubloom.traincard.ranks import RankReading
from gpubloom.traincard.reading import Reading


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
    """Ranks of the running attempt that are missing: one finding, about the rank that was lost first.

    One lost rank takes the others with it: they wait for it, or fail because it is gone.
    """
    lost = []
    for rank in (reading.ranks[number] for number in sorted(reading.ranks)):
        # One that only took part in an earlier attempt is not missed.
        is_earlier = rank.attempt != reading.state.attempt and 0 in reading.ranks
        if not is_earlier and (found := _lost(rank, reading, now)):
            lost.append((_comes_after(rank, now), found))
    if not lost:
        return
    (_, first), *others = sorted(lost, key=lambda each: each[0])
    if others:
        ranks = sorted(found.evidence["rank"] for _, found in others)
        who = "Rank" if len(ranks) == 1 else "Ranks"
        sentence = f"{first.sentence.rstrip('.')}. {who} also missing: {_named(ranks)}."
        first = replace(first, sentence=sentence, evidence={**first.evidence, "others": ranks[:64]})
    yield first


def _comes_after(rank: RankReading, now: float) -> tuple[int, float]:
    """Sorts the rank first that was lost before the others noticed."""
    if rank.error is not None:
        order = 3 if rank.error.get("cause") in FOLLOWS else 0
    else:
        order = 1 if rank.life(now) == "dead" else 2
    return order, rank.last_seen or 0.0


def _lost(rank: RankReading, reading: Reading, now: float) -> Finding | None:
    life = rank.life(now)
    evidence = {
        "rank": rank.rank,
        "host": rank.host,
        "pid": rank.pid,
        "state": life,
        "last_seen": rank.last_seen,
        "step": rank.step,
    }
    if life == "ended" and rank.rank > 0 and rank.status in _ENDINGS:
        evidence["status"] = rank.status
        return Finding("degraded", "critical", _ended(rank), evidence, rank.last_seen)
    seen = f"Last seen: {clock_time(rank.last_seen)}{_at_step(rank)}."
    if life == "dead":
        sentence = f"{_who(rank, reading)} is dead: the process ended without reporting a reason. {seen}"
        return Finding("degraded", "critical", sentence, evidence, rank.last_seen)
    if life != "silent":
        return None
    quiet = now - rank.seen_at
    promised = max(rank.own_promise, rank.promise or 0.0)
    sentence = (
        f"{_who(rank, reading)} has not reported for {duration(quiet)}; a report was due "
        f"within {duration(promised)}. {seen}"
    )
    more = {"silent_seconds": round(quiet, 1), "promised_seconds": promised}
    return Finding("degraded", "critical", sentence, {**evidence, **more}, rank.last_seen)


def _named(ranks: list[int]) -> str:
    return ", ".join(str(rank) for rank in ranks[:8]) + (" …" if len(ranks) > 8 else "")


def missing_ranks(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Several ranks report, but not all. Where rank 0 alone reports, the others were never meant to."""
    state = reading.state
    there = {rank.rank for rank in reading.ranks.values() if rank.attempt == state.attempt}
    # Processes of a large run start one after the other.
    begun = min((rank.started_at or now for rank in reading.ranks.values()), default=now)
    if not 1 < len(there) < state.world_size or now - begun < limits.stall_seconds:
        return
    absent = sorted(set(range(state.world_size)) - there)
    yield Finding(
        "degraded",
        "warning",
        f"Only {len(there)} of {state.world_size} ranks report. Missing: {_named(absent)}. Check that "
        "these processes run.",
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
    yield from _first_of(full, "GPUs run out of memory soon")
    machines: list[Finding] = []
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
        machines += found
    yield from _first_of(machines, "machines run out of memory soon")


def _first_of(found: list[Finding], what: str) -> Iterator[Finding]:
    """GPUs and machines of one run do the same work: one finding, about the worst of them."""
    if len(found) < 2:
        yield from found
        return
    first = min(found, key=lambda finding: finding.evidence.get("seconds_left", 0.0))
    where = ("gpu", "host")
    all_of_them = [{name: each.evidence[name] for name in where if name in each.evidence} for each in found]
    evidence = {**first.evidence, "gpus" if "gpu" in first.evidence else "machines": all_of_them}
    yield replace(first, sentence=f"{len(found)} {what}. {first.sentence}", evidence=evidence)


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
    """GPUs that work slower than they could."""
    found = [finding for gpu in gpus(reading) if (finding := _of(reading, gpu, limits))]
    yield from _first_of(found, "GPUs are throttled")


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
