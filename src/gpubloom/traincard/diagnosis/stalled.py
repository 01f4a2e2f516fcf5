"""Stalled: the loop has shown no sign of moving for longer than it announced."""

from collections.abc import Iterator

from gpubloom.traincard.diagnosis.finding import Finding, Limits, duration
from gpubloom.traincard.diagnosis.telemetry_window import gpu_use
from gpubloom.traincard.reading import Reading


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
            f", though the GPUs are {use:.0%} busy: a very long step, or ranks that wait for each other."
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
