"""How long do processes of one machine take to add up a gradient?

    python bench/all_reduce.py [processes] [megabytes]

Each process is a member of a group as in a run with --processes. Printed are the milliseconds of the fastest
of ten sums.
"""

import json
import os
import subprocess
import sys
import time

import torch

from gpubloom.engine.parallel import join
from gpubloom.engine.parallel.launcher import local_members

SUMS = 10
LONGEST_SECONDS = 120


def measure(processes: int, megabytes: float) -> float:
    """Milliseconds of one sum among so many processes."""
    script = [__file__, "--member", str(megabytes)]
    started = [
        subprocess.Popen(
            [sys.executable, *member.command],
            stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
            env={**os.environ, **member.environment},
        )
        for number, member in enumerate(local_members(script, processes, 1, restarts=0))
    ]
    try:
        words, _ = started[0].communicate(timeout=LONGEST_SECONDS)
        return float(json.loads(words)["milliseconds"])
    finally:
        for process in started:
            process.kill()
            process.wait()


def _member(megabytes: float) -> None:
    group = join(os.environ, on_gpu=False)
    gradient = torch.ones(int(megabytes * 1e6 / 4))
    times = []
    for _ in range(SUMS):
        began = time.perf_counter()
        group.sum(gradient)
        times.append(time.perf_counter() - began)
    group.leave()
    if group.leads:
        print(json.dumps({"milliseconds": 1e3 * min(times)}))


if __name__ == "__main__":
    if "--member" in sys.argv:
        _member(float(sys.argv[-1]))
    else:
        numbers = [float(argument) for argument in sys.argv[1:]] or [2.0]
        print(measure(int(numbers[0]), numbers[1] if len(numbers) > 1 else 4.0))
