"""The server as a process: where it listens, how it is told what to serve, and when it ends."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpubloom.errors import InputError
from gpubloom.traincard.live.access_control import Guard
from gpubloom.traincard.live.server import RunServer

DEFAULT_ADDRESS = "127.0.0.1:8081"
# Training goes first wherever the two want the same core.
_NICE = 10


@dataclass(frozen=True)
class ServerConfig:
    """What a server process is told in the first line of its standard input, which then stays open."""

    run_dir: str
    descriptor: int
    token: str
    resumes: bool

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def listen(address: str) -> socket.socket:
    """The socket at HOST:PORT; ValueError in a sentence when that is no address, or taken."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise InputError(
            "invalid_address",
            f"METRICS_SERVER_ADDR is HOST:PORT, such as {DEFAULT_ADDRESS}; not {address!r}.",
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=128)
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)
        raise InputError(
            "cannot_listen",
            f"The metrics server cannot listen on {address} ({reason}). Choose another address: "
            f"METRICS_SERVER_ADDR={host if ':' not in host else f'[{host}]'}:{min(int(port) + 1, 65_535)}",
        ) from None


def address_of(listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = listening.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - only compared
        host = "127.0.0.1" if listening.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(
    run_dir: Path, listening: socket.socket, token: str, *, resumes: bool, until: Callable[[], object]
) -> None:
    """Serves in this process until `until` returns or somebody asks it to stop."""

    async def live() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)

        def wait() -> None:
            until()
            # Already stopped: then there is nobody to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=wait, name="until", daemon=True).start()
        guard = Guard(token, listening.getsockname()[0])
        await RunServer(run_dir, guard, resumes=resumes).serve(listening, ended)

    asyncio.run(live())


def main() -> None:
    """Serves what standard input names, until it closes."""
    order = ServerConfig(**json.loads(sys.stdin.buffer.readline()))
    listening = socket.socket(fileno=order.descriptor)
    os.nice(_NICE)
    serve(Path(order.run_dir), listening, order.token, resumes=order.resumes, until=sys.stdin.buffer.read)
