"""The Reporter beside TensorBoard, trackio, W&B offline and MLflow, all in one run.

    PYTHONPATH=src PEERS/bin/python bench/peers.py [--steps 1000000] [--limit-seconds 60] [--json FILE]

PEERS is an environment of its own that has the others (pip install tensorboard trackio wandb mlflow-skinny);
what is not installed is named and left out. Each tracker writes and opens its run in processes of their own:

    call   CPU time of the training thread for one call with 20 metrics
    all    CPU time of all threads by step, and of child processes where the tracker has some
    bytes  on disk by point that can be read; what a tracker dropped because it came too fast is no point
    open   CPU time to read a finished run of that many steps × 20 for its charts, by the tracker's own reader
    lost   steps that were reported and cannot be read after kill -9, of about 1,000 a second (worst of three)

A tracker that cannot write all steps within the limit is opened with fewer, and its time is scaled: marked ~.
"""

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reporter import TRACKERS

METRICS = tuple(f"series_{number}" for number in range(20))
NAMES = ("gpubloom Reporter", "TensorBoard", "trackio", "W&B offline", "MLflow file")
_KILLS = 3
_KILL_AFTER_SECONDS = 4.0
_STEPS_BETWEEN_LOOKS = 500
_STEPS_PER_SECOND = 10_000
_CLOSE_SECONDS = 240.0


Steps = tuple[int, int]
"""How far a run goes, in steps, and how many of its steps are there."""


def read_reporter(folder: Path) -> Steps:
    """All that a card shows."""
    from gpubloom.traincard import Reading, snapshot

    reading = Reading(folder)
    reading.update()
    snapshot(reading)
    steps = 1 + (reading.state.step or 0)
    return steps, steps - reading.state.dropped["metric"]


def read_tensorboard(folder: Path) -> Steps:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    # Without its usual limit of 10,000 points by series.
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    points = found.Scalars(METRICS[0])
    return 1 + max(int(point.step) for point in points), len(points)


def read_trackio(folder: Path) -> Steps:
    os.environ["TRACKIO_DIR"] = str(folder)
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    run = storage.get_runs("bench")[0]
    name = run if isinstance(run, str) else run["name"]
    steps = {int(row["step"]) for row in storage.get_logs("bench", name)}
    return 1 + max(steps), len(steps)


def read_wandb(folder: Path) -> Steps:
    """The package has no reader of its own files, its program uploads them. Framed as logs of LevelDB."""
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    steps = set()
    for frame in _frames(next(folder.rglob("*.wandb")).read_bytes()):
        record = records.Record()
        record.ParseFromString(frame)
        if record.HasField("history"):
            values = {
                item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item
            }
            steps.add(int(values["_step"]))
    return 1 + max(steps, default=-1), len(steps)


def _frames(content: bytes) -> Iterator[bytes]:
    """Whole records; one that was cut off ends them."""
    at, header, block, pieces = 7, 7, 1 << 15, b""
    while at + header <= len(content):
        if block - at % block < header:
            at += block - at % block
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        pieces += content[at + header : at + header + size]
        at += header + size
        if at > len(content):
            return
        # 1: a whole record, 4: its last part.
        if kind in {1, 4}:
            yield pieces
            pieces = b""


def read_mlflow(folder: Path) -> Steps:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = importlib.import_module("mlflow").MlflowClient(folder.as_uri())
    experiment = client.get_experiment_by_name("bench")
    (run,) = client.search_runs([experiment.experiment_id])
    histories = [client.get_metric_history(run.info.run_id, name) for name in METRICS]
    return 1 + max(int(point.step) for point in histories[0]), len(histories[0])


READERS: dict[str, Callable[[Path], Steps]] = {
    "gpubloom Reporter": read_reporter,
    "TensorBoard": read_tensorboard,
    "trackio": read_trackio,
    "W&B offline": read_wandb,
    "MLflow file": read_mlflow,
}

MODULES = {
    "gpubloom Reporter": "gpubloom.traincard",
    "TensorBoard": "tensorboard.backend.event_processing.event_accumulator",
    "trackio": "trackio.sqlite_storage",
    "W&B offline": "wandb.proto.wandb_internal_pb2",
    "MLflow file": "mlflow",
}


def _values(step: int) -> dict[str, float]:
    return {name: (step * 31 + number * 17) % 1000 / 997 for number, name in enumerate(METRICS)}


