"""A stream's beginning in small: curves in buckets, and the events that a view needs, beside the raw lines.

`bytes` says how much of the stream is in it. A tail only grows and sealing changes no byte, so a reader goes
on with the raw lines right behind that place. It is derived: without it a reader reads more, not less.
"""

import math
import os
import re
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.field_types import MOST_STEPS, read_head
from gpubloom.traincard.layout import PROTOCOL_VERSION, RunFiles, StreamId
from gpubloom.traincard.number_encoding import decode_number, to_json
from gpubloom.traincard.safe_paths import read_json_beneath

# A writer keeps some hundred thousand buckets of nine numbers at most.
_LARGEST_BYTES = 256 << 20
# The columns of a curve: x of the first and last point, lowest, highest, sum of finite values, last value and
# its time, number of points and of finite ones among them.
COLUMNS = ("first", "last", "low", "high", "total", "value", "time", "count", "finite")
_COUNTS = frozenset({"count", "finite"})
_PLACES = frozenset({"first", "last", "time"})
# No run reports more points; the sum of all buckets must fit into 64 bits.
_MOST_POINTS = 1 << 50
_LEFT_OUT = ("log_lines_left_out", "log_errors_left_out", "series_left_out")
_BYTES = re.compile(rb'\{"v":%d,"bytes":(\d+),' % PROTOCOL_VERSION)


def load_condensed(files: RunFiles, stream: StreamId) -> dict[str, Any] | None:
    """What is condensed of a stream; None when there is nothing, or nothing that this version can use."""
    try:
        name = files.condensed(stream).relative_to(files.run_dir).as_posix()
        found = read_json_beneath(files.run_dir, name, most=_LARGEST_BYTES)
    except (OSError, ValueError):
        return None
    if found is None or found.get("v") != PROTOCOL_VERSION:
        return None
    numbers = [found.get("bytes"), *(found.get(name, 0) for name in _LEFT_OUT)]
    events = found.get("events")
    if not all(isinstance(number, int) and 0 <= number < _MOST_POINTS for number in numbers):
        return None
    # The raw lines say the same, and a reader of them leaves out only what is wrong.
    if read_head({**found, "kind": "condensed"}) is None or not isinstance(found["seq"], int):
        return None
    if not isinstance(events, list) or any(read_head(event) is None for event in events):
        return None
    try:
        found["series"] = {name: _columns(stored) for name, stored in found["series"].items()}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    return found


def _columns(stored: Mapping[str, Any]) -> dict[str, "array[Any]"]:
    """The buckets of one curve. What no writer stores raises what `load_condensed` expects."""
    columns = {name: _column(name, stored[name]) for name in COLUMNS}
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError
    return columns


def _column(name: str, stored: list[Any]) -> "array[Any]":
    if name in _COUNTS:
        counts = array("q", stored)
        if counts and not 0 <= min(counts) <= max(counts) < _MOST_POINTS:
            raise ValueError
        return counts
    # NaN and the infinities are stored as words.
    if str in set(map(type, stored)):
        stored = [decode_number(number) for number in stored]
    column = array("d", stored)
    if name in _PLACES and not (math.isfinite(sum(column)) and max(map(abs, column), default=0) < MOST_STEPS):
        raise ValueError
    return column


def condensed_bytes(files: RunFiles, stream: StreamId) -> int:
    """How much of a stream is condensed, from the first bytes of the file; 0 when nothing is."""
    try:
        with files.condensed(stream).open("rb") as file:
            found = _BYTES.match(file.read(64))
    except OSError:
        return 0
    return int(found[1]) if found else 0


def save_condensed(path: Path, head: Mapping[str, Any], series: Iterator[tuple[str, Any]]) -> None:
    """Replaces the file, series by series: one long call to the encoder would hold up the training thread."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="ascii") as file:
            file.write(f'{to_json({"v": PROTOCOL_VERSION, **head})[:-1]},"series":{{')
            separator = ""
            for name, columns in series:
                file.write(f"{separator}{to_json(name)}:{to_json(columns)}")
                separator = ","
            file.write("}}\n")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
