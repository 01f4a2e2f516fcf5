"""Rendezvous: how the processes of a run find each other, and check that they belong together.

Every wait has a time limit, which its error names. Gloo is told which network interface leads to the other
processes: by default it listens on the address of this machine's own name, which on many systems is 127.0.0.1
or 127.0.1.1, where no other machine can connect.
"""

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from gpubloom import __version__
from gpubloom.engine.parallel.group import ALONE, STEP_SECONDS, Group
from gpubloom.engine.parallel.rank_env import RankEnv
from gpubloom.errors import CodedError, InputError
from gpubloom.traincard.retry import RetryPolicy, is_host_not_found, retry

JOIN_SECONDS = 120.0
_LOOK_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_CONNECT_SECONDS = 5.0
# The launcher starts the processes of one machine together: they wait a moment for each other.
_THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
# For the others to read why nothing comes of it, before the meeting point goes with the first process.
_FAREWELL_SECONDS = 5.0
# What is asked of the meeting point later is answered at once, or not at all.
_ANSWER_SECONDS = 5.0

_NAME_BYTES = 15
# Linux: asks for the IPv4 address of an interface.
_SIOCGIFADDR = 0x8915


class PortInUse(CodedError, ValueError):
    """Another program listens where the processes were to meet."""

    code = "port_in_use"


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
    rank_env = RankEnv.read(environment)
    if rank_env.size == 1:
        return ALONE
    if on_gpu:
        if rank_env.local_rank >= torch.cuda.device_count():
            raise InputError(
                "more_processes_than_gpus",
                f"The run has {rank_env.local_size} processes on this machine, but the number of GPUs is "
                f"{torch.cuda.device_count()}: each process needs its own GPU.",
            )
        torch.cuda.set_device(rank_env.local_rank)
    limit = join_seconds(environment) if seconds is None else seconds
    deadline = time.monotonic() + limit
    store = _rendezvous_store(rank_env, limit)
    try:
        _greet(store, rank_env, deadline, limit, {"run": run, **(versions or _versions())})
        set_gloo_interface(rank_env.host, rank_env.port)
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=rank_env.rank,
            world_size=rank_env.size,
            timeout=timedelta(seconds=STEP_SECONDS),
        )
    except RuntimeError as problem:
        raise InputError(
            "rendezvous_failed",
            f"Rank {rank_env.rank} lost the connection to the other processes at {rank_env.address} during "
            f"the start: {_first_line(problem)}",
        ) from None
    store.set_timeout(timedelta(seconds=_ANSWER_SECONDS))
    return Group(rank_env.rank, rank_env.size, rank_env.local_rank, rank_env.local_size, store)


def _rendezvous_store(rank_env: RankEnv, limit: float) -> Store:
    is_master = rank_env.leads and not rank_env.host_is_there
    _wait_for_host(rank_env, limit, listening=not is_master)
    try:
        store = TCPStore(
            rank_env.host,
            rank_env.port,
            rank_env.size,
            is_master=is_master,
            timeout=timedelta(seconds=limit),
            wait_for_workers=False,
        )
    except RuntimeError as problem:
        text = str(problem).lower()
        if "eaddrinuse" in text or "address already in use" in text:
            raise PortInUse(
                f"Port {rank_env.port} is in use by another program: set MASTER_PORT to a free port."
            ) from None
        raise _no_first_process(rank_env, limit, problem) from None
    # A group that is started again must not read what the one before left.
    return PrefixStore(f"bloom/{rank_env.restarts}", store)


def _wait_for_host(rank_env: RankEnv, limit: float, *, listening: bool) -> None:
    """Until the name of the first process's host is known and, if wanted, something listens there.

    torch waits too, but up to twice as long, deaf to Ctrl-C, and with a stack trace for each attempt.
    """
    policy = RetryPolicy(_LOOK_SECONDS, _LONGEST_PAUSE_SECONDS, max_seconds=limit)
    is_told = False

    def look() -> None:
        if listening:
            socket.create_connection((rank_env.host, rank_env.port), _CONNECT_SECONDS).close()
        else:
            socket.getaddrinfo(rank_env.host, rank_env.port)

    def wait(problem: Exception, pause: float) -> None:
        nonlocal is_told
        if not is_told:
            _say_waiting(rank_env, [0], limit, problem)
        is_told = True
        time.sleep(pause)

    def is_transient(problem: Exception) -> bool:
        return isinstance(problem, OSError) and not is_host_not_found(problem)

    try:
        retry(look, policy, is_transient=is_transient, wait=wait)
    except OSError as problem:
        if is_host_not_found(problem):
            raise InputError(
                "host_not_found",
                f"MASTER_ADDR is {rank_env.host}, but no host has this name: check its spelling, or set "
                "MASTER_ADDR to the IP address of the machine of rank 0.",
            ) from None
        raise _no_first_process(rank_env, limit, problem) from None


