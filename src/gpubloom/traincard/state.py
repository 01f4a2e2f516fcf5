"""The state of a run: a fold over rank 0's events.

The writer keeps it to make latest.json, a viewer can keep it to follow a stream; both get the same answer
because there is one fold. It knows nothing of files.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpubloom.traincard.layout import PROTOCOL_VERSION
from gpubloom.traincard.names import series_name
from gpubloom.traincard.number_encoding import decode_number

# Speed is judged over the last minutes: long enough to average evaluations in, short enough to follow a
# change.
_SPEED_SAMPLES = 60
_SPEED_SAMPLE_SECONDS = 2.0


class RunState:
    """Fed with records in order; `latest()` is what latest.json holds."""

    def __init__(self, previous: Mapping[str, Any] | None = None) -> None:
        before = previous or {}
        self.attempt = 0
        self.restart_count = 0
        self.resumed_from_step: int | None = None
        self.status = "running"
        self.phase: str | None = None
        self.step: int | None = before.get("step")
        self.total_steps: int | None = before.get("total_steps")
        self.epoch: float | None = before.get("epoch")
        self.epochs: float | None = before.get("epochs")
        self.started_at: float | None = None
        self.updated_at: float | None = None
        self.host: str | None = None
        self.pid: int | None = None
        self.world_size = 1
        self.seq = -1
        self.values: dict[str, dict[str, Any]] = dict(before.get("values") or {})
        self.system: dict[str, Any] = dict(before.get("system") or {})
        self.facts: dict[str, Any] = dict(before.get("facts") or {})
        self.checkpoint: dict[str, Any] | None = before.get("checkpoint")
        self.control_version: int | None = None
        self.refused_settings: dict[str, Any] = {}
        """Of the control version in force: settings that the trainer did not take, and why."""
        self.dropped: Counter[str] = Counter()
        self.error: dict[str, Any] | None = None
        self.expect_heartbeat_in: float | None = None
        self.listens = False
        """Whether the loop of this attempt looks for commands; most scripts never do."""
        self._speed: deque[tuple[float, int]] = deque(maxlen=_SPEED_SAMPLES)

    def apply(self, record: Mapping[str, Any]) -> None:
        """Takes one event in; kinds it does not know change only the time."""
        self.apply_all((record,))

    def apply_all(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Takes many in. Of each series only the last value is looked at, which is most of the work."""
        newest: dict[str, dict[str, Any]] = {}
        seen: set[str] = set()
        for record in reversed(records):
            values, tags = record.get("values"), record.get("tags")
            if record.get("kind") != "metric" or not values or (not tags and seen.issuperset(values)):
                continue
            for name, value in values.items():
                # A script may report anything; what is no number has no newest value.
                if isinstance(decode_number(value), (int, float)):
                    newest.setdefault(series_name(name, tags), {"step": record.get("step"), "value": value})
            if not tags:
                seen.update(values)
        self.values.update(newest)
        for record in records:
            self.updated_at = record.get("t", self.updated_at)
            self.seq = record.get("seq", self.seq)
            if take := _TAKE.get(record.get("kind", "")):
                take(self, record)

    def eta_seconds(self) -> float | None:
        """Seconds left at the speed of the last minutes; None while that cannot be known."""
        if self.status != "running" or self.step is None or not self.total_steps or len(self._speed) < 2:
            return None
        (first_t, first_step), (last_t, last_step) = self._speed[0], self._speed[-1]
        if last_step <= first_step or last_t <= first_t:
            return None
        seconds_per_step = (last_t - first_t) / (last_step - first_step)
        return round(max(0, self.total_steps - self.step) * seconds_per_step, 1)

    def latest(self) -> dict[str, Any]:
        """The content of latest.json."""
        return {
            "v": PROTOCOL_VERSION,
            "attempt": self.attempt,
            "restart_count": self.restart_count,
            "resumed_from_step": self.resumed_from_step,
            "status": self.status,
            "phase": self.phase,
            "step": self.step,
            "total_steps": self.total_steps,
            "epoch": self.epoch,
            "epochs": self.epochs,
            "eta_seconds": self.eta_seconds(),
            "started_at": self.started_at,
            "updated_at": self.updated_at,
            "expect_heartbeat_in": self.expect_heartbeat_in,
            "host": self.host,
            "pid": self.pid,
            "world_size": self.world_size,
            "seq": self.seq,
            "values": self.values,
            "system": self.system,
            "facts": self.facts,
            "checkpoint": self.checkpoint,
            "control_version": self.control_version,
            "dropped": dict(self.dropped),
            "error": self.error,
        }

    def _reached(self, step: int, t: float) -> None:
        self.step = step
        if self._speed and step < self._speed[-1][1]:
            self._speed.clear()
        # The newest sample moves until the one before it is old enough: few samples, always the latest step.
        if len(self._speed) >= 2 and self._speed[-1][0] - self._speed[-2][0] < _SPEED_SAMPLE_SECONDS:
            self._speed.pop()
        self._speed.append((t, step))

    def _start(self, record: Mapping[str, Any]) -> None:
        if record.get("continues"):
            # Only a new file of the same process.
            return
        if record.get("attempt") != self.attempt:
            self._speed.clear()
            self.resumed_from_step, self.phase, self.error = None, None, None
            self.started_at = record.get("t")
            self.control_version, self.refused_settings, self.expect_heartbeat_in = None, {}, None
            self.dropped.clear()
            self.listens = False
        self.status = "running"
        self.attempt = record.get("attempt", 0)
        self.restart_count = record.get("restart_count", 0)
        self.host, self.pid = record.get("host"), record.get("pid")
        self.world_size = record.get("world_size", 1)

    def _resumed(self, record: Mapping[str, Any]) -> None:
        self.resumed_from_step = record.get("from_step")
        self.step = self.resumed_from_step
        self._speed.clear()

    def _describe(self, record: Mapping[str, Any]) -> None:
        self.facts.update(record.get("facts") or {})

    def _metric(self, record: Mapping[str, Any]) -> None:
        step = record.get("step")
        self._trains()
        if isinstance(step, int) and (self.step is None or step > self.step):
            self._reached(step, record["t"])

    def _trains(self) -> None:
        # A loop that reports steps and no phases trains.
        if self.phase is None:
            self.phase = "train"

    def _listening(self, record: Mapping[str, Any]) -> None:
        self.listens = True

    def _progress(self, record: Mapping[str, Any]) -> None:
        self._trains()
        for name in ("total_steps", "epoch", "epochs"):
            if name in record:
                setattr(self, name, record[name])
        if isinstance(step := record.get("step"), int):
            self._reached(step, record["t"])

    def _phase(self, record: Mapping[str, Any]) -> None:
        self.phase = record.get("phase")

    def _system(self, record: Mapping[str, Any]) -> None:
        self.system = dict(record.get("values") or {})

    def _heartbeat(self, record: Mapping[str, Any]) -> None:
        if not record.get("auto"):
            self.expect_heartbeat_in = record.get("expect_next_in")

    def _checkpoint(self, record: Mapping[str, Any]) -> None:
        self.checkpoint = {"step": record.get("step"), "path": record.get("path")}

    def _applied(self, record: Mapping[str, Any]) -> None:
        self.control_version, self.listens = record.get("version"), True
        self.refused_settings = dict(record.get("refused") or {})

    def _dropped(self, record: Mapping[str, Any]) -> None:
        self.dropped.update(record.get("counts") or {})

    def _error(self, record: Mapping[str, Any]) -> None:
        self.error = {
            key: record.get(key) for key in ("type", "message", "code", "traceback", "cause", "advice")
        }

    def _end(self, record: Mapping[str, Any]) -> None:
        self.status = record.get("status", "ended")


_TAKE: dict[str, Callable[[RunState, Mapping[str, Any]], None]] = {
    "start": RunState._start,
    "resumed": RunState._resumed,
    "describe": RunState._describe,
    "metric": RunState._metric,
    "progress": RunState._progress,
    "phase": RunState._phase,
    "system": RunState._system,
    "heartbeat": RunState._heartbeat,
    "checkpoint": RunState._checkpoint,
    "applied": RunState._applied,
    "listening": RunState._listening,
    "dropped": RunState._dropped,
    "error": RunState._error,
    "end": RunState._end,
}
