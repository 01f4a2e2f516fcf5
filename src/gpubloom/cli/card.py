"""`bloom runs card RUN`: a run as one HTML file, to keep or to share."""

from pathlib import Path
from typing import Annotated

import typer

from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("card.html"),
) -> None:
    """Write a run as one HTML file: status, charts, system metrics, checkpoints, logs and errors."""
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard.card import CardNotBuiltError, write_card

    try:
        written = write_card(must_be_run(run), out)
    except (CardNotBuiltError, ValueError) as problem:
        refuse(problem)
    except OSError as problem:
        fail("cannot_write", f"Cannot write {out}: {problem.strerror}.", status=WRONG_INPUT)
    if written.is_file():
        echo(f"Wrote {written} ({written.stat().st_size / 1e6:.1f} MB). Open the file in a browser.")
