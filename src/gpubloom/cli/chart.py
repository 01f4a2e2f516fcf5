"""Line charts in the terminal, drawn with braille dots: two across and four down in every character.

Pure functions from points to text; they know nothing of runs or terminals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from gpubloom.traincard.number_encoding import encode_number

Point = tuple[float, float]

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_AXIS_WIDTH = 9


@dataclass(frozen=True)
class Line:
    """One curve, in pieces: between pieces nothing is drawn, as at a restart."""

    pieces: Sequence[Sequence[Point]]


# A part of a row, and the number of the line that it belongs to; None: of the axes.
Part = tuple[str, int | None]


def draw(line: Line, width: int, height: int) -> list[str]:
    """Rows of text, `width` × `height` characters: a scale at the left, the steps of both ends below."""
    return ["".join(text for text, _ in row) for row in draw_together([line], width, height)]


def draw_together(lines: Sequence[Line], width: int, height: int) -> list[list[Part]]:
    """Several curves on one scale; where two meet, the later one is on top. The caller sets the colours."""
    finite = [[[p for p in piece if math.isfinite(p[1])] for piece in line.pieces] for line in lines]
    points = [point for pieces in finite for piece in pieces for point in piece]
    across, down = max(4, width - _AXIS_WIDTH), max(1, height - 1)
    if not points:
        empty: list[list[Part]] = [[("no values yet".ljust(width), None)]]
        return empty + [[(" " * width, None)] for _ in range(height - 1)]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    canvas = _Canvas(across, down)
    for number, pieces in enumerate(finite):
        for piece in pieces:
            dots = [_dot(point, (left, right), (low, high), canvas) for point in piece]
            canvas.connect(dots, number)
    rows = [
        [(f"{_scale(row, down, low, high):>{_AXIS_WIDTH - 1}} ", None), *parts]
        for row, parts in enumerate(canvas.rows())
    ]
    first, last = f"{left:g}", f"{right:g}"
    gap = max(1, across - len(first) - len(last))
    rows.append([(f"{'':{_AXIS_WIDTH}}{first}{'':{gap}}{last}"[:width].ljust(width), None)])
    return rows


def short(value: float) -> str:
    """A number in few characters: 0.00123 → 1.23e-03, 12345 → 12.3k; NaN, Infinity and -Infinity by name."""
    size = abs(value)
    if not math.isfinite(value) or size == 0:
        return str(encode_number(value)) if size else "0"
    for limit, character in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if character == 'k' else limit):.3g}{character}"
    return f"{value:.4g}" if size >= 1e-3 else f"{value:.2e}"


def _dot(
    point: Point, x_range: tuple[float, float], y_range: tuple[float, float], canvas: "_Canvas"
) -> tuple[int, int]:
    x, y = point
    across = (x - x_range[0]) / (x_range[1] - x_range[0]) if x_range[1] > x_range[0] else 0.0
    # A flat line belongs in the middle, not on the floor.
    up = (y - y_range[0]) / (y_range[1] - y_range[0]) if y_range[1] > y_range[0] else 0.5
    return round(across * (canvas.dots_across - 1)), round((1 - up) * (canvas.dots_down - 1))


def _scale(row: int, rows: int, low: float, high: float) -> str:
    if row == 0:
        return short(high)
    if row == rows - 1 and rows > 1:
        return short(low)
    return ""


class _Canvas:
    def __init__(self, width: int, height: int) -> None:
        self._cells = [[0] * width for _ in range(height)]
        self._owners: list[list[int | None]] = [[None] * width for _ in range(height)]
        self.dots_across = 2 * width
        self.dots_down = 4 * height

    def connect(self, dots: Sequence[tuple[int, int]], owner: int) -> None:
        for (x0, y0), (x1, y1) in pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                self._set(round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps), owner)
        if len(dots) == 1:
            self._set(*dots[0], owner)

    def _set(self, x: int, y: int, owner: int) -> None:
        self._cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
        self._owners[y // 4][x // 2] = owner

    def rows(self) -> list[list[Part]]:
        found = []
        for cells, owners in zip(self._cells, self._owners, strict=True):
            parts: list[Part] = []
            for owner, group in groupby(zip(cells, owners, strict=True), key=lambda each: each[1]):
                text = "".join(chr(_BRAILLE + cell) if cell else " " for cell, _ in group)
                parts.append((text, owner))
            found.append(parts)
        return found
