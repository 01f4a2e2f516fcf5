"""What a tracker costs: the training thread, the disk, memory, and whoever opens the run afterwards.

    python bench/reporter.py [--calls 20000] [--steps 100000]

Every tracker that can be imported takes its turn in this one process, in a folder that is thrown away. To see
more of them, run it with the Python of an environment that has them (and PYTHONPATH=src; the Reporter itself
needs nothing). What is promised of the Reporter is checked at the end; the exit status says whether it holds.
"""

import argparse
import contextlib
import gc
import importlib
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Log = Callable[[Mapping[str, float], int], None]

# Spread out like a real loop, so that writer threads get their turns; the pauses are not counted.
_CALLS_PER_PAUSE = 50
_PAUSE_SECONDS = 0.002
_STEP_SECONDS = 0.010


@contextmanager
def reporter(folder: Path) -> Iterator[Log]:
    from gpubloom.traincard import Reporter

    with Reporter(folder, telemetry_seconds=0) as run:

        def log(values: Mapping[str, float], step: int) -> None:
            if len(values) == 1:
                run.metric("loss", values["loss"], step)
            else:
                run.metrics(values, step)

        yield log


@contextmanager
def tensorboard(folder: Path) -> Iterator[Log]:
    """The event writer of TensorBoard itself, which torch's SummaryWriter wraps."""
    files = importlib.import_module("tensorboard.summary.writer.event_file_writer")
    events = importlib.import_module("tensorboard.compat.proto.event_pb2")
    summaries = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    writer = files.EventFileWriter(str(folder))

    def log(values: Mapping[str, float], step: int) -> None:
        found = [summaries.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        writer.add_event(
            events.Event(wall_time=time.time(), step=step, summary=summaries.Summary(value=found))
        )

    yield log
    writer.close()


@contextmanager
def tensorboard_x(folder: Path) -> Iterator[Log]:
    writer = importlib.import_module("tensorboardX").SummaryWriter(str(folder))

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    yield log
    writer.close()


@contextmanager
def wandb_offline(folder: Path) -> Iterator[Log]:
    wandb = importlib.import_module("wandb")
    run = wandb.init(mode="offline", dir=str(folder), settings=wandb.Settings(silent=True))
    yield lambda values, step: run.log(dict(values), step=step)
    run.finish()


@contextmanager
def mlflow_file(folder: Path) -> Iterator[Log]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    mlflow = importlib.import_module("mlflow")
    mlflow.set_tracking_uri(folder.as_uri())
    mlflow.set_experiment("bench")
    with mlflow.start_run():
        yield lambda values, step: mlflow.log_metrics(dict(values), step=step)


@contextmanager
def trackio(folder: Path) -> Iterator[Log]:
    os.environ["TRACKIO_DIR"] = str(folder)
    module = importlib.import_module("trackio")
    module.init(project="bench")
    yield lambda values, step: module.log(dict(values), step=step)
    module.finish()


@contextmanager
def aim(folder: Path) -> Iterator[Log]:
    run = importlib.import_module("aim").Run(repo=str(folder), system_tracking_interval=None)
    yield lambda values, step: run.track(dict(values), step=step)
    run.close()


TRACKERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Log]]] = {
    "gpubloom Reporter": reporter,
    "TensorBoard": tensorboard,
    "tensorboardX": tensorboard_x,
    "W&B offline": wandb_offline,
    "MLflow file": mlflow_file,
    "trackio": trackio,
    "Aim": aim,
}


def measure(log: Log, metrics: int, calls: int, limit_seconds: float) -> list[float]:
    """Microseconds of each call; stops early when a tracker is too slow for the time given."""
    names = ["loss", *(f"series_{number}" for number in range(1, metrics))]
    times = []
    deadline = time.monotonic() + limit_seconds
    for step in range(calls):
        values = dict.fromkeys(names, step * 0.5)
        begin = time.perf_counter_ns()
        log(values, step)
        times.append((time.perf_counter_ns() - begin) / 1000)
        if step % _CALLS_PER_PAUSE == 0:
            time.sleep(_PAUSE_SECONDS)
            if time.monotonic() > deadline:
                break
    return times


