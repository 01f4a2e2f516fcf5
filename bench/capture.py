"""What the Reporter with capture and the record of what ran cost a training loop.

    python bench/capture.py [--steps 3000]

A loop of 10 ms steps reports ten metrics, prints one line and logs one record every step: without a Reporter,
with one that captures nothing, and with one as it comes, in turns. The figures are the seconds that the
training thread spends in its calls and the CPU time of all threads. The exit status says whether the Reporter
as it comes takes less than 1 % of a step.
"""

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from gpubloom.traincard import Reporter

STEP_SECONDS = 0.010
LIMIT = 0.01
TURNS = 3


def loop(steps: int, *, enabled: bool, capture: bool) -> tuple[float, float]:
    """Median seconds of a step's calls, and CPU seconds of all threads by step."""
    values = {f"metric_{number}": 1.0 / (number + 1) for number in range(10)}
    log = logging.getLogger("bench")
    calls = []
    with tempfile.TemporaryDirectory() as folder:
        cpu = time.process_time()
        options = {"enabled": enabled, "capture": capture, "what_ran": capture, "announce": False}
        with Reporter(Path(folder) / "run", **options) as reporter:
            for step in range(steps):
                began = time.perf_counter()
                reporter.metrics(values, step)
                print(f"step {step}: loss 1.234")
                log.info("step %d done", step)
                spent = time.perf_counter() - began
                calls.append(spent)
                time.sleep(max(0.0, STEP_SECONDS - spent))
        return statistics.median(calls), (time.process_time() - cpu) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps // (3 * TURNS)
    terminal = sys.stdout
    # As a terminal would, without drawing: what is measured is ours, not the screen's.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open until the process ends
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    ways = {"no Reporter": (False, False), "without capture": (True, False), "as it comes": (True, True)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, (enabled, capture) in ways.items():
            found[name].append(loop(steps, enabled=enabled, capture=capture))
    sys.stdout = terminal
    calls = {name: statistics.median(one[0] for one in some) for name, some in found.items()}
    for name, some in found.items():
        cpu = statistics.median(one[1] for one in some)
        print(
            f"{name:16} {calls[name] * 1e6:7.1f} µs of calls a step, {cpu * 1e6:7.1f} µs CPU of all threads"
        )
    ours = calls["as it comes"] - calls["no Reporter"]
    print(f"The Reporter takes {ours * 1e6:.1f} µs of a step of 10 ms: {ours / STEP_SECONDS:.2%}.")
    sys.exit(0 if ours < LIMIT * STEP_SECONDS else 1)


if __name__ == "__main__":
    main()
