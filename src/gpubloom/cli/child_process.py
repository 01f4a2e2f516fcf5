"""The training tower in a child process: started with its output in the run's log, stopped with patience.

The service tower never imports torch; this is the door between the towers.
"""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from gpubloom.cli.thread_waiting import thread_waiting

# What a last save of a large model may take before a stopping child counts as hanging.
_STOP_SECONDS = 600.0


def child_environment() -> dict[str, str]:
    return thread_waiting(os.environ) | os.environ


class Stopped(BaseException):
    """Somebody asked this command to end by a signal other than Ctrl-C; like KeyboardInterrupt, no error."""


def must_have_torch() -> None:
    """Says what to install when the training tower's libraries are missing; imports none of them."""
    for name in ("torch", "safetensors", "tokenizers"):
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"Training needs {name}, which is not installed. Run: pip install 'gpubloom[train]'."
            )


class Child:
    """One training process and the part of the log that it wrote."""

    def __init__(self, command: Sequence[str], log: Path, python: str | None = None) -> None:
        """`python`: the interpreter, when it is another than the one that runs this."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            # A process group of its own: Ctrl-C reaches this command, which then asks the child to save.
            self._process = subprocess.Popen(
                [python or sys.executable, "-u", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                process_group=0,
            )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        return self._process.wait()

    def ask_to_stop(self) -> None:
        """Asks for a checkpoint and an end; asking again ends it without one."""
        self._process.send_signal(signal.SIGINT)

    def last_words(self) -> str:
        """The last line it printed: the sentence, when it refused its input."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "the training process ended without a word"

    def stop(self) -> None:
        """Waits for the last checkpoint; a second Ctrl-C gives it up."""
        self.ask_to_stop()
        try:
            self._process.wait(_STOP_SECONDS)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            self.ask_to_stop()
            try:
                self._process.wait(10)
            except (KeyboardInterrupt, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()


@contextmanager
def stopping_signals() -> Iterator[None]:
    """Within it, SIGTERM and a closed terminal raise Stopped, so that the child can be told."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
