"""What a person at the dashboard may tell a run, checked and written to control.json."""

import json
import math
from typing import Any, NoReturn

from gpubloom.traincard.control import ControlFile
from gpubloom.traincard.live.feed import Feed
from gpubloom.traincard.live.http import Rejected

_FIELDS = ("want", "save", "set")
_MOST_SETTINGS = 20


def apply_commands(feed: Feed, body: bytes) -> None:
    """Writes down {"want": "pause" | "run"}, {"save": true}, {"set": {name: value}}, or several of them."""
    asked = _parsed(body)
    want, save, settings = asked.get("want"), asked.get("save", False), asked.get("set")
    _check(want, save, settings)
    if want == "run":
        _check_resuming(feed)
    control = ControlFile(feed.run_dir)
    try:
        if settings:
            control.set(settings)
        if save:
            control.save()
        if want:
            control.want(want)
    except (OSError, ValueError) as problem:
        raise Rejected(500, f"control.json could not be changed: {problem}.") from None


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body, parse_constant=_no_number)
    except ValueError:
        raise Rejected(400, "The request is not JSON.") from None
    if not isinstance(asked, dict) or not asked or set(asked) - set(_FIELDS):
        raise Rejected(400, f"A command is an object with one or more of: {', '.join(_FIELDS)}.")
    return asked


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def _check(want: object, save: object, settings: object) -> None:
    if want not in (None, "run", "pause"):
        raise Rejected(422, "want is run or pause.")
    if not isinstance(save, bool):
        raise Rejected(422, "save is true or false.")
    if settings is None:
        return
    if not isinstance(settings, dict) or len(settings) > _MOST_SETTINGS:
        raise Rejected(422, f"set is an object of at most {_MOST_SETTINGS} settings.")
    for name, value in settings.items():
        is_plain = value is None or isinstance(value, str | bool | int | float)
        # 1e999 is valid JSON, and infinite.
        if not is_plain or (isinstance(value, float) and not math.isfinite(value)) or len(str(value)) > 200:
            raise Rejected(422, f"{name[:100]} is set to a number, a short text, true, false or null.")


def _check_resuming(feed: Feed) -> None:
    """A run that has ended goes on only when somebody is there to start it."""
    if not feed.resumes and not feed.control()["is_held"]:
        raise Rejected(
            409, f"The run's process has ended. Continue it with: bloom train --resume {feed.run_dir}"
        )
