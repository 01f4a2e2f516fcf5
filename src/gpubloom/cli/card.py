"""`bloom card RUN`: a run as one HTML file, to keep or to send."""

from pathlib import Path
from typing import Annotated

import typer


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("card.html"),
) -> None:
    """Write a run's card: status, charts, system, checkpoints, logs and failure in one HTML file."""
    from gpubloom.traincard.card import CardNotBuiltError, write_card
    from gpubloom.traincard.reader import NewerProtocolError

    if not (run / "traincard").is_dir():
        _refuse(f"{run} is not a run directory: it has no traincard folder.")
    try:
        written = write_card(run, out)
    except (CardNotBuiltError, NewerProtocolError) as problem:
        _refuse(str(problem))
    except OSError as problem:
        _refuse(f"{out} could not be written: {problem}")
    else:
        typer.echo(f"Wrote {written} ({written.stat().st_size / 1e6:.1f} MB). Open it in any browser.")


def _refuse(sentence: str) -> None:
    typer.echo(f"bloom card: {sentence}", err=True)
    raise typer.Exit(2)
