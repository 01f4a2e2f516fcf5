"""From queued events to the records of the protocol; runs on the writer thread.

Consecutive metrics of one step share a record. Several progress events, or heartbeats, become one in which
the last has the say: they are states, not series.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from gpubloom.traincard.capture import OutputLines
from gpubloom.traincard.checkpoints import path_in_run, size_on_disk
from gpubloom.traincard.event_queue import Event, public_kind
from gpubloom.traincard.failure import cause_fields
from gpubloom.traincard.field_types import MOST_STEPS, wrong_field
from gpubloom.traincard.number_encoding import (
    NON_FINITE,
    NotANumberError,
    OnDevice,
    encode_number,
    number,
    plain,
    to_json,
)
from gpubloom.traincard.samples import SAMPLE_CHARACTERS, SAMPLE_PROMPT_CHARACTERS

_STATES = frozenset({"progress", "heartbeat"})
_LOG_CHARACTERS = 16_384
_FACT_CHARACTERS = 4_096
_MESSAGE_CHARACTERS = 8_192


@dataclass
class Record:
    """One line to be, and how many reported events it stands for."""

    fields: dict[str, Any]
    events: int = 1

    @property
    def kind(self) -> str:
        return str(self.fields["kind"])


class RecordMaker:
    """Remembers between turns what is still on its way from a device."""

    def __init__(self, run_dir: Path, complain: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._complain = complain
        self._waiting: list[Event] = []
        self._device_events: dict[Any, Any] = {}
        self._losses_not_finite: set[str] = set()
        self._output = OutputLines()
        self.unreadable: Counter[str] = Counter()

    def make(self, batch: Iterable[Event]) -> list[Record]:
        events = [*self._waiting, *batch]
        self._waiting = []
        records: list[Record] = []
        states: dict[str, Record] = {}
        self._device_events.clear()
        for event in events:
            kind = event[0]
            try:
                if kind in {"metric", "metrics"}:
                    self._add_metric(records, event)
                elif kind in _STATES and kind in states:
                    # Later facts replace earlier ones; a total that was said once still holds.
                    states[kind].fields.update(_fields(event))
                elif kind in _STATES:
                    states[kind] = Record(_fields(event))
                    records.append(states[kind])
                elif kind == "output":
                    records += _log_records(event[1], self._output.add(event[3], event[4], event[5]))
                else:
                    if kind == "end":
                        records += self.rest_of_output(event[1])
                    records.append(Record(self._other(event)))
            except Exception as problem:  # noqa: BLE001 - somebody's odd object must cost one event, not the batch
                self.unreadable[public_kind(kind)] += 1
                self._complain(f"a {public_kind(kind)} event was not recorded: {problem!r}")
        return records

    def rest_of_output(self, t: float) -> list[Record]:
        """What was printed and not yet ended with a line: the last state of a progress bar, a prompt."""
        return _log_records(t, self._output.rest())

    @property
    def is_waiting(self) -> bool:
        """Whether a device still computes a value that was reported."""
        return bool(self._waiting)

    def give_up_waiting(self) -> Counter[str]:
        """Forgets values that a device has not computed; returns how many events that were."""
        lost, self._waiting = len(self._waiting), []
        return Counter(metric=lost) if lost else Counter()

    def limit_waiting(self, most: int) -> Counter[str]:
        """Keeps the newest `most` events that wait for a device; returns what was dropped."""
        lost = max(0, len(self._waiting) - most)
        del self._waiting[:lost]
        return Counter(metric=lost) if lost else Counter()

    def _add_metric(self, records: list[Record], event: Event) -> None:
        kind, t, given_step, names, value, given_tags = event
        step, tags = _whole_number(given_step), _tags(given_tags)
        given = {names: value} if kind == "metric" else names
        if any(isinstance(kept, OnDevice) and not kept.ready(self._device_events) for kept in given.values()):
            self._waiting.append(event)
            return
        values = self._numbers(given)
        if not values:
            return
        # Progress and heartbeats often come between the metrics of a step, and say nothing about their order.
        last = next((record for record in reversed(records[-3:]) if record.kind not in _STATES), None)
        if (
            last is not None
            and last.kind == "metric"
            and last.fields.get("step") == step
            and last.fields.get("tags") == tags
            and last.fields["values"].keys().isdisjoint(values)
        ):
            last.fields["values"].update(values)
            last.events += 1
            return
        fields: dict[str, Any] = {"t": round(t, 4), "kind": "metric"}
        if step is not None:
            fields["step"] = step
        fields["values"] = values
        if tags:
            fields["tags"] = tags
        records.append(Record(fields))

    def _numbers(self, given: dict[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for given_name, kept in given.items():
            name = given_name if type(given_name) is str else _name(given_name)
            if type(kept) is float and not name.endswith("loss") and isfinite(kept):
                # Nearly all values are like this.
                values[name] = kept
                continue
            try:
                value = number(kept)
            except NotANumberError as problem:
                self.unreadable["metric"] += 1
                self._complain(f"the value of metric {name!r} was not recorded: {problem}")
                continue
            if name.endswith("loss"):
                if isfinite(value):
                    self._losses_not_finite.discard(name)
                else:
                    self._losses_not_finite.add(name)
            values[name] = encode_number(value)
        return values

    def _other(self, event: Event) -> dict[str, Any]:
        fields = _fields(event)
        match fields["kind"]:
            case "system":
                fields["values"] = _flat(fields["values"])
            case "log":
                fields["line"] = _cut(str(fields["line"]))
            case "sample":
                fields["prompt"] = _cut(fields["prompt"], SAMPLE_PROMPT_CHARACTERS)
                fields["text"] = _cut(fields["text"], SAMPLE_CHARACTERS)
            case "describe":
                fields["facts"] = {name: _cut_fact(value) for name, value in fields["facts"].items()}
            case "end" if "message" in fields:
                fields["message"] = _cut(str(fields["message"]), _MESSAGE_CHARACTERS)
            case "checkpoint":
                path = fields["path"]
                fields["path"] = path_in_run(path, self._run_dir)
                if fields.get("size") is None:
                    fields["size"] = size_on_disk(Path(path))
            case "checkpoint_removed":
                fields["path"] = path_in_run(fields["path"], self._run_dir)
            case "error":
                fields["message"] = _cut(str(fields.get("message", "")), _MESSAGE_CHARACTERS)
                if "cause" not in fields and self._losses_not_finite:
                    fields.update(cause_fields([], loss_is_finite=False))
        return fields


def _fields(event: Event) -> dict[str, Any]:
    kind, t, step, given, _, _ = event
    fields: dict[str, Any] = {"t": round(t, 4), "kind": public_kind(kind)}
    if (whole := _whole_number(step)) is not None:
        fields["step"] = whole
    values = {name: plain(value) for name, value in given.items() if value is not None}
    if kind in _STATES:
        # A loop without an end has an infinite number of steps: nothing to count down from.
        values = {name: value for name, value in values.items() if str(value) not in NON_FINITE}
    fields.update(values)
    if problem := wrong_field(fields["kind"], fields):
        raise TypeError(problem)
    return fields


def _whole_number(step: Any) -> int | None:
    """A step as a number; None when it is none: the values are then kept without their place."""
    try:
        whole = step if type(step) is int else int(step)
    except (TypeError, ValueError, OverflowError):
        return None
    return whole if abs(whole) < MOST_STEPS else None


def _tags(given: Any) -> Any:
    if not given:
        return None
    return {
        _name(key): _name(value) if isinstance(value, bytes) else plain(value) for key, value in given.items()
    }


def _cut(text: str, most: int = _LOG_CHARACTERS) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]} … (cut: the text has {len(text):,} characters)"


def _cut_fact(value: Any) -> Any:
    """A fact is a line of a table; a whole config belongs to `Reporter.config`."""
    if isinstance(value, str):
        return _cut(value, _FACT_CHARACTERS)
    if isinstance(value, (dict, list)) and len(text := to_json(value)) > _FACT_CHARACTERS:
        return _cut(text, _FACT_CHARACTERS)
    return value


def _log_records(t: float, lines: list[dict[str, Any]]) -> list[Record]:
    return [
        Record({"t": round(t, 4), "kind": "log", **fields, "line": _cut(fields["line"])}) for fields in lines
    ]


def _name(given: Any) -> str:
    # Some frameworks hand out names as they came from a file.
    return given.decode(errors="replace") if isinstance(given, bytes) else str(given)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{name}/"))
        else:
            found[prefix + name] = value
    return found
