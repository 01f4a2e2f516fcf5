"""A process that trains in a run directory: options, lock, Reporter, signals, and errors in one sentence.

What training is, it does not know; train.py and `python -m gpubloom.engine` fill in that part.
"""

import argparse
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, Self

from pydantic import ValidationError

from gpubloom.engine.checkpoint import checkpoint_folder, list_checkpoints
from gpubloom.engine.hardware import uses_gpu
from gpubloom.engine.parallel import Group, GroupLost, PortInUse, RankEnv, join
from gpubloom.engine.parallel.launcher import Launcher, Member, local_members, ray_members
from gpubloom.engine.parallel.process_layout import ProcessLayout, choose_layout, limit_threads, shared_out
from gpubloom.engine.parallel.rank_env import LOST, end_with, write_exit_message
from gpubloom.errors import InputError, code_of, error_line, not_text, shell_word
from gpubloom.plan import InvalidConfig, TrainConfig
from gpubloom.traincard import Reporter, RunFiles, RunInUseError, RunLock
from gpubloom.traincard.lines import PrintingReporter
from gpubloom.traincard.reader import load_latest

# A node that was cut off from its cluster notices within a minute, and takes its processes with it.
_LEFTOVER_SECONDS = 120.0


@dataclass
class Signals:
    """Ctrl-C and SIGTERM ask the trainer to save and stop; a second Ctrl-C ends the process at once."""

    status: str | None = None
    deferred: bool = False

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._terminate)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.status is not None or not self.deferred:
            raise KeyboardInterrupt
        self.status = "paused"

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if not self.deferred:
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
        self._signals.deferred = True
        return self._signals.status

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """What the first process of a run leaves on disk is there when the others come to it."""
        if not self.group.leads:
            self.group.agree(None)
        yield
        if self.group.leads:
            self.group.agree(None)


@dataclass(frozen=True)
class _Opening:
    """What is known before anything is reported."""

    config: TrainConfig
    run_dir: Path
    rank_env: RankEnv
    resuming: bool
    lock: RunLock | None
    choice: str | None


@dataclass
class _RestartWhenLost:
    """Ends this process calmly when another one is lost and all will be started again: no failure yet."""

    rank_env: RankEnv
    reporter: Reporter
    group: Group
    sentence: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, *rest: object
    ) -> bool:
        if isinstance(problem, GroupLost) and self.rank_env.restarts_left:
            self.sentence = str(problem)
            self.reporter.log(self.sentence, level="warning")
            self.reporter.finish("preempted", self.sentence)
            return True
        if isinstance(problem, Exception):
            self.group.tell_of(problem)
        return False


@contextmanager
def training_session(home: Path, arguments: Sequence[str] | None = None) -> Iterator[Session]:
    """Opens the run in `home`, or its repetition in another folder; ends the process with 2 on wrong input.

    Where several processes train, the one that a person started launches them instead, and ends with them.
    """
    signals = Signals()
    try:
        opening = _open(home, sys.argv[1:] if arguments is None else list(arguments))
        config, rank_env = opening.config, opening.rank_env
        # Before the Reporter, which records a SIGTERM and then calls the handler it found.
        signals.install()
        with ExitStack() as stack:
            # The leader finds out whether the run may be trained; until then nobody else touches it.
            reporter = stack.enter_context(_reporter(opening)) if rank_env.leads else None
            run = hashlib.sha256(config.to_json().encode()).hexdigest()
            group = join(os.environ, on_gpu=uses_gpu(config.device), run=run)
            reporter = reporter or stack.enter_context(_reporter(opening))
            stack.callback(group.leave)
            if group.size > 1 and not uses_gpu(config.device):
                limit_threads(group.local_size)
            own = shared_out(config, group.size)
            with _RestartWhenLost(rank_env, reporter, group) as lost:
                yield Session(opening.run_dir, own, reporter, opening.resuming, group, signals)
    except ValidationError as problem:
        _refuse(InvalidConfig(problem, TrainConfig))
    except (ValueError, RunInUseError) as problem:
        # Once steps run, a ValueError is a bug and not an answer to wrong input.
        if signals.deferred:
            raise
        if isinstance(problem, PortInUse) and "BLOOM_LAUNCHER_PID" in os.environ:
            _give_up(str(problem))
        _refuse(problem)
    except Exception as problem:
        if isinstance(problem, GroupLost) and "BLOOM_LAUNCHER_PID" in os.environ:
            # Reported as failed already; the launcher says how often it was tried.
            _give_up(str(problem))
        write_exit_message(f"{type(problem).__name__}: {problem}", os.environ)
        raise
    if lost.sentence is not None:
        _give_up(lost.sentence)


