"""`bloom tensorboard`: a run as TensorBoard's files, and the other way round."""

from pathlib import Path
from typing import Annotated

import typer

from gpubloom.cli.output import refuse

app = typer.Typer(help="A run for TensorBoard, or from it.", no_args_is_help=True)


@app.command("export")
def export_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    folder: Annotated[Path, typer.Argument(help="Where the event files go: an empty folder or a new one.")],
) -> None:
    """Write a run's series as event files."""
    from gpubloom.traincard.interop import export_tensorboard

    try:
        export_tensorboard(run, folder)
    except (ValueError, OSError) as problem:
        refuse(problem)
    typer.echo(f"See it with: tensorboard --logdir {folder}")


@app.command("import")
def import_logs(
    logs: Annotated[Path, typer.Argument(help="A folder with TensorBoard's event files.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory to make.")],
) -> None:
    """Make a run directory of TensorBoard's scalars."""
    from gpubloom.traincard.interop import import_tensorboard

    try:
        count = import_tensorboard(logs, run)
    except (ValueError, OSError) as problem:
        refuse(problem)
    typer.echo(f"{count} values. See them with: bloom watch {run} --once")
