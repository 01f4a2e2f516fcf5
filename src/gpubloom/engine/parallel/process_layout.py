"""ProcessLayout: how many processes train a run on this machine, with how many threads each, and why.

On a CPU the layout is measured: every candidate takes a few real steps with random tokens, with the model of
the config, its rows, the same executor and the same gradient sums as in the run. The result is kept in the
user's cache.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from gpubloom.engine.calibrate import cache_folder
from gpubloom.engine.hardware import uses_gpu
from gpubloom.engine.parallel.launcher import local_members
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig, detect_hardware, processes_on, shape_of
from gpubloom.traincard.atomic_write import replace_file

# Another way of measuring makes old figures worthless.
_VERSION = 1
_LONGEST_SECONDS = 120.0
# Beyond this, processes gain nothing that their memory and their sums of gradients would not cost.
_MOST_PROCESSES = 16
# Another process more must be worth its memory.
_WORTH = 1.05


@dataclass(frozen=True)
class TrialResult:
    """`rates`: tokens a second by "processes x threads"."""

    processes: int
    threads: int
    rates: dict[str, float]
    is_cached: bool = False

    @property
    def reason(self) -> str:
        figures = ", ".join(f"{name}: {rate:,.0f} tokens/s" for name, rate in self.rates.items())
        when = "measured earlier on this machine" if self.is_cached else "measured"
        return (
            f"{self.processes} processes x {self.threads} threads, {when} "
            f"({figures or 'the only possible layout'})"
        )


def candidates(threads: int, rows: int) -> list[tuple[int, int]]:
    """1 x T, 2 x T/2, …: as far as threads and rows can be divided."""
    return [
        (processes, threads // processes)
        for processes in range(1, min(threads, _MOST_PROCESSES) + 1)
        if threads % processes == 0 and rows % processes == 0
    ]


def fastest(config: TrainConfig, *, threads: int) -> TrialResult:
    """The fastest candidate for the config's model and rows; measured when nothing is remembered."""
    choices = candidates(threads, config.batch_size)
    if len(choices) == 1:
        return TrialResult(1, threads, {})
    kept = _cache_file(config, threads)
    if kept is not None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads(kept.read_text(encoding="utf-8"))
            return TrialResult(stored["processes"], stored["threads"], stored["rates"], is_cached=True)
    found = choose(measure(config, choices), choices)
    if kept is not None:
        # A cache that cannot be written costs a measurement at the next start, nothing else.
        with contextlib.suppress(OSError):
            replace_file(kept, json.dumps(asdict(found)) + "\n")
    return found


def choose(rates: dict[str, float], choices: Sequence[tuple[int, int]]) -> TrialResult:
    """The fastest, the one with fewer processes where it hardly matters."""
    best = choices[0]
    for candidate in choices[1:]:
        if rates.get(_name(*candidate), 0.0) > _WORTH * rates.get(_name(*best), 0.0):
            best = candidate
    return TrialResult(*best, rates)


def measure(config: TrainConfig, choices: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Tokens a second of each; a candidate that fails is left out, and the log says so."""
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bloom-trial-") as folder:
        file = Path(folder, "config.json")
        file.write_text(config.to_json(), encoding="utf-8")
        for processes, threads in choices:
            try:
                rates[_name(processes, threads)] = _try(file, processes, threads)
            except ValueError as problem:
                sys.stderr.write(f"{_name(processes, threads)} could not be measured: {problem}\n")
    return rates


def _try(file: Path, processes: int, threads: int) -> float:
    script = ["-m", "gpubloom.engine.parallel.trial_steps", str(file)]
    started = [
        subprocess.Popen(
            [sys.executable, *member.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
            env={**os.environ, **member.environment},
        )
        for number, member in enumerate(local_members(script, processes, threads, restarts=0))
    ]
    try:
        words, _ = started[0].communicate(timeout=_LONGEST_SECONDS)
        if started[0].returncode != 0:
            raise InputError(
                "measuring_failed", f"the process ended with exit status {started[0].returncode}"
            )
        return float(json.loads(words)["tokens_per_second"])
    except subprocess.TimeoutExpired:
        raise InputError(
            "measuring_failed", f"the measurement took longer than {_LONGEST_SECONDS:.0f} s"
        ) from None
    finally:
        for process in started:
            process.kill()
            process.wait()


def _cache_file(config: TrainConfig, threads: int) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    hardware = detect_hardware()
    parts = {
        "version": _VERSION,
        "machine": [hardware.name, hardware.cpu_cores, threads, torch.__version__],
        "shape": repr(shape_of(config)),
        "rows": [config.batch_size, config.accumulation, config.context_length],
        "how": [config.method, config.precision, config.compile, config.lora.model_dump()],
    }
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
    return folder / f"processes-{key}.json"


def _name(processes: int, threads: int) -> str:
    return f"{processes} x {threads}"


@dataclass(frozen=True)
class ProcessLayout:
    """`threads`: of each process; None leaves them as they are. `reason`: for the log, if it was a choice."""

    processes: int = 1
    threads: int | None = None
    reason: str | None = None


def choose_layout(config: TrainConfig) -> ProcessLayout:
    """What the config asks for, all GPUs, or what was measured to be fastest on this CPU."""
    if uses_gpu(config.device):
        there = detect_hardware()
        # Counted, not asked for their names: this process may only launch others and needs no GPU memory.
        there = there.model_copy(update={"gpus": there.gpus[: torch.cuda.device_count()]})
        processes = processes_on(there, config)
        chosen = config.processes is None or config.processes == "auto"
        if processes == 1 or not chosen:
            return ProcessLayout(processes)
        return ProcessLayout(processes, None, f"{processes} of {len(there.gpus)} GPUs, one process per GPU")
    if config.processes == "auto":
        found = fastest(config, threads=torch.get_num_threads())
        return ProcessLayout(found.processes, found.threads, found.reason)
    processes = config.said_processes
    return ProcessLayout(processes, max(1, torch.get_num_threads() // processes) if processes > 1 else None)


def shared_out(config: TrainConfig, processes: int) -> TrainConfig:
    """The config as one of so many processes has it.

    ValueError where the config asks for another number of them.
    """
    if isinstance(config.processes, int) and config.processes != processes:
        raise InputError(
            "world_size_mismatch",
            f"The config asks for {config.processes} process{'' if config.processes == 1 else 'es'}, but "
            f"WORLD_SIZE is {processes}: start {config.processes}, or set processes to {processes} or to "
            "null.",
        )
    if processes > 1 and config.backend != "engine":
        raise InputError(
            "world_size_mismatch",
            f"WORLD_SIZE is {processes}, but backend {config.backend} trains in one process only.",
        )
    batch = config.batch_size
    if config.processes == "auto" and not uses_gpu(config.device):
        if batch % processes:
            raise InputError(
                "batch_not_divisible",
                f"processes is auto, so {processes} processes share the {batch} rows of batch_size, which "
                f"is not a multiple of {processes}: choose another batch_size, or set processes.",
            )
        batch //= processes
    return config.model_copy(update={"processes": processes, "batch_size": batch})


def limit_threads(processes_here: int) -> None:
    """No more threads than this process's share of the cores: they would only wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, min(torch.get_num_threads(), cores // processes_here)))
