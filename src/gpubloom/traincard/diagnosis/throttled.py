"""Throttled: a GPU that works slower than it could, because of heat or power."""

from collections.abc import Iterator

from gpubloom.traincard.diagnosis.finding import Finding, Limits
from gpubloom.traincard.diagnosis.telemetry_window import Gpu, fixed, gpus, mean, values
from gpubloom.traincard.reading import Reading

_BUSY = 50.0
_WINDOW_SECONDS = 60.0


def throttled(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """One finding per GPU."""
    for gpu in gpus(reading):
        if found := _of(reading, gpu, limits):
            yield found


def _of(reading: Reading, gpu: Gpu, limits: Limits) -> Finding | None:
    prefix = f"gpu/{gpu.index}/"

    def recent(name: str) -> float | None:
        return mean(reading, gpu.rank, prefix + name, _WINDOW_SECONDS)

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
    words = [f"{gpu.words} is slowed down by {why}"]
    if temperature is not None:
        words.append(f"{temperature:.0f} °C")
    if clock is not None and top:
        words.append(f"{clock:.0f} of {top:.0f} MHz")
    power = recent("power")
    if why != "heat" and power is not None:
        words.append(f"{power:.0f} W")
    looks = values(reading, gpu.rank, f"{prefix}temperature", _WINDOW_SECONDS)
    evidence = {
        "gpu": gpu.index,
        "host": gpu.host,
        "temperature": temperature,
        "temperature_limit": hot,
        "clock": clock,
        "clock_max": top,
        "power": power,
    }
    return Finding("throttled", "warning", ", ".join(words) + ".", evidence, looks[0][0] if looks else None)
