"""How long a job takes from submit to its script, warm and plain, side by side.

    python bench/start.py [--rounds 5]

Both ways take turns in one run. Two moments count: the script's first line, and the line after its imports,
where a generated train.py begins to work.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from gpubloom.agent import JobSpec
from gpubloom.providers import LocalProvider

_SCRIPT = """
import time
first = time.time()
import json
from gpubloom.engine import Dataset, Model, Trainer, training_session
json.dump([first, time.time()], open("moments.json", "w"))
"""


def _start(provider: LocalProvider, run_dir: Path) -> tuple[float, float, float]:
    """Seconds until submit returned, until the first line, and until the imports are done."""
    run_dir.mkdir(parents=True)
    (run_dir / "train.py").write_text(_SCRIPT)
    reservation = provider.reserve(0)
    assert reservation is not None
    began = time.time()
    with reservation:
        asyncio.run(provider.submit(JobSpec("bench", run_dir, 1, (sys.executable, "train.py")), reservation))
    submitted = time.time()
    while asyncio.run(provider.status(run_dir, 1)).alive:
        time.sleep(0.05)
    first, imported = json.loads((run_dir / "moments.json").read_text())
    return submitted - began, first - began, imported - began


def _measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        providers = {"warm": LocalProvider(home), "plain": LocalProvider(home, warm=False)}
        began = time.monotonic()
        asyncio.run(providers["warm"].open())
        # The first one waits for the parent's imports; it is shown, and not counted.
        _start(providers["warm"], home / "runs" / "first")
        print(f"first job right after the worker's start: {time.monotonic() - began:.2f} s in all")
        seconds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in providers}
        for number in range(rounds):
            for name, provider in providers.items():
                seconds[name].append(_start(provider, home / "runs" / f"{name}-{number}"))
        asyncio.run(providers["warm"].close())
    print(f"\n{rounds} starts each, median (slowest); {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<6} {'submit returns':>20} {'first line':>20} {'imports done':>20}")
    for name, rows in seconds.items():
        cells = [
            f"{statistics.median(column):.3f} ({max(column):.3f}) s" for column in zip(*rows, strict=True)
        ]
        print(f"{name:<6} " + " ".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    _measure(parser.parse_args().rounds)