def write(name: str, folder: Path, steps: int, limit_seconds: float) -> None:
    """In a process of its own: log as fast as it takes it; prints what it cost."""
    with TRACKERS[name](folder) as log:
        log(_values(0), 0)
        calls, written = 0.0, 1
        everything, deadline = time.process_time(), time.monotonic() + limit_seconds
        while written < steps and time.monotonic() < deadline:
            for step in range(written, min(steps, written + _STEPS_BETWEEN_LOOKS)):
                values = _values(step)
                began = time.thread_time()
                log(values, step)
                calls += time.thread_time() - began
                written = step + 1
            # A writer thread gets its turn, as in a training.
            time.sleep(_STEPS_BETWEEN_LOOKS / _STEPS_PER_SECOND)
        del log
    children = os.times()
    spent = time.process_time() - everything + children.children_user + children.children_system
    print(json.dumps({"steps": written, "call": calls / written, "all": spent / written}), flush=True)
    # Some start processes or threads that outlive the run.
    os._exit(0)


def write_until_killed(name: str, folder: Path) -> None:
    """About 1,000 steps a second; the last line on standard output is the last step that was reported."""
    with TRACKERS[name](folder) as log:
        began, step = time.monotonic(), 0
        while True:
            log(_values(step), step)
            sys.stdout.write(f"{step}\n")
            sys.stdout.flush()
            step += 1
            time.sleep(max(0.0, began + step / 1000 - time.monotonic()))


def _run(*arguments: str, seconds: float) -> str:
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1][:100])
    return done.stdout.strip().splitlines()[-1]


def _lost(name: str) -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        child = subprocess.Popen(
            [sys.executable, __file__, "--kill", name, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert child.stdout is not None
        first = ""
        while not first.strip().isdecimal():
            first = child.stdout.readline()
            if not first:
                raise RuntimeError("it ended before it was killed")
        deadline, last = time.monotonic() + _KILL_AFTER_SECONDS, 0
        while time.monotonic() < deadline:
            last = int(child.stdout.readline().strip() or last)
        # All of its processes: a machine that loses power asks none of them.
        os.killpg(child.pid, signal.SIGKILL)
        rest = [line for line in child.stdout.read().split() if line.isdecimal()]
        last = int(rest[-1]) if rest else last
        child.wait()
        child.stdout.close()
        try:
            kept = json.loads(_run("--read", name, folder, seconds=_CLOSE_SECONDS))["steps"]
        except RuntimeError:
            kept = 0
        return last + 1 - int(kept)


def measure(name: str, steps: int, limit_seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        arguments = ("--write", name, folder, "--steps", str(steps), "--limit-seconds", str(limit_seconds))
        written = json.loads(_run(*arguments, seconds=limit_seconds + _CLOSE_SECONDS))
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        opened = json.loads(_run("--read", name, folder, seconds=600))
    return {
        "steps": written["steps"],
        "call_us": written["call"] * 1e6,
        "all_us": written["all"] * 1e6,
        "bytes_per_point": size / (opened["kept"] * len(METRICS)),
        "open_cpu_seconds": opened["cpu"] * steps / written["steps"],
        "readable_steps": opened["kept"],
        "lost_steps": max(_lost(name) for _ in range(_KILLS)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--limit-seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    for hidden in ("--write", "--read", "--kill"):
        parser.add_argument(hidden, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.write[0], Path(given.write[1]), given.steps, given.limit_seconds)
        return
    if given.kill:
        write_until_killed(given.kill[0], Path(given.kill[1]))
        return
    if given.read:
        # Loading a library takes as long for a short run as for a long one.
        importlib.import_module(MODULES[given.read[0]])
        began = time.process_time()
        steps, kept = READERS[given.read[0]](Path(given.read[1]))
        print(json.dumps({"steps": steps, "kept": kept, "cpu": time.process_time() - began}))
        return
    columns = f"{'call µs':>9}{'all µs':>9}{'bytes':>8}{'open s':>10}{'lost':>7}{'steps':>11}{'readable':>11}"
    print(f"{'tracker':<20}{columns}")
    results: dict[str, dict[str, float]] = {}
    for name in NAMES:
        try:
            row = results[name] = measure(name, given.steps, given.limit_seconds)
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            print(f"{name:<20}left out: {str(problem)[:90]}", flush=True)
            continue
        opened = f"{'~' if row['steps'] < given.steps else ''}{row['open_cpu_seconds']:.2f}"
        print(
            f"{name:<20}{row['call_us']:>9.1f}{row['all_us']:>9.1f}{row['bytes_per_point']:>8.1f}"
            f"{opened:>10}{row['lost_steps']:>7.0f}{row['steps']:>11,.0f}{row['readable_steps']:>11,.0f}",
            flush=True,
        )
    if given.json:
        versions = {}
        for package in ("tensorboard", "trackio", "wandb", "mlflow"):
            with contextlib.suppress(ImportError):
                versions[package] = getattr(importlib.import_module(package), "__version__", "")
        load = os.getloadavg()[1]
        about = {"steps": given.steps, "metrics": len(METRICS), "load": load, "versions": versions}
        given.json.write_text(json.dumps({**about, "trackers": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
