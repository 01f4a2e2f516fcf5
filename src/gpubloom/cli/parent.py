"""The parent of two processes, server and worker: starts both, restarts one that dies, stops both.

It imports nothing heavy and holds no state. Agents are not its children: they continue when it ends.

A child notices when its parent dies: the parent keeps the writing end of a pipe open and never writes. When
the parent dies, even by `kill -9`, the kernel closes that end, and the child's read returns.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType

from gpubloom.cli.output import echo
from gpubloom.errors import shell_word

_VARIABLE = "BLOOM_PARENT_PIPE"
_POLL_SECONDS = 0.2
_STOP_SECONDS = 15.0
_LONGEST_PAUSE = 30.0
# A process that lived this long is restarted at once when it dies.
_HEALTHY_SECONDS = 60.0
_WRONG_INPUT = 2


@dataclass
class _Child:
    """One of the two processes and when it may be started again."""

    name: str
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = 0.5
    next_start: float = 0.0


def run_both(server_arguments: list[str]) -> int:
    """Run server and worker until told to stop; the exit code to end with."""
    children = [
        _Child("server", ["server", "start", *server_arguments]),
        _Child("worker", ["server", "worker"]),
    ]
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    reading, writing = os.pipe()
    code = 0
    try:
        while not stopping and code == 0:
            for child in children:
                code = code or _supervise(child, reading)
            time.sleep(_POLL_SECONDS)
    finally:
        _stop(children)
        os.close(writing)
        os.close(reading)
    if code == 0:
        _print_running_trainings()
    return code


def _supervise(child: _Child, pipe: int) -> int:
    """Start the child, or start it again; an exit code that ends everything, or 0."""
    now = time.monotonic()
    if child.process is not None:
        ended = child.process.poll()
        if ended is None:
            return 0
        child.process = None
        if ended == _WRONG_INPUT:
            # Wrong input: the child printed the error, and a restart cannot help.
            return ended
        lived = now - child.started
        child.pause = 0.5 if lived > _HEALTHY_SECONDS else min(child.pause * 2, _LONGEST_PAUSE)
        child.next_start = now + child.pause
        echo(f"  The {child.name} ended with code {ended}. Starting it again.", err=True)
    if now >= child.next_start:
        child.process = subprocess.Popen(
            [sys.executable, "-m", "gpubloom.cli", *child.arguments],
            pass_fds=(pipe,),
            env={**os.environ, _VARIABLE: str(pipe)},
            # Ctrl-C in the terminal goes to this process alone, which then stops both in order.
            start_new_session=True,
        )
        child.started = now
    return 0


def _stop(children: list[_Child]) -> None:
    running = [child.process for child in children if child.process is not None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for process in running:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _print_running_trainings() -> None:
    from gpubloom.agent import AgentFiles
    from gpubloom.agent.file_lock import is_held
    from gpubloom.server.settings import load_settings

    runs = load_settings().home / "runs"
    living = [run for run in sorted(runs.glob("*")) if is_held(AgentFiles(run).lock)]
    if not living:
        echo("\n  Stopped. No training run is active.")
        return
    continues = "training run continues" if len(living) == 1 else "training runs continue"
    echo(f"\n  Stopped the server. {len(living)} {continues}:")
    for run in living:
        echo(f"    bloom runs watch {shell_word(run)}")
    echo("  To show them in the web app again, run: bloom up")


def end_with_parent() -> None:
    """Stop this process when the parent that started it dies; does nothing without such a parent."""
    descriptor = os.environ.pop(_VARIABLE, None)
    if descriptor is None or not descriptor.isdecimal():
        return
    reading = int(descriptor)
    # Agents that this process starts must not hold the pipe.
    os.set_inheritable(reading, False)

    def wait() -> None:
        os.read(reading, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
