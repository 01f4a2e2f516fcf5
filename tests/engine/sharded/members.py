"""Starts the processes of a group and waits for them."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.ports import free_port


def run_members(size: int, command: Sequence[str], timeout: float = 170) -> None:
    """Runs one command in so many processes, which find each other by torchrun's variables."""
    port = free_port()
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    members = [
        subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        errors = [member.communicate(timeout=timeout)[1] for member in members]
    finally:
        for member in members:
            if member.poll() is None:
                member.kill()
                member.communicate()
    assert [member.returncode for member in members] == [0] * size, "\n".join(errors)
