"""What a call to a tracker costs the training thread.

    python bench/reporter.py [--calls 20000]

Every tracker that can be imported takes its turn in this one process, in a folder that is thrown away.
"""

import argparse
import contextlib
import importlib
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Log = Callable[[Mapping[str, float], int], None]

# Spread out like a real loop, so that writer threads get their turns; the pauses are not counted.
_CALLS_PER_PAUSE = 50
_PAUSE_SECONDS = 0.002


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
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder))

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

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
    mlflow = importlib.import_module("mlflow")
    mlflow.set_tracking_uri(folder.as_uri())
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
    "TensorBoard (torch)": tensorboard,
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


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--calls", type=int, default=20_000)
    arguments.add_argument("--limit-seconds", type=float, default=20.0, help="per tracker and row")
    given = arguments.parse_args()
    logging.disable(logging.WARNING)
    print(f"{'tracker':<22}{'metrics':>8}{'median µs':>12}{'p99 µs':>12}{'calls':>10}")
    for name, tracker in TRACKERS.items():
        for metrics in (1, 10):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    with tracker(Path(folder)) as log:
                        times = sorted(measure(log, metrics, given.calls, given.limit_seconds))
                except ImportError as missing:
                    print(f"{name:<22}{'not installed: ' + str(missing.name):>40}")
                    break
            _print_row(name, metrics, times)
    try:
        has_gpu = importlib.import_module("torch").cuda.is_available()
    except ImportError:
        has_gpu = False
    if has_gpu:
        _print_row("  tensor on the GPU", 1, sorted(measure_gpu_tensor(given.calls)))
    else:
        print(f"{'  tensor on the GPU':<22}{'no CUDA device here':>40}")


def _print_row(name: str, metrics: int, times: list[float]) -> None:
    p99 = times[int(len(times) * 0.99)]
    print(f"{name:<22}{metrics:>8}{statistics.median(times):>12.2f}{p99:>12.2f}{len(times):>10}")


if __name__ == "__main__":
    main()
