"""Starts an agent on this machine and hears from it whether the attempt runs."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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
            raise ProviderError(f"The agent could not be started: {words}")
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
            raise ProviderError(f"The agent was started and said nothing for {seconds:g} seconds.")
        part = os.read(reader, 65536)
        if not part:
            raise ProviderError("The agent ended before the attempt began; agent/agent.log may say why.")
        words += part
    news: dict[str, Any] = json.loads(words)
    return news
