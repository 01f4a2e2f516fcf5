"""Companions: the other processes of a run on this machine, started by the first one as copies of itself."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

# They end with the run by themselves; one that does not is no use to anybody.
_PATIENCE_SECONDS = 30.0


class Companions:
    """Processes of ranks 1 to size - 1. Use as a context: they never outlive it."""

    def __init__(self, size: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.environment = {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
        }
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-u", *command],
                stdin=subprocess.DEVNULL,
                env={**environment, **self.environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(1, size)
        ]

    def __enter__(self) -> "Companions":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        patience = _PATIENCE_SECONDS if kind is None else 0.0
        deadline = time.monotonic() + patience
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
