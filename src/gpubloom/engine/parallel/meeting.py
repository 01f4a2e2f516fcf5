"""How the processes of a run find each other, and make sure that they belong together.

All limits of time are in the sentences: nobody waits for ever for a process that does not come.
"""

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from gpubloom import __version__
from gpubloom.engine.parallel.group import ALONE, STEP_SECONDS, Group
from gpubloom.engine.parallel.interface import lead_gloo_to
from gpubloom.engine.parallel.seat import Seat

JOIN_SECONDS = 120.0
_LOOK_SECONDS = 0.05
# For the others to read why nothing comes of it, before the meeting point goes with the first process.
_FAREWELL_SECONDS = 5.0
# What is asked of the meeting point later is answered at once, or not at all.
_ANSWER_SECONDS = 5.0


class PortInUse(ValueError):
    """Another program listens where the processes were to meet."""


def join(
    environment: Mapping[str, str],
    *,
    on_gpu: bool,
    seconds: float | None = None,
    run: str = "",
    versions: Mapping[str, str] | None = None,
) -> Group:
    """The group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name, as torchrun sets them.

    Waits for the others; ValueError in a sentence when one of them does not come, or trains another `run`
    or with other `versions` of the software.
    """
    seat = Seat.read(environment)
    if seat.size == 1:
        return ALONE
    if on_gpu:
        if seat.local_rank >= torch.cuda.device_count():
            raise ValueError(
                f"{seat.local_size} processes were asked for, but this machine has "
                f"{torch.cuda.device_count()} GPUs: each process needs one of its own."
            )
        torch.cuda.set_device(seat.local_rank)
    limit = join_seconds(environment) if seconds is None else seconds
    deadline = time.monotonic() + limit
    store = _meeting_point(seat, limit)
    try:
        _greet(store, seat, deadline, limit, {"run": run, **(versions or _versions())})
        lead_gloo_to(seat.host, seat.port)
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=seat.rank,
            world_size=seat.size,
            timeout=timedelta(seconds=STEP_SECONDS),
        )
    except RuntimeError as problem:
        raise ValueError(
            f"Rank {seat.rank} lost the other processes at {seat.address} while they were joining: "
            f"{_first_line(problem)}"
        ) from None
    store.set_timeout(timedelta(seconds=_ANSWER_SECONDS))
    return Group(seat.rank, seat.size, seat.local_rank, seat.local_size, store)


def _meeting_point(seat: Seat, limit: float) -> Store:
    try:
        store = TCPStore(
            seat.host,
            seat.port,
            seat.size,
            is_master=seat.leads and not seat.host_is_there,
            timeout=timedelta(seconds=limit),
            wait_for_workers=False,
        )
    except RuntimeError as problem:
        text = str(problem).lower()
        if "eaddrinuse" in text or "address already in use" in text:
            raise PortInUse(
                f"Port {seat.port} is in use by another program: set MASTER_PORT to a free one."
            ) from None
        raise ValueError(
            f"Rank {seat.rank} did not find the first of the {seat.size} processes at {seat.address} within "
            f"{limit:.0f} s: start all with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT. "
            f"{_first_line(problem)}"
        ) from None
    # A group that is started again must not read what the one before left.
    return PrefixStore(f"bloom/{seat.restarts}", store)


def _greet(store: Store, seat: Seat, deadline: float, limit: float, about: Mapping[str, str]) -> None:
    """Says who this is and hears who the others are."""
    own = {**about, "size": seat.size, "host": socket.gethostname()}
    store.set(_hello(seat.rank), json.dumps(own))
    # First whether this process belongs here at all: one that does not may wait for others in vain.
    for ranks in ([0, seat.rank], range(seat.size)):
        _wait_for(store, seat, [*ranks], deadline, limit)
        there = {rank: json.loads(store.get(_hello(rank))) for rank in ranks}
        for rank, other in there.items():
            if (difference := _difference(there[0], other, rank)) is not None:
                _say_farewell(store, seat)
                raise ValueError(difference)


def _wait_for(store: Store, seat: Seat, ranks: list[int], deadline: float, limit: float) -> None:
    while not store.check([_hello(rank) for rank in ranks]):
        if time.monotonic() > deadline:
            missing = [rank for rank in ranks if not store.check([_hello(rank)])]
            raise ValueError(
                f"Rank {_listed(missing)} of the {seat.size} processes did not come to {seat.address} within "
                f"{limit:.0f} s (this is rank {seat.rank}): see what became of it, and start all with the "
                "same WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
            )
        time.sleep(_LOOK_SECONDS)


def _difference(first: dict[str, Any], other: dict[str, Any], rank: int) -> str | None:
    who, leader = f"rank {rank} on {other['host']}", f"rank 0 on {first['host']}"
    if first["size"] != other["size"]:
        return f"WORLD_SIZE is {other['size']} for {who} and {first['size']} for {leader}: start all alike."
    for name in ("gpubloom", "torch"):
        if first.get(name) != other.get(name):
            return (
                f"{who.capitalize()} has {name} {other.get(name)}, and {leader} has {first.get(name)}: "
                "install the same versions on all machines."
            )
    if first["run"] != other["run"]:
        return f"{who.capitalize()} and {leader} train different runs: their config.json differ."
    return None


def _say_farewell(store: Store, seat: Seat) -> None:
    store.set(f"read/{seat.rank}", "")
    if not seat.leads:
        return
    deadline = time.monotonic() + _FAREWELL_SECONDS
    keys = [f"read/{rank}" for rank in range(seat.size)]
    with contextlib.suppress(RuntimeError):
        while not store.check(keys) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)


def join_seconds(environment: Mapping[str, str]) -> float:
    """How long processes wait for each other to come."""
    text = environment.get("BLOOM_JOIN_SECONDS", "")
    try:
        seconds = float(text) if text else JOIN_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"BLOOM_JOIN_SECONDS is {text!r}, not a number of seconds.")
    return seconds


def _versions() -> dict[str, str]:
    return {"gpubloom": __version__, "torch": str(torch.__version__)}


def _hello(rank: int) -> str:
    return f"hello/{rank}"


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"


def _first_line(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
