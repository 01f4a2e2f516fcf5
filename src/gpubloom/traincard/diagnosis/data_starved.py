"""Data-starved: the device waits for batches."""

from collections.abc import Iterator
from statistics import median

from gpubloom.traincard.diagnosis.finding import Finding, Limits
from gpubloom.traincard.diagnosis.telemetry_window import gpu_use, mean
from gpubloom.traincard.reading import Reading

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
                f"Steps wait for data {waiting / step:.0%} of their time ({waiting:.3g} of {step:.3g} s). "
                "Use more loader processes, or prepare the data beforehand.",
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