def measure_gpu_tensor(calls: int) -> list[float]:
    """Microseconds of each call with a tensor that a GPU is still computing."""
    torch = importlib.import_module("torch")
    from gpubloom.traincard import Reporter

    times = []
    weights = torch.randn(2048, 2048, device="cuda")
    with tempfile.TemporaryDirectory() as folder, Reporter(folder, telemetry_seconds=0) as run:
        for step in range(calls):
            loss = (weights @ weights).sum()
            begin = time.perf_counter_ns()
            run.metric("loss", loss, step)
            times.append((time.perf_counter_ns() - begin) / 1000)
        torch.cuda.synchronize()
    return times


def train_at_ten_milliseconds(folder: str, steps: int) -> None:
    """In a process of its own: a step every 10 ms that reports 10 metrics; prints what reporting took.

    Processor time of all threads but the training one, because other programs come and go.
    """
    from gpubloom.traincard import Reporter

    with Reporter(folder) as run:

        def train(first: int, last: int) -> None:
            begin = time.monotonic()
            for step in range(first, last):
                run.metrics({f"series_{number}": step * 0.1 for number in range(10)}, step)
                time.sleep(max(0.0, begin + (step - first + 1) * _STEP_SECONDS - time.monotonic()))
            run.flush()

        # Until everything is imported, opened and looked at for the first time.
        train(0, 300)
        begin, everything, own = time.monotonic(), time.process_time(), time.thread_time()
        train(300, 300 + steps)
        others = (time.process_time() - everything) - (time.thread_time() - own)
        print(json.dumps({"others": others / (time.monotonic() - begin)}))


def write_long_run(folder: str, steps: int) -> None:
    """In a process of its own: 10 metrics a step, as fast as they can be written; prints what it cost."""
    from gpubloom.traincard import Reporter

    before = _memory()
    random.seed(0)
    begin = time.perf_counter()
    with Reporter(folder, telemetry_seconds=0) as run:
        for step in range(steps):
            values = {f"series_{number}": random.random() for number in range(1, 10)}
            run.metrics({"loss": 3 * random.random(), **values}, step)
            if step % 2000 == 0:
                run.flush()
    print(json.dumps({"memory": _memory() - before, "seconds": time.perf_counter() - begin}))


def open_long_run(folder: str) -> None:
    """In a process of its own: everything a card shows; prints what it cost."""
    from gpubloom.traincard import Reading, snapshot

    before = _memory()
    begin = time.perf_counter()
    reading = Reading(folder)
    reading.update()
    shown = snapshot(reading)
    seconds = time.perf_counter() - begin
    points = sum(len(line["x"]) for metric in shown["metrics"] for line in metric["lines"])
    size = len(json.dumps(shown))
    begin = time.perf_counter()
    snapshot(reading)
    found = {"memory": _memory() - before, "seconds": seconds, "again": time.perf_counter() - begin}
    print(json.dumps({**found, "points": points, "bytes": size, "dropped": shown["status"]["dropped"]}))


