"""`bloom runs mirror`: copies a run directory to a bucket, or back."""

import time
from pathlib import Path
from typing import Annotated

import typer

from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse
from gpubloom.errors import shell_word

_SECONDS = 3.0


def mirror(
    source: Annotated[
        str, typer.Argument(help="Run directory, or bucket address of a run: s3://, gs:// or az://.")
    ],
    target: Annotated[str, typer.Argument(help="Bucket address, or folder to write to.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep copying until the run ends; Ctrl-C stops.")
    ] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="From a bucket: also download checkpoints and the final model.")
    ] = False,
) -> None:
    """Copy a run to a bucket or from a bucket.

    Only new data is copied.
    """
    from gpubloom.traincard.mirror import MirrorError

    if ("://" in source) == ("://" in target):
        fail(
            "invalid_option",
            "Name one run directory and one bucket address, such as: bloom runs mirror RUN s3://bucket/runs/RUN",
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
        echo("Stopped. Run the same command again to continue.")


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
    # The user waits for this upload, so it has no short time limit.
    if not mirror.finish(timeout=24 * 3600.0):
        # The mirror has printed the reason, and the command that continues.
        fail(
            "bucket_unavailable",
            f"{run} is not completely in {url}. Check the address, its keys and the connection.",
        )
    echo(f"Copied {run} to {url}.")


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
            raise MirrorError("bucket_unavailable", f"Cannot read {url}: {first_line(problem)}") from problem
        latest = load_latest(folder)
        if not follow or (latest is not None and latest["status"] != "running"):
            break
        time.sleep(_SECONDS)
    echo(
        f"Copied {url} to {folder} ({changed} files changed). "
        f"To view it: bloom runs watch {shell_word(folder)} --once"
    )
