"""Launcher: starts the processes of a run, and restarts all of them when one is lost.

The processes run the same script and differ in their rank. A killed process costs the steps since the newest
checkpoint. A process that fails with an error of its own, or rejects its input, ends the run: it would fail
again.

Not torch elastic: its agent restarts after every failure, also after exit code 1 (error) and 2 (invalid
input) where only 75 (lost) must restart; it counts restarts in total, not restarts without a newer
checkpoint; its own exit code is always 1; and its workers outlive a killed agent. Changing this takes a
subclass that overrides private methods and is longer than this file. The environment variables are
torchrun's, so scripts run under both.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from gpubloom.engine.parallel.rank_env import LOST, read_exit_message
from gpubloom.errors import InputError

MOST_RESTARTS = 3
# When one is gone the others notice, save what was on its way, and end by themselves.
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_REFUSED = 2


@dataclass(frozen=True)
class Member:
    """One process of a run: its name for people, its command, and its own variables.

    `silence_is_loss`: an end without last words says nothing about the run.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    silence_is_loss: bool = False


@dataclass(frozen=True)
class _GroupExit:
    """How the processes ended: the code of the first of them, and who was lost, and why."""

    code: int
    words: str | None


class Launcher:
    """`members(restarts)` are to be started, the leader first. `newest()` names the newest checkpoint."""

    def __init__(
        self,
        members: Callable[[int], Sequence[Member]],
        newest: Callable[[], str | None],
        environment: Mapping[str, str],
        *,
        most_restarts: int = MOST_RESTARTS,
    ) -> None:
        self._members = members
        self._newest = newest
        self._environment = environment
        self._most_restarts = most_restarts
        self._stop_signals: list[int] = []

    def launch(self) -> int:
        """Runs them to the end; the exit code of the run."""
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        restarts = without_progress = 0
        newest, words = self._newest(), ""
        while True:
            left = self._most_restarts - without_progress
            ending = self._run_once(restarts, left, words)
            if ending.words is None or self._stop_signals:
                return ending.code
            before, newest = newest, self._newest()
            without_progress = 0 if newest != before else without_progress + 1
            if without_progress > self._most_restarts:
                _say(
                    f"{ending.words} This happened {without_progress} times without a newer checkpoint, so "
                    "the run stops."
                )
                return 1
            restarts += 1
            resumes = "restarts at step 0" if newest is None else f"resumes from {newest}"
            words = f"{ending.words} The run {resumes}."
            _say(words)

    def _run_once(self, restarts: int, left: int, words: str) -> _GroupExit:
        members = self._members(restarts)
        with tempfile.TemporaryDirectory(prefix="bloom-") as folder:
            files = [Path(folder, str(number)) for number in range(len(members))]
            processes: list[subprocess.Popen[bytes]] = []
            try:
                for member, file in zip(members, files, strict=True):
                    processes.append(self._start(member, file, restarts, left, words))
                self._wait(processes)
                # One that had to be ended had only been waiting for the others.
                codes = [LOST if (code := process.poll()) is None else code for process in processes]
            finally:
                for process in processes:
                    if process.poll() is None:
                        process.kill()
                        process.wait()
            for number, member in enumerate(members):
                if member.silence_is_loss and codes[number] and read_exit_message(files[number]) is None:
                    codes[number] = LOST
            if self._stop_signals and codes[0] not in {0, _REFUSED}:
                # What the others say is that the leader is gone.
                return _GroupExit(codes[0] if 0 < codes[0] != LOST else 1, None)
            return _judge([member.name for member in members], codes, files)

    def _start(
        self, member: Member, last_words: Path, restarts: int, left: int, words: str
    ) -> subprocess.Popen[bytes]:
        told = {
            "TORCHELASTIC_ERROR_FILE": str(last_words),
            "TORCHELASTIC_RESTART_COUNT": str(restarts),
            "TORCHELASTIC_MAX_RESTARTS": str(restarts + left),
            "BLOOM_LAUNCHER_PID": str(os.getpid()),
            "BLOOM_RESTART_REASON": words,
        }
        return subprocess.Popen(
            [sys.executable, "-u", *member.command],
            stdin=subprocess.DEVNULL,
            env={**self._environment, **member.environment, **told},
            # A terminal's Ctrl-C comes here alone; the leader is told, and tells the others.
            process_group=0,
        )

    def _wait(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Until all have ended; those that are left when one is gone get some time.

        None where that is in vain: the input is wrong, or the leader was stopped before it could save.
        """
        leader, told, deadline = processes[0], 0, None
        while any(process.poll() is None for process in processes):
            for number in self._stop_signals[told:]:
                with contextlib.suppress(ProcessLookupError):
                    leader.send_signal(number)
                told += 1
            now = time.monotonic()
            codes = [process.poll() for process in processes]
            # One that is done does not hurry a leader that still saves.
            if deadline is None and (codes[0] is not None or any(codes)):
                deadline = now + _STOP_SECONDS
            if deadline is not None and now > deadline:
                return
            if _REFUSED in codes or (self._stop_signals and codes[0]):
                return
            time.sleep(_LOOK_SECONDS)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._stop_signals.append(number)


def _judge(names: Sequence[str], codes: Sequence[int], files: Sequence[Path]) -> _GroupExit:
    """An end that says nothing about the run itself has `words`; one without them is the run's."""
    leader = codes[0]
    if leader == 0:
        return _GroupExit(0, None)
    if _REFUSED in codes:
        # Others may have written since: the last line is the one that people are shown.
        if sentence := read_exit_message(files[codes.index(_REFUSED)]):
            _say(sentence)
        return _GroupExit(_REFUSED, None)
    if leader > 0 and leader != LOST:
        return _GroupExit(leader, None)
    for name, code, file in zip(names, codes, files, strict=True):
        if code > 0 and code != LOST:
            _say(
                f"{name} ended with exit status {code}: "
                f"{read_exit_message(file) or 'see its output in the log.'}"
            )
            return _GroupExit(1, None)
    for name, code in zip(names, codes, strict=True):
        if code < 0:
            return _GroupExit(1, f"{name} was terminated by {_signal_name(code)}.")
    return _GroupExit(1, read_exit_message(files[0]) or f"{names[0]} was lost without an exit message.")


def _signal_name(code: int) -> str:
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"{name} (often because the machine ran out of memory)" if name == "SIGKILL" else name


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def local_members(script: Sequence[str], processes: int, threads: int | None, restarts: int) -> list[Member]:
    """One member for each rank; started again, they resume."""
    command = _resuming(script, restarts)
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port("127.0.0.1")),
        **({} if threads is None else {"OMP_NUM_THREADS": str(threads)}),
    }
    return [
        Member(f"Rank {rank}", command, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]


def ray_members(script: Sequence[str], restarts: int) -> list[Member]:
    """One process that has the others started on the nodes of a Ray cluster."""
    if find_spec("ray") is None:
        raise InputError(
            "not_installed",
            "Training on a Ray cluster needs the package ray. Run: pip install 'gpubloom[ray]'.",
        )
    command = ["-m", "gpubloom.engine.parallel.ray_driver", *_resuming(script, restarts)]
    # Ray ends a process that loses its head without asking it for last words.
    return [Member("The connection to the Ray cluster", command, {}, silence_is_loss=True)]


def _resuming(script: Sequence[str], restarts: int) -> list[str]:
    return [*script, *(["--resume"] if restarts and "--resume" not in script else [])]


def free_port(host: str) -> int:
    """A port that nobody has at the moment; who comes too late is told so, and tries another."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
