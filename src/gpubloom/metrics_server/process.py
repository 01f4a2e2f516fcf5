"""The metrics server as a process: where it listens, which run it serves, and when it ends."""

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from gpubloom.errors import InputError
from gpubloom.metrics_server.access_control import Guard
from gpubloom.metrics_server.feed import Feed
from gpubloom.metrics_server.server import MAX_CONNECTIONS, RunServer

DEFAULT_ADDRESS = "127.0.0.1:8081"
# Training goes first wherever the two want the same core.
_NICE = 10

_MAX_HEADER_BYTES = 16 * 1024
_MAX_VIEWER_BYTES = 4096
_PING_SECONDS = 30.0
_PONG_SECONDS = 45.0
_CLOSE_SECONDS = 1
# No other site may frame the page, keep it, guess its type or learn its address.
_HEADERS = [
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


@dataclass(frozen=True)
class ServerConfig:
    """The first line of a server process's standard input, which stays open for as long as it serves."""

    run_dir: str
    descriptor: int
    token: str
    resumes: bool

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def listen(address: str) -> socket.socket:
    """The socket at HOST:PORT; InputError when the address is invalid or taken."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise InputError(
            "invalid_address",
            f"METRICS_SERVER_ADDR must be HOST:PORT, such as {DEFAULT_ADDRESS}, not {address!r}.",
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
    """The URL of the server for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - only compared
        host = "127.0.0.1" if listening.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class _Server(uvicorn.Server):
    """A signal sets `ended`, so that viewers get the last state before their connections close."""

    def __init__(self, config: uvicorn.Config, ended: asyncio.Event) -> None:
        super().__init__(config)
        self._ended = ended

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ended.set()


def serve(
    run_dir: Path, listening: socket.socket, token: str, *, resumes: bool, until: Callable[[], object]
) -> None:
    """Serves in this process until `until` returns or a signal arrives."""
    run_server = RunServer(Feed(run_dir, resumes=resumes), Guard(token, listening.getsockname()[0]))
    config = uvicorn.Config(
        run_server.app,
        lifespan="off",
        http="h11",
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        limit_concurrency=2 * MAX_CONNECTIONS,
        ws="websockets-sansio",
        ws_max_size=_MAX_VIEWER_BYTES,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PONG_SECONDS,
        # Compressing each message for each viewer would take time from the training.
        ws_per_message_deflate=False,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=_HEADERS,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )

    async def live() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wait() -> None:
            until()
            # Already stopped: then there is nobody to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=wait, name="until", daemon=True).start()
        server = _Server(config, ended)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        serving.add_done_callback(lambda _: ended.set())
        following = asyncio.create_task(run_server.follow_run())
        await ended.wait()
        following.cancel()
        await run_server.close()
        server.should_exit = True
        await serving

    asyncio.run(live())


def main() -> None:
    """Serves the run that standard input names, until standard input closes."""
    order = ServerConfig(**json.loads(sys.stdin.buffer.readline()))
    listening = socket.socket(fileno=order.descriptor)
    os.nice(_NICE)
    serve(Path(order.run_dir), listening, order.token, resumes=order.resumes, until=sys.stdin.buffer.read)
