"""`bloom ui`: the web app over a folder of runs, for this machine only. No account, no database."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from gpubloom.cli.output import WRONG_INPUT, echo, fail

_PORT = 8082
_HOST = "127.0.0.1"


def ui(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder with run directories. Default: ./runs, or this folder.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help=f"Port to listen on. [default: {_PORT}, or a free port]"),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Show the runs of a folder in the browser. Needs no account.

    The list, the charts and the comparison of the web app, for this machine only.
    """
    chosen = folder or (Path("runs") if Path("runs").is_dir() else Path())
    if not chosen.is_dir():
        fail("run_not_found", f"There is no folder {chosen}.", status=WRONG_INPUT)
    listening = _listen(port)
    # The modules of the server take some seconds to load.
    echo("Starting …", err=True)
    _serve(chosen.absolute(), listening, opens=browser)


def _listen(port: int | None) -> socket.socket:
    try:
        return socket.create_server((_HOST, _PORT if port is None else port), backlog=128)
    except OSError as problem:
        if port is None:
            # Another `bloom ui` has the usual port.
            return socket.create_server((_HOST, 0), backlog=128)
        reason = os.strerror(problem.errno or 0)
        fail(
            "cannot_listen",
            f"Cannot listen on {_HOST}:{port} ({reason}). Choose another port: --port {port + 1}.",
            status=WRONG_INPUT,
        )


def _serve(folder: Path, listening: socket.socket, *, opens: bool) -> None:
    import threading
    import webbrowser

    import uvicorn

    from gpubloom.server.folder.app import Access, create_folder_app

    access = Access()
    address = f"http://{_HOST}:{listening.getsockname()[1]}/open?token="
    config = uvicorn.Config(
        create_folder_app(folder, access),
        lifespan="off",
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # A page that follows a run must not hold up Ctrl-C.
        timeout_graceful_shutdown=1,
    )
    echo(f"\n  Runs of {folder}:\n\n    {address}{access.token}\n\n  Press Ctrl-C to stop.\n")
    if opens:
        link = f"{address}{access.new_once()}"
        # A browser of the terminal would wait for its person; connections wait for the server.
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
    # uvicorn ends cleanly, and then raises Ctrl-C again.
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
