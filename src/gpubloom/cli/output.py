"""What commands print to standard error besides their answer: an error, a progress bar."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from gpubloom.errors import CodedError, InputError, code_of, error_line, not_text

# Exit statuses: the command failed, its input is wrong, somebody stopped it.
FAILED, WRONG_INPUT, STOPPED = 1, 2, 130


# Colours, titles and whatever else a terminal obeys, then single characters besides tab and line ends.
_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[^\n]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)

# JSON escapes the others by itself.
_UNESCAPED_CONTROLS = re.compile(r"[\x7f-\x9f]")


def without_controls(text: str) -> str:
    """What a script, a model or another person wrote, for a terminal that must not obey it."""
    return _CONTROLS.sub("", text)


def echo(
    text: object = "", *, err: bool = False, nl: bool = True, colour: str | None = None, bold: bool = False
) -> None:
    """Print text of any origin; a terminal obeys nothing in it. Every command prints with this."""
    plain = without_controls(str(text))
    typer.echo(typer.style(plain, fg=colour, bold=bold or None) if colour or bold else plain, err=err, nl=nl)


def json_text(value: Any) -> str:
    """JSON with the letters of every language; what a terminal would obey is escaped, as JSON can."""
    text = json.dumps(_finite(value), ensure_ascii=False, indent=2, default=str, allow_nan=False)
    return _UNESCAPED_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become texts, as in the files of a run."""
    from gpubloom.traincard.number_encoding import encode_number

    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return encode_number(value) if isinstance(value, float) else value


def refuse(problem: Exception) -> NoReturn:
    """End a command whose input is wrong: `error[CODE]: SENTENCE` for each problem."""
    if isinstance(problem, UnicodeEncodeError):
        problem = not_text()
    found = problem if isinstance(problem, CodedError) else InputError(code_of(problem), str(problem))
    _end(found.lines, WRONG_INPUT)


def fail(code: str, sentence: str, *, status: int = FAILED) -> NoReturn:
    """End the command with one problem: `error[CODE]: SENTENCE`."""
    _end([error_line(code, sentence)], status)


def fail_each(problems: Iterable[tuple[str, str]], *, status: int) -> NoReturn:
    """End the command with several problems, each a code and a sentence."""
    _end([error_line(code, sentence) for code, sentence in problems], status)


def report(code: str, sentence: str) -> None:
    """Print a problem that does not end the command here."""
    echo(error_line(code, sentence), err=True)


def size_text(size: int) -> str:
    """Bytes for people: "1.24 GB", "504.0 MB", "1.1 kB", "18 bytes"."""
    if size < 1e5:
        return f"{size / 1e3:,.1f} kB" if size >= 1e3 else f"{size} bytes"
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _end(lines: Iterable[str], status: int) -> NoReturn:
    for line in lines:
        echo(line, err=True)
    raise typer.Exit(status) from None


@contextmanager
def fetching(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar of a download; call the given function with the bytes received and the total."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    from gpubloom.cli.tables import new_console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = new_console(stderr=True)
    # Where nothing can be drawn over, the bar would leave an empty line.
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
