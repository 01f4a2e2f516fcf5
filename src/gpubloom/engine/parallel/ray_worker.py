"""What a Ray worker does for a run: starts one of its processes on the node where it is, and waits for it.

The process is the run's own train.py, told its rank by the variables that torchrun would set. It ends with
the worker, however that happens; what it prints is in the run's logs/rank-N.log.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubloom.engine.parallel.rank_env import read_exit_message
from gpubloom.errors import error_line

REFUSED = 2


class ProcessEnded(RuntimeError):
    """A process of the run ended with a code that is not 0."""

    def __init__(self, rank: int, code: int, words: str | None) -> None:
        super().__init__(rank, code, words)
        self.rank = rank
        self.code = code
        self.words = words


@dataclass(frozen=True)
class ProcessSpec:
    """What all workers are told alike."""

    script: Path
    arguments: Sequence[str]
    environment: Mapping[str, str]


def work(order: ProcessSpec) -> None:
    """Trains as the process of this worker's rank; ProcessEnded when that does not end well."""
    rank = int(os.environ["RANK"])
    if not order.script.is_file():
        node = os.uname().nodename
        raise ProcessEnded(
            rank,
            REFUSED,
            error_line(
                "run_not_shared",
                f"The node {node} of the Ray cluster has no access to {order.script.parent}: keep runs and "
                "data on a disk that all nodes share (--run-dir).",
            ),
        )
    log = order.script.parent / "logs" / f"rank-{rank}.log"
    log.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bloom-") as folder, log.open("ab") as output:
        last_words = Path(folder, "words")
        told = {"TORCHELASTIC_ERROR_FILE": str(last_words), "BLOOM_LAUNCHER_PID": str(os.getpid())}
        process = subprocess.Popen(
            [sys.executable, "-u", str(order.script), *order.arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **order.environment, **told},
        )
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if code != 0:
            raise ProcessEnded(rank, code, read_exit_message(last_words))