def _open(home: Path, arguments: Sequence[str]) -> _Opening:
    """Ends the process where it only launches others."""
    if launcher := os.environ.get("BLOOM_LAUNCHER_PID"):
        end_with(int(launcher))
    options = _parse(arguments)
    config = TrainConfig.read(home / "config.json")
    run_dir = _run_directory(home, options.into, config)
    # ValueError: the libraries that save models cannot use this name.
    str(run_dir).encode()
    rank_env = RankEnv.read(os.environ)
    resuming = options.resume or rank_env.restarts > 0
    lock, layout = None, ProcessLayout()
    if "WORLD_SIZE" in os.environ:
        # A contradiction between both is said before anybody waits for others.
        shared_out(config, rank_env.size)
    if resuming and (run_dir / "model").exists():
        _end_completed(run_dir, rank_env)
    if rank_env.leads:
        _must_be_allowed(run_dir, config, resuming=resuming)
        if "WORLD_SIZE" not in os.environ:
            layout = ProcessLayout(config.said_processes) if config.cluster else choose_layout(config)
            if layout.processes > 1 or config.cluster:
                sys.exit(_launch([str(home / "train.py"), *arguments], layout, config, run_dir))
        lock = _lock(run_dir, waits=rank_env.restarts > 0)
    return _Opening(config, run_dir, rank_env, resuming, lock, layout.reason)


def _launch(script: Sequence[str], layout: ProcessLayout, config: TrainConfig, run_dir: Path) -> int:
    checkpoints = checkpoint_folder(config, run_dir)

    def newest() -> str | None:
        found = list_checkpoints(checkpoints)
        return found[-1].name if found else None

    def members(restarts: int) -> list[Member]:
        if config.cluster == "ray":
            return ray_members(script, restarts)
        return local_members(script, layout.processes, layout.threads, restarts)

    return Launcher(
        members,
        newest,
        {**os.environ, "BLOOM_LAYOUT_REASON": layout.reason or ""},
    ).launch()


def _lock(run_dir: Path, *, waits: bool) -> RunLock:
    """What is left of a group that was lost ends by itself, but perhaps not at once."""
    deadline = time.monotonic() + (_LEFTOVER_SECONDS if waits else 0.0)
    while True:
        try:
            return RunLock.acquire(run_dir)
        except RunInUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _reporter(opening: _Opening) -> Reporter:
    """Begins with what was decided before this process began."""
    # One process of a run prints what it reports: the output of all of them is the run's.
    kind = PrintingReporter if opening.rank_env.leads else Reporter
    reporter = kind(opening.run_dir, lock=opening.lock)
    reporter.phase("load")
    if opening.rank_env.leads:
        if choice := opening.choice or os.environ.get("BLOOM_LAYOUT_REASON"):
            reporter.describe({"processes_reason": choice})
            reporter.log(f"processes: {choice}")
        if restart := os.environ.get("BLOOM_RESTART_REASON"):
            reporter.log(restart, level="warning")
    return reporter


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the run in the folder of this script.")
    parser.add_argument("--resume", action="store_true", help="resume from the newest checkpoint")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="repeat the run in another folder")
    return parser.parse_args(arguments)


def _run_directory(home: Path, into: Path | None, config: TrainConfig) -> Path:
    if into is None:
        return home.resolve()
    into.mkdir(parents=True, exist_ok=True)
    if not (into / "config.json").exists():
        (into / "config.json").write_text(config.to_json(), encoding="utf-8")
        if (home / "plan.json").exists():
            # Its steps are repeated as they were.
            shutil.copyfile(home / "plan.json", into / "plan.json")
    elif TrainConfig.read(into / "config.json") != config:
        raise InputError("folder_not_empty", f"{into} contains another run: choose an empty folder.")
    return into.resolve()


def _end_completed(run_dir: Path, rank_env: RankEnv) -> NoReturn:
    """Nothing is left to train: the model is complete, but perhaps nobody could say so any more."""
    if rank_env.leads and (load_latest(run_dir) or {}).get("status") != "completed":
        lock = _lock(run_dir, waits=rank_env.restarts > 0)
        with PrintingReporter(run_dir, lock=lock) as reporter:
            reporter.log("The earlier process ended after it had written the model: the run is completed.")
            reporter.finish("completed")
    elif rank_env.leads and rank_env.restarts == 0:
        raise _already_complete(run_dir)
    sys.exit(0)


def _already_complete(run_dir: Path) -> InputError:
    return InputError(
        "run_completed",
        f"The run in {run_dir} is already complete. To train its model further, start a new run with "
        f"--set model.path={shell_word(run_dir / 'model')}",
    )


def _must_be_allowed(run_dir: Path, config: TrainConfig, *, resuming: bool) -> None:
    if resuming:
        return
    if (run_dir / "model").exists():
        raise _already_complete(run_dir)
    checkpoints = checkpoint_folder(config, run_dir)
    for taken in (RunFiles(run_dir).attempts, checkpoints):
        if taken.exists():
            raise InputError(
                "run_exists",
                f"{taken} already exists: continue that run with --resume, or choose another folder.",
            )


def _give_up(sentence: str) -> NoReturn:
    """Ends so that all processes are started again."""
    write_exit_message(sentence, os.environ)
    sys.exit(LOST)


def _refuse(problem: Exception) -> NoReturn:
    if isinstance(problem, UnicodeEncodeError):
        problem = not_text()
    line = error_line(code_of(problem), str(problem))
    write_exit_message(line, os.environ)
    sys.stderr.write(f"{line}\n")
    sys.exit(2)
