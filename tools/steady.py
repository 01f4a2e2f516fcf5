"""Runs the test suite several times in random order and lists every test that ever failed: `make steady`.

    python tools/steady.py                                quiet, quiet, busy; a seed of its own
    python tools/steady.py --seed 7 --passes "busy busy"  the order of a pass is given by its seed

A `busy` pass runs beside processes that do nothing but compute; each test may then take longer, and nothing
else changes. Pass number n uses seed + n - 1. Logs and JUnit files stay in test-results/steady/.
"""

import argparse
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BUSY_PROCESSES = 4
# Two test processes and four busy ones share two cores.
BUSY_TIMEOUT_FACTOR = 4
SAMPLE_SECONDS = 5
# A busy process ends with whoever started it, even when that was killed.
BUSY_LOOP = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@dataclass
class Pass:
    """What one run of the suite came to. `failures`: test ids, or the reason why there are no results."""

    number: int
    kind: str
    seed: int
    seconds: float = 0.0
    load: float = 0.0
    passed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        return (
            f"pass {self.number} ({self.kind}, seed {self.seed}): {self.passed} passed, "
            f"{len(self.failures)} failed, {self.skipped} skipped in {minutes} min {seconds} s, "
            f"mean load {self.load:.1f}"
        )


def main() -> int:
    """Exit code 0: every test passed in every pass."""
    arguments = read_arguments()
    folder = arguments.results / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    folder.mkdir(parents=True)
    print(f"seed {arguments.seed}; logs in {os.path.relpath(folder)}", flush=True)
    passes = []
    for number, kind in enumerate(arguments.passes, start=1):
        done = run_pass(Pass(number, kind, arguments.seed + number - 1), arguments.pytest, folder)
        print(done, flush=True)
        for failure in done.failures:
            print(f"  failed: {failure}", flush=True)
        passes.append(done)
    print()
    print("\n".join(str(done) for done in passes))
    failed = sorted({failure for done in passes for failure in done.failures})
    print(f"{len(failed)} failed in at least one pass" if failed else "every test passed in every pass")
    for failure in failed:
        where = [f"pass {done.number} (seed {done.seed})" for done in passes if failure in done.failures]
        print(f"  {failure}: {', '.join(where)}")
    return 1 if failed else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the test suite several times in random order.")
    parser.add_argument("--seed", type=int, default=None, help="of the first pass; default: a random one")
    parser.add_argument(
        "--passes", default="quiet quiet busy", help='one word for each pass (default: "quiet quiet busy")'
    )
    parser.add_argument("--results", type=Path, default=ROOT / "test-results/steady", help="folder for logs")
    parser.add_argument("--pytest", default="", help="further arguments for pytest, such as a folder")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1_000_000)
    arguments.passes = arguments.passes.split()
    if not arguments.passes or set(arguments.passes) - {"quiet", "busy"}:
        parser.error('--passes takes the words quiet and busy, such as "quiet busy"')
    arguments.pytest = shlex.split(arguments.pytest)
    return arguments


def run_pass(wanted: Pass, further: list[str], folder: Path) -> Pass:
    """One run of the suite; what it printed goes to a file."""
    report, log = folder / f"pass-{wanted.number}.xml", folder / f"pass-{wanted.number}.log"
    command = [
        *(sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-m", "not long"),
        *("--order-seed", str(wanted.seed), "--hypothesis-seed", str(wanted.seed)),
        *("--durations", "40", "-rfE"),
        *("--junitxml", str(report), "-o", "junit_family=xunit1", *further),
    ]
    if wanted.kind == "busy":
        command += ["--timeout-factor", str(BUSY_TIMEOUT_FACTOR)]
    began, loads = time.monotonic(), [os.getloadavg()[0]]
    with busy_processes(BUSY_PROCESSES if wanted.kind == "busy" else 0), log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        while True:
            try:
                code = process.wait(SAMPLE_SECONDS)
                break
            except subprocess.TimeoutExpired:
                loads.append(os.getloadavg()[0])
    wanted.seconds, wanted.load = time.monotonic() - began, sum(loads) / len(loads)
    read_report(report, wanted)
    if code != 0 and not wanted.failures:
        wanted.failures.append(f"(pytest ended with exit code {code}; the log says why)")
    return wanted


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Processes that compute until the block ends."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def read_report(report: Path, into: Pass) -> None:
    """Counts and failures from a JUnit file; a test that failed and could not be torn down counts once."""
    if not report.is_file():
        return
    outcomes: dict[str, set[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314
        outcomes.setdefault(test_id(case), set()).update(outcome.tag for outcome in case)
    for name, found in outcomes.items():
        if found & {"failure", "error"}:
            into.failures.append(name)
        elif "skipped" in found:
            into.skipped += 1
        else:
            into.passed += 1


def test_id(case: ElementTree.Element) -> str:
    """As pytest takes it. pytest-xdist puts a test's group behind its name."""
    name = re.sub(r"@[^\[\]]*$", "", case.get("name", ""))
    path = case.get("file")
    return f"{path}::{name}" if path else f"{case.get('classname', '')}::{name}".lstrip(":")


if __name__ == "__main__":
    sys.exit(main())
