"""The types of the event fields that readers compute with.

A Reporter writes no event with another type, and a reader counts such a line as damaged: one wrong value
must not make a whole run unreadable. Other fields are only shown, and may hold any JSON.
"""

import sys
from collections.abc import Mapping
from typing import Any

# A step that no run can reach is a damaged line; as a number in a curve it would not fit.
MOST_STEPS = 1 << 53
# The end of the year 9999, the last moment that a date can name.
_LAST_MOMENT = 253_402_300_799

_NUMBER = (int, float)
_WORDS = {dict: "a dictionary", str: "a text", _NUMBER: "a number"}
_TYPES: dict[str, tuple[tuple[str, Any], ...]] = {
    "start": (("host", str), ("pid", _NUMBER), ("world_size", _NUMBER), ("restart_count", _NUMBER)),
    "metric": (("values", dict), ("tags", dict)),
    "system": (("values", dict),),
    "describe": (("facts", dict),),
    "progress": (("total_steps", _NUMBER), ("epoch", _NUMBER), ("epochs", _NUMBER)),
    "phase": (("phase", str),),
    "heartbeat": (("expect_next_in", _NUMBER),),
    "resumed": (("from_step", _NUMBER),),
    "applied": (("refused", dict),),
    "checkpoint": (("path", str), ("metrics", dict)),
    "dropped": (("counts", dict),),
    "error": (("type", str), ("message", str), ("traceback", str), ("cause", str)),
    "end": (("status", str), ("message", str)),
}


def wrong_field(kind: str, fields: Mapping[str, Any]) -> str | None:
    """What is wrong with the first field of another type; None if all are right. Fields may be absent."""
    for name, wanted in _TYPES.get(kind, ()):
        value = fields.get(name)
        if value is None or (isinstance(value, wanted) and (wanted is not _NUMBER or _is_finite(value))):
            continue
        return f"{name} must be {_WORDS[wanted]}, not {value!r:.80}"
    return None


def _is_finite(number: float) -> bool:
    """Whether it fits into a float: JSON knows whole numbers of any length."""
    return -sys.float_info.max <= number <= sys.float_info.max


def read_head(fields: Any) -> tuple[int, float, str, int | None] | None:
    """seq, t, kind and step of an event; None for what no Reporter writes, there or in another field."""
    try:
        step, t, seq = fields.get("step"), fields["t"], int(fields["seq"])
        if not isinstance(t, (int, float)) or not (step is None or abs(step) < MOST_STEPS):
            return None
        if not 0 <= t <= _LAST_MOMENT or not 0 <= seq < MOST_STEPS or wrong_field(fields["kind"], fields):
            return None
        return seq, float(t), str(fields["kind"]), None if step is None else int(step)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
