"""The values in a stretch of events, by series.

What has to be done for a value (finding its name, its curve) is then done once for a series: a run that
reports ten values twenty times a second is followed at a fraction of the cost.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpubloom.traincard.names import series_name
from gpubloom.traincard.number_encoding import decode_number

Points = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""x, value and time of each point. x is the step, or the time where the value is telemetry."""

Record = Mapping[str, Any]


def points_by_series(records: Sequence[Record]) -> dict[str, Points]:
    """The points in events of one rank and attempt, as they are on file; other kinds have none."""
    with_values = [
        record
        for record in records
        if record["kind"] in {"metric", "system"} and isinstance(record.get("values"), dict)
    ]
    alike: dict[tuple[Any, ...], list[Record]] = {}
    for record in with_values:
        alike.setdefault((record["kind"], str(record.get("tags")), *record["values"]), []).append(record)
    found: dict[str, Points] = {}
    for some in alike.values():
        x, times = [_x(record) for record in some], [record["t"] for record in some]
        columns = zip(*(record["values"].values() for record in some), strict=True)
        for name, column in zip(_names(some[0]), columns, strict=True):
            values = _floats(column)
            if name in found or values is None:
                return _one_by_one(with_values)
            found[name] = (x, values, times)
    return found


def _floats(column: tuple[Any, ...]) -> tuple[float, ...] | None:
    try:
        return tuple(map(float, column)) if set(map(type, column)) <= {float, int} else None
    except OverflowError:
        return None


def _one_by_one(records: Sequence[Record]) -> dict[str, Points]:
    """For records of several shapes that share a series, and for what is no number: in their order."""
    found: dict[str, tuple[list[float], list[float], list[float]]] = {}
    for record in records:
        x, t = _x(record), record["t"]
        for name, stored in zip(_names(record), record["values"].values(), strict=True):
            if (value := _number(stored)) is not None:
                points = found.setdefault(name, ([], [], []))
                points[0].append(x)
                points[1].append(value)
                points[2].append(t)
    return dict(found)


def _names(record: Record) -> list[str]:
    if record["kind"] == "system":
        return [f"system/{name}" for name in record["values"]]
    tags = record.get("tags")
    return [series_name(name, tags) for name in record["values"]]


def _x(record: Record) -> Any:
    # Telemetry belongs to a moment, not to a step.
    if record["kind"] == "system":
        return record["t"]
    step = record.get("step")
    return record["seq"] if step is None else step


def _number(stored: Any) -> float | None:
    value = decode_number(stored)
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        # JSON knows whole numbers of any length.
        return None
