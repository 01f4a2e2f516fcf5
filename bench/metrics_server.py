"""What fifty viewers of `bloom train --serve-metrics` cost its training.

    python bench/metrics_server.py

One training runs all the time; fifty WebSockets are opened and closed in turns, and the steps of each turn
are counted from the run's own events. The figure is the median over neighbouring turns of steps a second
watched over steps a second alone. The viewers run on the same machine, with the lowest priority, because they
stand for others; what they use is said beside what the server uses. Also: how old a step is when a viewer
hears of it. On a machine with other work the figure says nothing: look at its error.
"""

import argparse
import asyncio
import base64
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing import Event, Process, SimpleQueue
from multiprocessing.synchronize import Event as EventType
from pathlib import Path
from typing import Any

from gpubloom.traincard import ControlFile, Reader

VIEWERS = 50
# Small steps: the most that a viewer can be told of.
TRAIN = (
    "train --serve-metrics --batch-size 8 --set model.preset=nano "
    "--set max_steps=1000000 --set epochs=1000 --set checkpoint.every_epochs=1000"
)


async def _watch(host: str, port: int, ended: EventType, ages: list[float], received: list[int]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    while not ended.is_set():
        _, size = await reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack("!H", await reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await reader.readexactly(8))
        content = await reader.readexactly(size)
        received.append(size)
        # One viewer in ten looks at what it got: parsing is a browser's work, elsewhere.
        if len(received) % 10 == 0 and content.startswith(b'{"type":"change"'):
            status = json.loads(content)["sections"].get("status")
            if status and status["updated_at"]:
                ages.append(time.time() - status["updated_at"])
    writer.close()


def _viewers(address: str, count: int, ended: EventType, results: "SimpleQueue[Any]") -> None:
    """Fifty viewers in one process, which says at its end what it saw and what it took."""
    host, _, port = address.removeprefix("http://").strip("/").partition(":")
    ages: list[float] = []
    received: list[int] = []

    async def all_of_them() -> None:
        watching = [asyncio.create_task(_watch(host, int(port), ended, ages, received)) for _ in range(count)]
        await asyncio.wait(watching)

    # They stand for other people's machines: where cores are short, they wait.
    os.nice(19)
    began = time.process_time()
    asyncio.run(all_of_them())
    results.put((ages, sum(received), len(received), time.process_time() - began))


def _start(folder: Path, threads: int) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gpubloom.cli", *TRAIN.split(), "--run-dir", str(folder / "run")],
        env={**os.environ, "METRICS_SERVER_ADDR": "127.0.0.1:0", "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Dashboard: "):
            return process, line.removeprefix("Dashboard: ").partition("#")[0]
    raise SystemExit("the training did not start")


def _server_cpu_seconds(parent: int) -> float:
    """What the server process has used, from the kernel's own account."""
    ticks = os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and b"gpubloom.metrics_server" in command:
            return (int(fields[11]) + int(fields[12])) / ticks
    return 0.0


class Steps:
    """When each step was reported."""

    def __init__(self, run_dir: Path) -> None:
        self._reader = Reader(run_dir, kinds=["metric"])
        self._times: list[float] = []

    def rate(self, begin: float, end: float) -> float:
        while events := self._reader.read_new():
            self._times += [e.t for e in events if e.kind == "metric" and "train/loss" in e.fields["values"]]
        within = [t for t in self._times if begin <= t < end]
        return (len(within) - 1) / (within[-1] - within[0]) if len(within) > 1 else 0.0


@dataclass
class Figures:
    """What was measured so far."""

    ratios: list[float] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)
    server_shares: list[float] = field(default_factory=list)
    viewer_shares: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    def show(self) -> None:
        ratios, ages = self.ratios, sorted(self.ages)
        error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
        print(f"steps a second, watched over alone: median {statistics.median(ratios):.4f}, ", end="")
        print(f"mean {statistics.fmean(ratios):.4f} ± {error:.4f}")
        print(f"the server used {statistics.median(self.server_shares):.2%} of a core, ", end="")
        print(f"the {VIEWERS} viewers {statistics.median(self.viewer_shares):.2%}; ", end="")
        print(f"a message has {statistics.median(self.sizes):,.0f} bytes")
        print(f"a viewer hears of a step after {statistics.median(ages):.2f} s (median), ", end="")
        print(f"{ages[int(len(ages) * 0.99)]:.2f} s (99 of 100)")


@dataclass(frozen=True)
class Training:
    """The run that is watched and not watched."""

    process: "subprocess.Popen[str]"
    address: str
    steps: Steps
    figures: Figures

    def rate_alone(self, seconds: float) -> float:
        begin = time.time()
        time.sleep(seconds)
        return self.steps.rate(begin, time.time())

    def rate_watched(self, seconds: float) -> float:
        ended: EventType = Event()
        results: SimpleQueue[Any] = SimpleQueue()
        drinking = Process(target=_viewers, args=(self.address, VIEWERS, ended, results))
        drinking.start()
        # All of them are there, and have the run as it was when they came.
        time.sleep(2)
        begin, used = time.time(), _server_cpu_seconds(self.process.pid)
        time.sleep(seconds)
        end, used = time.time(), _server_cpu_seconds(self.process.pid) - used
        ended.set()
        ages, total, messages, own = results.get()
        drinking.join()
        found = self.figures
        found.ages += ages
        found.server_shares.append(used / (end - begin))
        found.viewer_shares.append(own / (end - begin))
        found.sizes.append(total / max(1, messages))
        return self.steps.rate(begin, end)


def measure(training: Training, turns: int, seconds: float) -> None:
    for number in range(turns):
        # Which comes first changes, so that a machine that slows down favours neither.
        if number % 2:
            watched = training.rate_watched(seconds)
            time.sleep(1)
            alone = training.rate_alone(seconds)
        else:
            alone = training.rate_alone(seconds)
            watched = training.rate_watched(seconds)
        time.sleep(1)
        training.figures.ratios.append(watched / alone)
        print(f"{alone:8.2f} steps/s alone, {watched:8.2f} watched: {watched / alone:.4f}", flush=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--turns", type=int, default=8, help="pairs of turns, alone and watched")
    asked.add_argument("--seconds", type=float, default=12.0, help="of a turn")
    asked.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the training")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process, address = _start(Path(folder), options.threads)
        run_dir = Path(folder, "run")
        training = Training(process, address, Steps(run_dir), Figures())
        try:
            while training.steps.rate(0, time.time()) == 0.0 and process.poll() is None:
                time.sleep(0.5)
            training.rate_alone(options.seconds)
            measure(training, options.turns, options.seconds)
        finally:
            ControlFile(run_dir).want("cancel")
            process.communicate(timeout=300)
    training.figures.show()


if __name__ == "__main__":
    main()
