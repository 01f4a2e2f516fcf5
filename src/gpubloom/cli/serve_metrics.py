"""`bloom serve-metrics RUN`: the live dashboard of a run that exists, without database or account."""

import os
import threading
from pathlib import Path
from typing import Annotated

import typer


def serve_metrics(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
) -> None:
    """Serve a run's dashboard at METRICS_SERVER_ADDR (127.0.0.1:8081). Ctrl-C stops serving, not the run."""
    from gpubloom.cli.metrics_server import new_token, wanted_address
    from gpubloom.cli.run_folder import must_be_run
    from gpubloom.traincard.live.process import address_of, listen, serve

    try:
        must_be_run(run)
        listening = listen(wanted_address(os.environ, Path.cwd()))
    except ValueError as problem:
        _refuse(str(problem))
    else:
        token = new_token()
        typer.echo(f"Dashboard: {address_of(listening)}#token={token}")
        # Nothing but a signal ends it.
        serve(run.absolute(), listening, token, resumes=False, until=threading.Event().wait)


def _refuse(sentence: str) -> None:
    typer.echo(f"bloom serve-metrics: {sentence}", err=True)
    raise typer.Exit(2)