def _memory() -> float:
    """The most memory this process has had, in MB. Not from getrusage, which remembers the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _in_own_process(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True, env=os.environ
    )
    return dict(json.loads(done.stdout))


class Promises:
    """What was promised, what was measured, and whether it holds."""

    def __init__(self) -> None:
        self.broken = 0

    def check(self, what: str, measured: float, most: float, unit: str) -> None:
        holds = measured <= most
        self.broken += not holds
        verdict = "holds" if holds else "IS BROKEN"
        print(f"  {what:<58}{measured:>9.3g} {unit:<4} of at most {most:g}: {verdict}")


def measure_long_run(steps: int, promises: Promises) -> None:
    """Size, memory and opening time of a finished run."""
    with tempfile.TemporaryDirectory() as folder:
        written = _in_own_process("--write", folder, "--steps", str(steps))
        files = list((Path(folder) / "traincard").rglob("*"))
        raw = sum(file.stat().st_size for file in files if file.suffix == ".jsonl") / 1e6
        condensed = sum(file.stat().st_size for file in files if file.name.endswith(".buckets.json")) / 1e6
        opened = _in_own_process("--open", folder)
    print(f"\n{steps:,} steps of 10 metrics in {written['seconds']:.1f} s; condensed to {condensed:.1f} MB;")
    print(
        f"a snapshot has {opened['points']:,} points in {opened['bytes'] / 1e6:.1f} MB; the next one of the"
    )
    print(f"same reader took {opened['again'] * 1000:.0f} ms. Events dropped: {opened['dropped'] or 'none'}")
    promises.check("raw events on disk", raw, 50.0 * steps / 100_000, "MB")
    promises.check("opening the finished run: all that a card shows", opened["seconds"], 1.0, "s")
    promises.check("memory that the writer added to its process", written["memory"], 100, "MB")
    promises.check("memory that the reader added to its process", opened["memory"], 100, "MB")
    promises.check("events dropped", sum(opened["dropped"].values()), 0, "")  # type: ignore[attr-defined]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--calls", type=int, default=20_000)
    arguments.add_argument("--steps", type=int, default=100_000, help="of the long run")
    arguments.add_argument("--limit-seconds", type=float, default=20.0, help="per tracker and row")
    arguments.add_argument("--train", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments.add_argument("--write", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments.add_argument("--open", metavar="FOLDER", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.train:
        train_at_ten_milliseconds(given.train, given.steps)
        return
    if given.write:
        write_long_run(given.write, given.steps)
        return
    if given.open:
        open_long_run(given.open)
        return
    logging.disable(logging.WARNING)
    medians = compare(given.calls, given.limit_seconds)
    promises = Promises()
    print("\nPromises of the Reporter")
    promises.check("a call with one metric, median", medians["gpubloom Reporter", 1], 2.0, "µs")
    promises.check("a call with ten metrics, median", medians["gpubloom Reporter", 10], 2.0, "µs")
    share = 100 * medians["gpubloom Reporter", 10] / (_STEP_SECONDS * 1e6)
    promises.check("ten metrics of a 10 ms step: the training thread's share", share, 1.0, "%")
    with tempfile.TemporaryDirectory() as folder:
        share += 100 * _in_own_process("--train", folder, "--steps", "1500")["others"]
    promises.check("the same with all that the Reporter's threads do", share, 1.0, "%")
    measure_long_run(given.steps, promises)
    sys.exit(min(1, promises.broken))


def compare(calls: int, limit_seconds: float) -> dict[tuple[str, int], float]:
    """The table of all trackers; medians in microseconds by tracker and number of metrics."""
    medians: dict[tuple[str, int], float] = {}
    print(f"{'tracker':<22}{'metrics':>8}{'median µs':>12}{'p99 µs':>12}{'calls':>10}{'× Reporter':>12}")
    for name, tracker in TRACKERS.items():
        for metrics in (1, 10):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                try:
                    with tracker(Path(folder)) as log:
                        times = sorted(measure(log, metrics, calls, limit_seconds))
                    # Some close their files when they are collected; the folder must still be there then.
                    del log
                    gc.collect()
                except ImportError as missing:
                    print(f"{name:<22}{'not installed: ' + str(missing.name):>40}")
                    break
                except Exception as problem:  # noqa: BLE001 - somebody else's tracker; the others go on
                    print(f"{name:<22}{'failed: ' + str(problem).splitlines()[0][:60]:>40}")
                    break
            medians[name, metrics] = statistics.median(times)
            _print_row(name, metrics, times, medians[name, metrics] / medians["gpubloom Reporter", metrics])
    try:
        has_gpu = importlib.import_module("torch").cuda.is_available()
    except ImportError:
        has_gpu = False
    if has_gpu:
        _print_row("  tensor on the GPU", 1, sorted(measure_gpu_tensor(calls)), None)
    else:
        print(f"{'  tensor on the GPU':<22}{'no CUDA device here':>40}")
    return medians


def _print_row(name: str, metrics: int, times: list[float], ratio: float | None) -> None:
    p99 = times[int(len(times) * 0.99)]
    row = f"{name:<22}{metrics:>8}{statistics.median(times):>12.2f}{p99:>12.2f}{len(times):>10}"
    print(row if ratio is None else f"{row}{ratio:>12.1f}", flush=True)


if __name__ == "__main__":
    main()
