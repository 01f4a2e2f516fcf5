"""`bloom up`: server and worker together, each restarted when it dies. What `make run` runs."""

from typing import Annotated

import typer


def up(
    port: Annotated[int | None, typer.Option(help="Port to listen on (BLOOM_PORT, PORT; 8000).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (BLOOM_HOST; 127.0.0.1).")] = None,
) -> None:
    """Serve the web app and work on its jobs, on this machine."""
    from gpubloom.cli.listening import listen, usable_settings, wanted_port
    from gpubloom.cli.parent import run_both

    # A mistake is said once, and before anything is started.
    listen(usable_settings(port=wanted_port(port), host=host)).close()
    arguments = [*(("--port", str(port)) if port is not None else ()), *(("--host", host) if host else ())]
    raise typer.Exit(run_both(arguments))
