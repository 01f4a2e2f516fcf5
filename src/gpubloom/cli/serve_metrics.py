"""`bloom runs serve RUN` and `bloom train --serve-metrics`: a run's live dashboard, without an account.

`bloom runs serve` serves an existing run in this process. `bloom train` starts the server as a child process
that ends with it.
"""

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from gpubloom.cli.output import echo, refuse

if TYPE_CHECKING:
    from rich.console import Console

_VARIABLE = "METRICS_SERVER_ADDR"
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.5


def serve_metrics(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
) -> None:
    """Serve a run's dashboard at METRICS_SERVER_ADDR (127.0.0.1:8081). Ctrl-C stops serving, not the run."""
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.metrics_server.process import address_of, listen, serve

    try:
        must_be_run(run)
        listening = listen(_wanted_address(os.environ, Path.cwd()))
    except ValueError as problem:
        refuse(problem)
    token = _new_token()
    echo(f"Dashboard: {address_of(listening)}#token={token}")
    # Nothing but a signal ends it.
    serve(run.absolute(), listening, token, resumes=False, until=threading.Event().wait)


def _wanted_address(environment: Mapping[str, str], folder: Path) -> str:
    """METRICS_SERVER_ADDR, of the environment or of .env in the current folder."""
    from gpubloom.cli.train_config import read_dotenv
    from gpubloom.metrics_server.process import DEFAULT_ADDRESS

    return environment.get(_VARIABLE) or read_dotenv(folder / ".env").get(_VARIABLE) or DEFAULT_ADDRESS


def _new_token() -> str:
    return secrets.token_urlsafe(16)


class MetricsServer:
    """Listens before the training starts, so that a taken port is an error before anything runs."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._process: subprocess.Popen[bytes] | None = None
        self._order: IO[bytes] | None = None

    def start(self, run_dir: Path, console: "Console") -> None:
        """Serves a run and prints the address."""
        from gpubloom.metrics_server.process import ServerConfig, address_of

        token = _new_token()
        descriptor = self._listening.fileno()
        # A session of its own: Ctrl-C stops the training first, and viewers see that it did.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpubloom.metrics_server"],
            stdin=subprocess.PIPE,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._order = self._process.stdin
        self._order.write(ServerConfig(str(run_dir.absolute()), descriptor, token, resumes=True).line())
        self._order.flush()
        console.print(f"Dashboard: {address_of(self._listening)}#token={token}", soft_wrap=True)
        # Only the server process may hold the socket: if that process dies, connections must fail at once.
        self._listening.close()

    def close(self) -> None:
        """Lets the server send the last state to its viewers, and ends it."""
        self._listening.close()
        if self._process is None or self._order is None:
            return
        self._order.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def metrics_server(is_wanted: bool) -> Iterator[MetricsServer | None]:
    """A server for the run that is about to start, or None; InputError when its port is taken."""
    if not is_wanted:
        yield None
        return
    from gpubloom.metrics_server.process import listen

    server = MetricsServer(listen(_wanted_address(os.environ, Path.cwd())))
    try:
        yield server
    finally:
        server.close()


def wait_for_resume(run_dir: Path) -> None:
    """Returns when a paused run is resumed."""
    from gpubloom.traincard import ControlFile

    control = ControlFile(run_dir)
    while control.read().want != "run":
        time.sleep(_POLL_SECONDS)
