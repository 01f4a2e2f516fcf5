"""Line charts in the terminal, drawn with braille dots: two across and four down in every character.

Pure functions from points to text; they know nothing of runs or terminals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_AXIS_WIDTH = 9


@dataclass(frozen=True)
class Line:
    """One curve, in pieces: between pieces nothing is drawn, as at a restart."""

    pieces: Sequence[Sequence[Point]]


def draw(line: Line, width: int, height: int) -> list[str]:
    """Rows of text, `width` × `height` characters: a scale at the left, the steps of both ends below."""
    finite = [[p for p in piece if math.isfinite(p[1])] for piece in line.pieces]
    points = [point for piece in finite for point in piece]
    across, down = max(4, width - _AXIS_WIDTH), max(1, height - 1)
    if not points:
        return ["no values yet".ljust(width)] + [" " * width] * (height - 1)
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    canvas = _Canvas(across, down)
    for piece in finite:
        canvas.connect([_place(point, (left, right), (low, high), canvas) for point in piece])
    rows = [
        f"{_scale(row, down, low, high):>{_AXIS_WIDTH - 1}} {text}" for row, text in enumerate(canvas.rows())
    ]
    first, last = f"{left:g}", f"{right:g}"
    gap = max(1, across - len(first) - len(last))
    rows.append(f"{'':{_AXIS_WIDTH}}{first}{'':{gap}}{last}"[:width].ljust(width))
    return rows


def short(value: float) -> str:
    """A number in few characters: 0.00123 → 1.23e-03, 12345 → 12.3k."""
    size = abs(value)
    if not math.isfinite(value) or size == 0:
        return f"{value:g}"
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.3g}{letter}"
    return f"{value:.4g}" if size >= 1e-3 else f"{value:.2e}"


def _place(
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
        self.dots_across = 2 * width
        self.dots_down = 4 * height

    def connect(self, dots: Sequence[tuple[int, int]]) -> None:
        for (x0, y0), (x1, y1) in pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                self._set(round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps))
        if len(dots) == 1:
            self._set(*dots[0])

    def _set(self, x: int, y: int) -> None:
        self._cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]

    def rows(self) -> list[str]:
        return ["".join(chr(_BRAILLE + cell) if cell else " " for cell in row) for row in self._cells]
