"""`bloom mirror`: a run directory to a bucket, or back."""

import time
from pathlib import Path
from typing import Annotated

import typer

from gpubloom.cli.output import WRONG_INPUT, fail, refuse

_SECONDS = 3.0


def mirror(
    source: Annotated[
        str, typer.Argument(help="A run directory, or where one is mirrored: s3://, gs://, az://.")
    ],
    target: Annotated[str, typer.Argument(help="The other one of the two.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends; Ctrl-C stops.")
    ] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="From a bucket: fetch checkpoints and the final model, too.")
    ] = False,
) -> None:
    """Copy a run to a bucket, or from there, and only what is missing or grew."""
    from gpubloom.traincard.mirror import MirrorError

    if ("://" in source) == ("://" in target):
        fail(
            "invalid_option",
            "give a run directory and the address of a bucket, such as: bloom mirror RUN s3://bucket/runs/RUN",
            status=WRONG_INPUT,
        )
    try:
        if "://" in source:
            _pull(source, Path(target), follow, weights)
        else:
            _push(Path(source), target, follow)
    except (MirrorError, ValueError) as problem:
        refuse(problem)
    except KeyboardInterrupt:
        typer.echo("Stopped. The same command goes on where it was.")


def _push(run: Path, url: str, follow: bool) -> None:
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard.lock import RunLock
    from gpubloom.traincard.mirror import Mirror

    must_be_run(run)
    mirror = Mirror(run, url, every_seconds=_SECONDS)
    if follow:
        mirror.start()
        while RunLock.holder(run) is not None:
            time.sleep(_SECONDS)
    else:
        mirror.start()
    # Somebody waits for this one, so it may take as long as it takes.
    if not mirror.finish(timeout=24 * 3600.0):
        raise typer.Exit(1)
    typer.echo(f"{run} is at {url}.")


def _pull(url: str, folder: Path, follow: bool, weights: bool) -> None:
    from gpubloom.traincard import load_latest
    from gpubloom.traincard.mirror.pull import Puller
    from gpubloom.traincard.mirror.store import MirrorError, first_line

    puller = Puller(url, folder, weights=weights)
    while True:
        try:
            changed = puller.once()
        except MirrorError:
            raise
        except Exception as problem:
            raise MirrorError(
                "bucket_unavailable", f"{url} cannot be read: {first_line(problem)}"
            ) from problem
        latest = load_latest(folder)
        if not follow or (latest is not None and latest["status"] != "running"):
            break
        time.sleep(_SECONDS)
    typer.echo(f"{url} is in {folder} ({changed} files changed). See it with: bloom watch {folder} --once")