def _no_first_process(rank_env: RankEnv, limit: float, problem: Exception) -> InputError:
    return InputError(
        "rendezvous_timeout",
        f"Rank {rank_env.rank} did not find the first of the {rank_env.size} processes at "
        f"{rank_env.address} within {limit:g} s: start all processes with the same WORLD_SIZE, "
        f"MASTER_ADDR and MASTER_PORT. {_first_line(problem)}",
    )


def _say_waiting(rank_env: RankEnv, ranks: list[int], limit: float, problem: Exception | None = None) -> None:
    if rank_env.host in _THIS_MACHINE:
        return
    whom = f"rank {_listed(ranks)} at {rank_env.address}"
    why = "" if problem is None else f" ({_first_line(problem)})"
    sys.stderr.write(f"Rank {rank_env.rank} waits up to {limit:g} s for {whom}{why}.\n")
    sys.stderr.flush()


def _greet(store: Store, rank_env: RankEnv, deadline: float, limit: float, about: Mapping[str, str]) -> None:
    """Says who this is and hears who the others are."""
    own = {**about, "size": rank_env.size, "host": socket.gethostname()}
    store.set(_hello(rank_env.rank), json.dumps(own))
    # First whether this process belongs here at all: one that does not may wait for others in vain.
    for ranks in ([0, rank_env.rank], range(rank_env.size)):
        _wait_for(store, rank_env, [*ranks], deadline, limit)
        there = {rank: json.loads(store.get(_hello(rank))) for rank in ranks}
        for rank, other in there.items():
            if (difference := _difference(there[0], other, rank)) is not None:
                _say_farewell(store, rank_env)
                raise InputError("ranks_differ", difference)


def _wait_for(store: Store, rank_env: RankEnv, ranks: list[int], deadline: float, limit: float) -> None:
    is_told = False
    while not store.check([_hello(rank) for rank in ranks]):
        missing = [rank for rank in ranks if not store.check([_hello(rank)])]
        if missing and not is_told:
            _say_waiting(rank_env, missing, limit)
            is_told = True
        if time.monotonic() > deadline:
            raise InputError(
                "rendezvous_timeout",
                f"Rank {_listed(missing)} of the {rank_env.size} processes did not connect to "
                f"{rank_env.address} within {limit:g} s (this is rank {rank_env.rank}): check the log of "
                "the missing process, and start all with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
            )
        time.sleep(_LOOK_SECONDS)


def _difference(first: dict[str, Any], other: dict[str, Any], rank: int) -> str | None:
    who, leader = f"rank {rank} on {other['host']}", f"rank 0 on {first['host']}"
    if first["size"] != other["size"]:
        return (
            f"WORLD_SIZE is {other['size']} for {who} and {first['size']} for {leader}: start all processes "
            "with the same value."
        )
    for name in ("gpubloom", "torch"):
        if first.get(name) != other.get(name):
            return (
                f"{who.capitalize()} has {name} {other.get(name)}, but {leader} has {first.get(name)}: "
                "install the same versions on all machines."
            )
    if first["run"] != other["run"]:
        return f"{who.capitalize()} and {leader} train different runs: their config.json files differ."
    return None


def _say_farewell(store: Store, rank_env: RankEnv) -> None:
    store.set(f"read/{rank_env.rank}", "")
    if not rank_env.leads:
        return
    deadline = time.monotonic() + _FAREWELL_SECONDS
    keys = [f"read/{rank}" for rank in range(rank_env.size)]
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
        raise InputError(
            "invalid_variable", f"BLOOM_JOIN_SECONDS is {text!r}, which is not a number of seconds."
        )
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


def set_gloo_interface(host: str, port: int) -> None:
    """Has Gloo use the interface by which `host` is reached, unless GLOO_SOCKET_IFNAME names one."""
    if (name := interface_to(host, port)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_to(host: str, port: int) -> str | None:
    """None where the way does not leave this machine, or cannot be found out: Gloo then chooses itself."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            # Nothing is sent: connecting only chooses the way.
            asking.connect((host, port))
            own = asking.getsockname()[0]
    except OSError:
        return None
    if own.startswith("127."):
        return None
    return next((name for name, address in _addresses() if address == own), None)


def _addresses() -> Iterator[tuple[str, str]]:
    if not sys.platform.startswith("linux"):
        return
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            question = struct.pack("256s", name.encode()[:_NAME_BYTES])
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, question)
            except OSError:
                # It has no address.
                continue
            yield name, socket.inet_ntoa(answer[20:24])
