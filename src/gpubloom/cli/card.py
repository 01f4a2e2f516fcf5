"""`bloom card RUN`: a run as one HTML file, to keep or to send."""

from pathlib import Path
from typing import Annotated

import typer


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("card.html"),
) -> None:
    """Write a run's card: status, charts, system, checkpoints, logs and failure in one HTML file."""
    from gpubloom.cli.run_folder import must_be_run
    from gpubloom.traincard.card import CardNotBuiltError, write_card
    from gpubloom.traincard.reader import NewerProtocolError

    try:
        written = write_card(must_be_run(run), out)
    except (CardNotBuiltError, NewerProtocolError, ValueError) as problem:
        _refuse(str(problem))
    except OSError as problem:
        _refuse(f"{out} could not be written: {problem.strerror}.")
    else:
        typer.echo(f"Wrote {written} ({written.stat().st_size / 1e6:.1f} MB). Open it in any browser.")


def _refuse(sentence: str) -> None:
    typer.echo(f"bloom card: {sentence}", err=True)
    raise typer.Exit(2)
