"""The types of the event fields that readers compute with.

A Reporter writes no event with another type, and a reader counts such a line as damaged: one wrong value
must not make a whole run unreadable. Other fields are only shown, and may hold any JSON.
"""

from collections.abc import Mapping
from typing import Any

_NUMBER = (int, float)
_WORDS = {dict: "a dictionary", str: "a text", _NUMBER: "a number"}
_TYPES: dict[str, tuple[tuple[str, Any], ...]] = {
    "start": (("host", str), ("pid", _NUMBER), ("world_size", _NUMBER), ("restart_count", _NUMBER)),
    "metric": (("values", dict),),
    "system": (("values", dict),),
    "describe": (("facts", dict),),
    "progress": (("total_steps", _NUMBER), ("epoch", _NUMBER), ("epochs", _NUMBER)),
    "phase": (("phase", str),),
    "heartbeat": (("expect_next_in", _NUMBER),),
    "resumed": (("from_step", _NUMBER),),
    "applied": (("refused", dict),),
    "dropped": (("counts", dict),),
    "end": (("status", str),),
}


def wrong_field(kind: str, fields: Mapping[str, Any]) -> str | None:
    """What is wrong with the first field of another type; None if all are right. Fields may be absent."""
    for name, wanted in _TYPES.get(kind, ()):
        value = fields.get(name)
        if value is not None and not isinstance(value, wanted):
            return f"{name} must be {_WORDS[wanted]}, not {value!r:.80}"
    return None
