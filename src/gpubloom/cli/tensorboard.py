"""`bloom runs tensorboard`: converts a run to TensorBoard event files, and back."""

from pathlib import Path
from typing import Annotated

import typer

from gpubloom.cli.output import echo, refuse
from gpubloom.errors import shell_word

app = typer.Typer(help="Convert a run to TensorBoard event files, or back.", no_args_is_help=True)


@app.command("export")
def export_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    folder: Annotated[Path, typer.Argument(help="New or empty folder for the event files.")],
) -> None:
    """Write the metrics of a run as TensorBoard event files."""
    from gpubloom.traincard.interop import export_tensorboard

    try:
        export_tensorboard(run, folder)
    except (ValueError, OSError) as problem:
        refuse(problem)
    echo(f"Wrote {folder}. To view it: tensorboard --logdir {shell_word(folder)}")


@app.command("import")
def import_logs(
    logs: Annotated[Path, typer.Argument(help="Folder with TensorBoard event files.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="New run directory to write to.")],
) -> None:
    """Create a run directory from the scalars of TensorBoard event files."""
    from gpubloom.traincard.interop import import_tensorboard

    try:
        count = import_tensorboard(logs, run)
    except (ValueError, OSError) as problem:
        refuse(problem)
    echo(f"Imported {count} values. To view them: bloom runs watch {shell_word(run)} --once")
