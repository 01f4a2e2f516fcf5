"""What is new in lines that were drawn before.

A line grows at its end, and its last points may still change; now and then it is drawn anew with fewer
points. So a change is: keep so many points, then append these.
"""

from collections.abc import Hashable, Mapping
from typing import Any

# The newest bucket of a curve is the last point of its line, and it alone still changes.
_STILL_CHANGING = 1
_COLUMNS = ("x", "y", "low", "high")


class DrawnLines:
    """The lines as viewers have them."""

    def __init__(self) -> None:
        self._drawn: dict[Hashable, dict[str, Any]] = {}

    def new_in(self, name: Hashable, line: Mapping[str, Any]) -> dict[str, Any] | None:
        """What to keep and what to append; None when the line is as it was."""
        new = {column: line[column] for column in (*_COLUMNS, "last")}
        old = self._drawn.get(name, {column: [] for column in _COLUMNS})
        if new == old:
            return None
        self._drawn[name] = new
        keep = max(0, len(old["x"]) - _STILL_CHANGING)
        if any(new[column][:keep] != old[column][:keep] for column in _COLUMNS):
            keep = 0
        return {"keep": keep, **{column: new[column][keep:] for column in _COLUMNS}, "last": new["last"]}
