"""The processes of a run on this machine: copies of one script that differ in their rank."""

import socket
from collections.abc import Sequence

from gpubloom.engine.parallel.conductor import Member


def local_members(script: Sequence[str], processes: int, threads: int | None, restarts: int) -> list[Member]:
    """One member for each rank; started again, they resume."""
    command = [*script, *(["--resume"] if restarts and "--resume" not in script else [])]
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


def free_port(host: str) -> int:
    """A port that nobody has at the moment; who comes too late is told so, and tries another."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
