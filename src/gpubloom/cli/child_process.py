"""Training in a child process: no command imports torch itself.

The process of a run writes its output to the log of the run and gets time for a last checkpoint when it is
stopped. A task (chat, evaluation, learning rate search) has its own directory, which is removed afterwards.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from gpubloom.errors import InputError, read_error_line
from gpubloom.json_files import read_optional_json

if TYPE_CHECKING:
    from gpubloom.plan.tasks import Task

# A last save of a large model may take this long before a stopping child counts as hanging.
_STOP_SECONDS = 600.0

# How often a thread looks whether the others are done before it sleeps. Steps of small models on two cores,
# in milliseconds; on a quiet machine and beside eight busy processes:
#   300,000 (the default of libgomp)   nano 28, tiny 74      nano 4,800, tiny 6,100
#   1,000                              nano 32, tiny 80      nano 61, tiny 173
#   0 (asleep at once)                 nano 46, tiny 107     nano 49, tiny 146
# A thread that spins takes the core from the one it waits for, and the load may rise at any time.
_SPINS = "1000"

# What every training imports, and what one of most model folders also imports. The second needs no torch: of
# two threads that import the same modules, one may see a module that is not complete.
ENGINE, TRANSFORMERS = "gpubloom.engine", "transformers,transformers.models"


def modules_for(model: Path) -> tuple[str, ...]:
    """What the training of a model folder imports, for `EarlyStart`."""
    from gpubloom.plan.families import OWN_LAYERS

    # What is wrong with the file is said by the checks before the training.
    family = read_optional_json(model / "config.json").get("model_type")
    needs_transformers = isinstance(family, str) and family not in OWN_LAYERS
    return (ENGINE, TRANSFORMERS) if needs_transformers else (ENGINE,)


def thread_waiting(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for the threads of a training, to be set before torch is loaded.

    What somebody has set already stays as it is.
    """
    if "OMP_WAIT_POLICY" in environment or "GOMP_SPINCOUNT" in environment:
        return {}
    return {"GOMP_SPINCOUNT": _SPINS}


def child_environment() -> dict[str, str]:
    return thread_waiting(os.environ) | os.environ


class Stopped(BaseException):
    """A signal other than Ctrl-C asked this command to end; like KeyboardInterrupt, this is no error."""


def must_have_torch() -> None:
    """Raises InputError when a library for training is missing; imports none of them."""
    for name in ("torch", "safetensors", "tokenizers"):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                "not_installed",
                f"Training requires {name}, which is not installed. Run: pip install 'gpubloom[train]'.",
            )


class EarlyStart:
    """A process that imports what training needs while this one still checks what is to be trained.

    It becomes a Child, or ends with the block; it also ends when this process dies. The modules that one text
    names are imported in a thread of their own.
    """

    def __init__(self, *modules: str) -> None:
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            # -P: a script finds no modules in the folder where it is started.
            [sys.executable, "-u", "-P", "-m", "gpubloom.agent.early", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            process_group=0,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the process, unless it has become a Child."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def become(self, script: Sequence[str], output: Path) -> subprocess.Popen[bytes] | None:
        """The process, which now runs this script; None if it has become another one, or has ended."""
        if self._process is None:
            return None
        # What cannot be written is this command's to tell, and the process would train on in silence.
        output.open("ab").close()
        started = self._process
        assert started.stdin is not None
        asked = json.dumps({"script": list(script), "output": str(output)}) + "\n"
        try:
            with started.stdin as pipe:
                pipe.write(asked.encode())
        except BrokenPipeError:
            return None
        self._process = None
        return started


class Child:
    """One training process and the part of the log that it wrote."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        python: str | None = None,
        early: EarlyStart | None = None,
    ) -> None:
        """`python`: the interpreter, when it is another than the one that runs this."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        started = None
        if early is not None and python is None:
            started = early.become(command, log)
        elif early is not None:
            early.end()
        self._process = started or _start([python or sys.executable, "-u", *command], log)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        return self._process.wait()

    def ask_to_stop(self) -> None:
        """Asks the process to save a checkpoint and end; a second request ends it without a checkpoint."""
        self._process.send_signal(signal.SIGINT)

    def refusal(self) -> InputError:
        """The error that the process printed; without one, its last line."""
        # A run that another process trains writes to the same log, also behind the error.
        errors = [line for line in self._lines() if line.startswith("error[")]
        return read_error_line(errors[-1] if errors else self.last_line())

    def last_line(self) -> str:
        """The last line it printed."""
        lines = self._lines()
        return lines[-1] if lines else "the process ended without output"

    def _lines(self) -> list[str]:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", errors="replace").strip().splitlines()

    def stop(self, announce: Callable[[], None] = lambda: None) -> None:
        """Waits for the last checkpoint. A second Ctrl-C, also during `announce`, ends it without one."""
        # A closed terminal and a system that shuts down may say so more than once.
        with _handling(signal.SIG_IGN):
            self.ask_to_stop()
            try:
                announce()
                self._process.wait(_STOP_SECONDS)
            except (KeyboardInterrupt, subprocess.TimeoutExpired):
                self.ask_to_stop()
                try:
                    self._process.wait(10)
                except (KeyboardInterrupt, subprocess.TimeoutExpired):
                    self._process.kill()
                    self._process.wait()


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        # A process group of its own: Ctrl-C reaches this command, which then asks the child to save.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            process_group=0,
        )


@contextmanager
def stopping_signals() -> Iterator[None]:
    """Within it, SIGTERM and a closed terminal raise Stopped, so that the child can be stopped."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    with _handling(stop):
        yield


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    # What is ignored stays ignored: nohup does so, to let a command outlive its terminal.
    heard = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


_TASK_POLL_SECONDS = 0.05


class TaskFailed(Exception):
    """The child process failed, and not because of wrong input."""


class RunningTask:
    """A task that runs in a child process."""

    def __init__(self, home: Path, child: Child) -> None:
        self.home = home
        self._child = child

    def wait_for(self, name: str, meanwhile: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The JSON of a file that the task writes; InputError when the task refuses its input."""
        file = self.home / name
        while not file.exists():
            if not self._child.is_alive() and not file.exists():
                if self._child.wait() == 2:
                    raise self._child.refusal()
                raise TaskFailed(self._child.last_line())
            meanwhile()
            time.sleep(_TASK_POLL_SECONDS)
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def is_alive(self) -> bool:
        return self._child.is_alive()


@contextmanager
def running(task: "Task") -> Iterator[RunningTask]:
    """Starts a task and stops it at the end of the block."""
    from gpubloom import __version__
    from gpubloom.plan.tasks import task_files

    must_have_torch()
    with tempfile.TemporaryDirectory(prefix="bloom-task-") as folder, stopping_signals():
        home = Path(folder)
        for name, text in task_files(task, __version__).items():
            (home / name).write_text(text, encoding="utf-8")
        child = Child([str(home / "task.py")], home / "logs" / "output.log")
        try:
            yield RunningTask(home, child)
        finally:
            if child.is_alive():
                child.stop()
