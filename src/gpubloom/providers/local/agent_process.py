"""Starts an agent on this machine, warm if possible, and waits until it says whether the attempt runs.

A warm start forks a parent process that has imported torch already. It is a convenience: whatever stands
against it is raised as `NotWarm` with the reason, and the job starts without it. That is safe at any moment,
because an attempt runs at most once, whoever else tries to start it.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubloom.agent import JobSpec
from gpubloom.agent.bundle import build_agent
from gpubloom.agent.environment import is_secret
from gpubloom.providers.base import ProviderError, Reservation

# From the start of a Python to the word of the agent; a busy machine takes its time.
_ANNOUNCE_SECONDS = 60.0


def start_plainly(run_dir: Path, reservation: Reservation, folder: Path, reason: str) -> dict[str, Any]:
    """A Python of its own for the agent; returns what it announces. `folder` keeps the built agent."""
    agent = build_agent(folder)
    reader, writer = os.pipe()
    try:
        command = [
            sys.executable,
            "-I",
            "-S",
            str(agent),
            str(run_dir),
            "--detach",
            "--announce",
            str(writer),
        ]
        for descriptor in reservation.descriptors:
            command += ["--device", str(descriptor)]
        # The agent forks and leaves at once; what this process waits for is not the run.
        started = subprocess.run(
            [*command, "--start", f"plain start: {reason}"],
            env={name: value for name, value in os.environ.items() if not is_secret(name, value)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[writer, *reservation.descriptors],
            check=False,
        )
    finally:
        os.close(writer)
    try:
        if started.returncode != 0:
            words = started.stderr.decode(errors="replace").strip() or f"exit code {started.returncode}"
            raise ProviderError("agent_not_started", f"The agent could not be started: {words}")
        return hear_from(reader)
    finally:
        os.close(reader)


def is_readable(descriptor: int, seconds: float) -> bool:
    """Waits until there is something to read, or an end; False when the time is over."""
    # Not `select`, which knows only the first thousand descriptors of a process.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def hear_from(reader: int, seconds: float = _ANNOUNCE_SECONDS) -> dict[str, Any]:
    """The agent's announcement. ProviderError when it ends, or stays silent, without one."""
    deadline = time.monotonic() + seconds
    words = b""
    while not words.endswith(b"\n"):
        if not is_readable(reader, deadline - time.monotonic()):
            raise ProviderError(
                "agent_not_started", f"The agent started but did not report within {seconds:g} seconds."
            )
        part = os.read(reader, 65536)
        if not part:
            raise ProviderError(
                "agent_not_started",
                "The agent ended before the attempt began. See agent/agent.log in the run directory.",
            )
        words += part
    news: dict[str, Any] = json.loads(words)
    return news


# Waiting for imports that are under way beats doing them twice on the same cores.
_READY_SECONDS = 20.0
_ANSWER_SECONDS = 15.0
# After a parent that never became ready; the cause will hardly be gone sooner.
_RETRY_SECONDS = 60.0

# What begins by importing what the parent already has.
_SCRIPTS = ("train.py", "task.py")
# Read by libraries while they are imported, so a fork cannot be given another value.
_READ_AT_IMPORT = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "VECLIB_"),
    *("LD_", "MALLOC_", "GLIBC_", "PYTHON", "TORCH", "PYTORCH_", "NPY_"),
)


class NotWarm(Exception):
    """This start cannot be a warm one; the text says why."""


def why_not_warm(spec: JobSpec, environment: Mapping[str, str]) -> str | None:
    """What about a job needs a Python of its own; None when a fork of ours will do."""
    if spec.folder:
        return "user scripts run in a fresh Python process"
    if len(spec.command) < 2 or spec.command[1] not in _SCRIPTS:
        return f"the command is not {' or '.join(_SCRIPTS)}"
    if spec.command[0] != sys.executable:
        return f"the command uses another Python, {spec.command[0]}"
    for name, value in spec.environment.items():
        if name.startswith(_READ_AT_IMPORT) and environment.get(name) != value:
            return f"the job sets {name}, which libraries read while they are imported"
    return None


class WarmParent:
    """One pre-imported process. Safe to use from several threads."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._ready = False
        self._problem = "there is no warm parent process"
        self._retry_at = 0.0

    def start(self) -> None:
        """Returns at once; the imports go on in the background."""
        with self._lock:
            self._start()

    def close(self) -> None:
        """Ends the parent. Its forks lead lives of their own."""
        with self._lock:
            self._end("the process was closed")

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def ask(self, run_dir: Path, reservation: Reservation) -> dict[str, Any]:
        """Has an agent forked for a run; returns what it announces, or raises NotWarm."""
        reader, writer = os.pipe()
        try:
            try:
                with self._lock:
                    self._send(run_dir, [writer, *reservation.descriptors])
            finally:
                # Ours must not be the last one open: when the agent is gone, reading has to end.
                os.close(writer)
            try:
                news = hear_from(reader, _ANSWER_SECONDS)
            except ProviderError as problem:
                with self._lock:
                    raise self._gone(f"it did not answer. {problem}") from problem
        finally:
            os.close(reader)
        if "refused" in news:
            raise NotWarm(f"the warm parent process refused: {news['refused']}")
        return news

    def _send(self, run_dir: Path, descriptors: list[int]) -> None:
        channel = self._ready_channel()
        try:
            socket.send_fds(channel, [json.dumps({"run_dir": str(run_dir)}).encode()], descriptors)
        except OSError as problem:
            raise self._gone(f"it cannot be reached: {problem.strerror}") from problem

    def _ready_channel(self) -> socket.socket:
        if self._process is None and time.monotonic() >= self._retry_at:
            self._start()
        if self._process is None or self._channel is None:
            raise NotWarm(self._problem)
        if not self._ready:
            if not is_readable(self._channel.fileno(), _READY_SECONDS):
                raise NotWarm("the warm parent process is still importing")
            word = self._channel.recv(1 << 16)
            found = json.loads(word) if word else {"problem": "it ended during its imports"}
            if "problem" in found:
                self._retry_at = time.monotonic() + _RETRY_SECONDS
                self._end(found["problem"])
                raise NotWarm(self._problem)
            self._ready = True
        if self._process.poll() is not None:
            raise self._gone(f"it ended with exit code {self._process.returncode}")
        return self._channel

    def _gone(self, what: str) -> NotWarm:
        """Replaces the parent for the next job; this one does not wait for it."""
        self._end(what)
        reason = self._problem
        self._start()
        return NotWarm(f"{reason}; a new one is being prepared")

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gpubloom.agent.warm",
                    "--channel",
                    str(theirs.fileno()),
                    *self._modules,
                ],
                cwd="/",
                # A fork's /proc entry shows the environment that its parent was started with.
                env={name: value for name, value in os.environ.items() if not is_secret(name, value)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C in a terminal goes to a whole group; this process ends with its channel.
                start_new_session=True,
            )
        self._channel = ours
        self._ready = False

    def _end(self, what: str) -> None:
        self._problem = f"the warm parent process is gone: {what}"
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._process = None
