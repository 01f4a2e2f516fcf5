"""A process that trains in a run directory: options, lock, Reporter, signals, and errors in one sentence.

What training is, it does not know; train.py and `python -m gpubloom.engine` fill in that part.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from pydantic import ValidationError

from gpubloom.engine.checkpoint import checkpoint_folder
from gpubloom.engine.hardware import uses_gpu
from gpubloom.engine.parallel import Companions, Group, join
from gpubloom.plan import TrainConfig, explain
from gpubloom.traincard import Reporter, RunFiles, RunInUseError, RunLock


@dataclass
class Signals:
    """Ctrl-C and SIGTERM ask the trainer to save and stop; a second Ctrl-C ends the process at once."""

    status: str | None = None
    patient: bool = False

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._terminate)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.status is not None or not self.patient:
            raise KeyboardInterrupt
        self.status = "paused"

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if not self.patient:
            raise SystemExit(128 + number)
        self.status = "preempted"


@dataclass(frozen=True)
class Session:
    """What a training script works with."""

    run_dir: Path
    config: TrainConfig
    reporter: Reporter
    resuming: bool
    group: Group
    _signals: Signals

    def stop(self) -> str | None:
        """Asked by the trainer between steps. From the first time on, signals wait for the step to end."""
        self._signals.patient = True
        return self._signals.status

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """What the first process of a run leaves on disk is there when the others come to it."""
        if not self.group.leads:
            self.group.agree(None)
        yield
        if self.group.leads:
            self.group.agree(None)


@contextmanager
def training_session(home: Path, arguments: Sequence[str] | None = None) -> Iterator[Session]:
    """Opens the run in `home`, or a repetition of it elsewhere; ends the process with 2 on wrong input."""
    options = _parse(arguments)
    signals = Signals()
    try:
        config = TrainConfig.read(home / "config.json")
        run_dir = _place(home, options.into, config)
        lock = None
        if leads := os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK") == "0":
            _must_be_allowed(run_dir, config, resuming=options.resume)
            lock = RunLock.acquire(run_dir)
        # Before the Reporter, which records a SIGTERM and then calls the handler it found.
        signals.install()
        with ExitStack() as stack:
            reporter = stack.enter_context(Reporter(run_dir, lock=lock))
            reporter.phase("load")
            environment = dict(os.environ)
            if leads and config.processes > 1 and "WORLD_SIZE" not in environment:
                script = [str(home / "train.py"), *(sys.argv[1:] if arguments is None else arguments)]
                attempt = {"BLOOM_RUN_DIR": str(run_dir), "BLOOM_ATTEMPT": str(reporter.attempt or 1)}
                others = Companions(config.processes, script, {**environment, **attempt})
                environment.update(stack.enter_context(others).environment)
            group = join(environment, on_gpu=uses_gpu(config.device))
            stack.callback(group.leave)
            if group.size > 1 and not uses_gpu(config.device):
                torch.set_num_threads(max(1, torch.get_num_threads() // group.local_size))
            yield Session(run_dir, config, reporter, options.resume, group, signals)
    except ValidationError as problem:
        _refuse(explain(problem, TrainConfig))
    except (ValueError, RunInUseError) as problem:
        # Once steps run, a ValueError is a bug and not an answer to wrong input.
        if signals.patient:
            raise
        _refuse(str(problem))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains the run that lies beside this script.")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="repeat the run in another folder")
    return parser.parse_args(arguments)


def _place(home: Path, into: Path | None, config: TrainConfig) -> Path:
    if into is None:
        return home.resolve()
    into.mkdir(parents=True, exist_ok=True)
    if not (into / "config.json").exists():
        (into / "config.json").write_text(config.to_json(), encoding="utf-8")
    elif TrainConfig.read(into / "config.json") != config:
        raise ValueError(f"{into} holds another run: choose an empty folder.")
    return into.resolve()


def _must_be_allowed(run_dir: Path, config: TrainConfig, *, resuming: bool) -> None:
    if (run_dir / "model").exists():
        raise ValueError(f"{run_dir} holds a completed run; nothing is left to train.")
    if resuming:
        return
    checkpoints = checkpoint_folder(config, run_dir)
    for taken in (RunFiles(run_dir).attempts, checkpoints):
        if taken.exists():
            raise ValueError(f"{taken} exists: continue that run with --resume, or choose another folder.")


def _refuse(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.exit(2)
