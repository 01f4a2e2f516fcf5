"""`bloom serve`: the web app and its API on this machine."""

from typing import Annotated

import typer


def serve(
    port: Annotated[int | None, typer.Option(help="Port to listen on (BLOOM_PORT, PORT; 8000).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (BLOOM_HOST; 127.0.0.1).")] = None,
) -> None:
    """Serve the web app and its API."""
    # Loaded here, so that every other command starts without a web framework.
    from gpubloom.cli.server_process import run_server

    run_server(port=port, host=host)
