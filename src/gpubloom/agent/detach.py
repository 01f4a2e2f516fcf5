"""Detach the agent from its starter: session, terminal, folder and standard streams."""

import contextlib
import os
from pathlib import Path

from gpubloom.agent.files import AgentFiles


def leave_terminal() -> None:
    """A session of its own, unless this process already leads a group (started from a shell)."""
    with contextlib.suppress(PermissionError):
        os.setsid()


def detach(run_dir: Path) -> None:
    """Make a fresh fork independent. The agent's own messages go to agent/agent.log."""
    leave_terminal()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        messages = os.open(
            AgentFiles(run_dir).messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
    except OSError:
        # The job cannot be read either then, and that is announced.
        messages = os.dup(nothing)
    os.dup2(nothing, 0)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    os.close(nothing)
    os.close(messages)
