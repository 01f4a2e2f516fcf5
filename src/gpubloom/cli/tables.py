"""Tables and lists that fit the terminal: ids and numbers are never cut, only text wraps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from gpubloom.cli.output import without_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# How a column fits: an id keeps its width, a number as well and stands at the right, text wraps.
Fit = Literal["id", "number", "text"]
# Columns that a name gets before other columns are left out for it.
_NAME_WIDTH = 32


def new_console(width: int | None = None, *, stderr: bool = False, markup: bool = False) -> "Console":
    """A console that prints text without markup, emoji names, highlighting, and what a terminal would obey.

    With `markup`, whoever prints escapes every text that is not its own.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                # Of rich itself: where the cursor goes.
                is_own = segment.control is not None
                yield segment if is_own else Segment(without_controls(segment.text), segment.style)

    return PlainConsole(highlight=False, markup=markup, emoji=False, width=width, stderr=stderr)


def new_table(columns: Mapping[str, Fit], *, gap: int = 2) -> "Table":
    """A table with these headings, without lines; columns are `gap` spaces apart."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for heading, fit in columns.items():
        justify: Literal["left", "right"] = "right" if fit == "number" else "left"
        table.add_column(heading, justify=justify, no_wrap=fit != "text", overflow="fold")
    return table


def print_table(
    columns: Mapping[str, Fit], rows: Iterable[Sequence[str]], *, width: int | None = None
) -> None:
    from rich.text import Text

    table = new_table(columns)
    for row in rows:
        # As Text: a name with brackets is no markup.
        table.add_row(*(Text(cell) for cell in row))
    new_console(width).print(table)


def fitting_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The positions of the columns that fit beside the first two; the first one is text that may wrap.

    If some do not fit, columns that are empty ("–") in every row get no room either.
    """
    widths = [max(len(text) for text in (name, *(row[n] for row in rows))) for n, name in enumerate(columns)]
    widths[0] = min(widths[0], _NAME_WIDTH)
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        return list(range(len(columns)))
    chosen = [0, 1]
    for n in range(2, len(columns)):
        has_value = any(row[n] != "–" for row in rows)
        if has_value and sum(widths[m] + 2 for m in chosen) + widths[n] <= width:
            chosen.append(n)
    return chosen


def wrap_parts(parts: Iterable[str], width: int, *, indent: str = "") -> list[str]:
    """Parts joined in lines of at most `width` characters; a line only breaks between two parts."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(" · ") + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(f"{indent}{part}")
    return lines
