"""Starts the training process.

The fork waits until the agent has recorded it. An agent that is killed in between takes the fork with it, so
no training process ever runs that cannot be found again.
"""

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from gpubloom.agent.processes import Process
from gpubloom.agent.spec import JobSpec

# Turns the fork into the training process, in its folder, with standard streams in place. It does not
# come back.
Become = Callable[[JobSpec, dict[str, str]], NoReturn]

_CANNOT_START = 127
_AGENT_GONE = 70
_PIPE_BYTES = 1 << 20
# Python ignores these; a program that is not Python expects them as the system means them.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True)
class Training:
    """A training process that waits for `go`; `output` is where its standard output and error arrive."""

    process: Process
    output: int
    _go: int

    def go(self) -> None:
        # A fork that was killed while it waited has nobody to tell; its end is noticed like any other.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go, b"g")
        os.close(self._go)


def start_training(
    spec: JobSpec, environment: Mapping[str, str], keep: Sequence[int], become: Become
) -> Training:
    """Forks; `keep` are the descriptors, locks of run and devices, that live as long as the training does."""
    output, output_end = os.pipe()
    # Fewer turns for a process that prints a lot; a system may forbid it.
    with contextlib.suppress(OSError):
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(output, False)
    go_end, go = os.pipe()
    # A signal that arrives before the fork has its own handlers must wait for them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.close(output)
            _prepare(output_end, keep)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if pid == 0:
        _wait_and_become(spec, dict(environment), go_end, become)
    os.close(output_end)
    os.close(go_end)
    # Both sides say it: whichever comes first, nobody sees the training process in the agent's group.
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    return Training(Process.find(pid), output, go)


def execute(spec: JobSpec, environment: dict[str, str]) -> NoReturn:
    """Becomes the job's command, or what runs it in a sandbox. The plain way."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    command = spec.command if spec.confinement is None else spec.launcher
    os.execvpe(command[0], command, environment)  # noqa: S606 - a job's command is what we are for


def _prepare(output_end: int, keep: Sequence[int]) -> None:
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(output_end, 1)
    os.dup2(output_end, 2)
    os.close(output_end)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)


def _wait_and_become(spec: JobSpec, environment: dict[str, str], go_end: int, become: Become) -> NoReturn:
    if os.read(go_end, 1) != b"g":
        os._exit(_AGENT_GONE)
    os.close(go_end)
    try:
        os.chdir(spec.working_folder)
        become(spec, environment)
    except OSError as problem:
        os.write(2, f"[bloom-agent] {spec.command[0]} could not be started: {problem}\n".encode())
    os._exit(_CANNOT_START)
