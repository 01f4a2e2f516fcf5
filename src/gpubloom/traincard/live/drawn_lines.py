"""What is new in lines that were drawn before.

A line grows at its end, and its last points may still change; now and then it is drawn anew with fewer
points. So a change is: keep so many points, then append these.
"""

from collections.abc import Hashable, Mapping
from typing import Any

# The newest bucket of a curve is drawn as at most two points, and it alone still changes.
_STILL_CHANGING = 2


class DrawnLines:
    """The lines as viewers have them."""

    def __init__(self) -> None:
        self._drawn: dict[Hashable, tuple[list[Any], list[Any]]] = {}

    def new_in(self, name: Hashable, line: Mapping[str, Any]) -> dict[str, Any] | None:
        """What to keep and what to append; None when the line is as it was."""
        x, y = line["x"], line["y"]
        old_x, old_y = self._drawn.get(name, ([], []))
        if x == old_x and y == old_y:
            return None
        self._drawn[name] = (x, y)
        keep = max(0, len(old_x) - _STILL_CHANGING)
        if x[:keep] != old_x[:keep] or y[:keep] != old_y[:keep]:
            keep = 0
        return {"keep": keep, "x": x[keep:], "y": y[keep:]}
