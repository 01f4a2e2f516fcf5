"""The processes that a conductor starts: copies of one script that differ in their rank."""

import socket
from collections.abc import Sequence
from importlib.util import find_spec

from gpubloom.engine.parallel.conductor import Member


def local_members(script: Sequence[str], processes: int, threads: int | None, restarts: int) -> list[Member]:
    """One member for each rank; started again, they resume."""
    command = _resuming(script, restarts)
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port("127.0.0.1")),
        **({} if threads is None else {"OMP_NUM_THREADS": str(threads)}),
    }
    return [
        Member(f"Rank {rank}", command, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]


def ray_members(script: Sequence[str], restarts: int) -> list[Member]:
    """One process that has the others started on the nodes of a Ray cluster."""
    if find_spec("ray") is None:
        raise ValueError("Training on a Ray cluster needs ray. Run: pip install 'gpubloom[ray]'.")
    command = ["-m", "gpubloom.engine.parallel.ray_driver", *_resuming(script, restarts)]
    # Ray ends a process that loses its head without asking it for last words.
    return [Member("The connection to the Ray cluster", command, {}, silence_is_loss=True)]


def _resuming(script: Sequence[str], restarts: int) -> list[str]:
    return [*script, *(["--resume"] if restarts and "--resume" not in script else [])]


def free_port(host: str) -> int:
    """A port that nobody has at the moment; who comes too late is told so, and tries another."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
