"""Feed: encodes a run as messages for its viewers, once whole and from then on what changed.

One Reading serves all viewers, and every message is made once, so that fifty viewers cost the machine hardly
more than one. A message about a change is a few kilobytes, however long the run is: a line grows at its end,
its last points may still change, and now and then it is condensed to fewer points. A change of a line is
therefore the number of points to keep and the points to append.
"""

import json
import time
from collections import deque
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.card.content import card_content
from gpubloom.traincard.control import ControlFile
from gpubloom.traincard.lock import RunLock
from gpubloom.traincard.reading import Reading
from gpubloom.traincard.snapshot import snapshot

# The newest bucket of a curve is the last point of its line, and it alone still changes.
_STILL_CHANGING = 1
_COLUMNS = ("x", "y", "low", "high", "n")
# Short, and sent whole.
_REPLACED = ("gaps", "last")

# Asked for by number, so many changes back are still told one by one.
_KEPT_CHANGES = 600
# Telemetry comes in seconds apart, and a line over all GPUs changes from end to end.
_SYSTEM_SECONDS = 5.0
_APART = ("made_at", "metrics", "system", "logs", "clock")


class DrawnLines:
    """The lines as viewers have them."""

    def __init__(self) -> None:
        self._drawn: dict[Hashable, dict[str, Any]] = {}

    def new_in(self, name: Hashable, line: Mapping[str, Any]) -> dict[str, Any] | None:
        """What to keep and what to append; None when the line is as it was."""
        new = {column: line[column] for column in (*_COLUMNS, *_REPLACED)}
        old = self._drawn.get(name, {column: [] for column in _COLUMNS})
        if new == old:
            return None
        self._drawn[name] = new
        keep = max(0, len(old["x"]) - _STILL_CHANGING)
        if any(new[column][:keep] != old[column][:keep] for column in _COLUMNS):
            keep = 0
        grown = {column: new[column][keep:] for column in _COLUMNS}
        return {"keep": keep, **grown, **{column: new[column] for column in _REPLACED}}


class Feed:
    """What there is to say about a run. `look` alone takes in what is new."""

    def __init__(self, run_dir: Path, *, resumes: bool) -> None:
        """`resumes`: whether somebody continues the run when it is wanted again after a pause."""
        self.run_dir = run_dir
        self.resumes = resumes
        self._reading = Reading(run_dir)
        self._control = ControlFile(run_dir)
        self._lines = DrawnLines()
        self._sections: dict[str, str] = {}
        self._metrics: dict[str, str] = {}
        self._log_total = 0
        self._system_at = self._clock_at = float("-inf")
        self._clock: list[dict[str, Any]] = []
        self._output: list[str] = []
        self._changes: deque[tuple[int, list[dict[str, Any]]]] = deque(maxlen=_KEPT_CHANGES)
        # Grows with every change, and differs from what an earlier server of the same run said.
        self.revision = int(time.time() * 1000)
        self._whole: tuple[int, str] = (-1, "")
        self._content: dict[str, Any] = {}

    def look(self) -> str | None:
        """Takes in what is new; the message that says so, or None when nothing is."""
        self._reading.update()
        content = card_content(snapshot(self._reading))
        content["control"] = self.control()
        self._content = content
        points = self._new_points(content["metrics"])
        change = {
            "sections": self._changed_sections(content),
            "metrics": self._changed_metrics(content["metrics"]),
            "points": points,
            "log": self._new_log_lines(content["logs"]),
            # First: both come at the same pace.
            "output": self._output_if_due(content["logs"]["output"]),
            "system": self._system_if_due(content["system"]),
            "clock": self._clock_if_due(content["clock"]),
        }
        if not any(change.values()):
            return None
        self.revision += 1
        self._changes.append((self.revision, points))
        counts = {name: content["logs"][name] for name in ("total", "errors")}
        return _json(
            {
                "type": "change",
                "revision": self.revision,
                "made_at": content["made_at"],
                "log_counts": counts,
                **change,
            }
        )

    def whole(self) -> str:
        """The message that begins every conversation: all there is at the last look."""
        if self._whole[0] != self.revision:
            logs = {name: self._content["logs"][name] for name in ("lines", "total", "errors", "output")}
            content = {**self._content, "logs": logs}
            self._whole = (self.revision, _json({"type": "run", "revision": self.revision, "run": content}))
        return self._whole[1]

    def summary(self) -> dict[str, Any]:
        """The run without its curves and lines."""
        content = self._content
        return {
            "revision": self.revision,
            **{name: value for name, value in content.items() if name not in {"system", "logs"}},
            "metrics": [_without_lines(metric) for metric in content["metrics"]],
            "nodes": content["system"]["nodes"],
            "log": {name: content["logs"][name] for name in ("total", "errors")},
        }

    def points_after(self, revision: int | None) -> dict[str, Any]:
        """Points since a revision; all of them when that is too long ago, or none of this server's."""
        known = self._changes[0][0] - 1 if self._changes else self.revision
        complete = revision is None or not known <= revision <= self.revision
        if complete:
            points = [
                {"name": metric["name"], "keep": 0, **line}
                for metric in self._content["metrics"]
                for line in metric["lines"]
            ]
        else:
            assert revision is not None
            points = [point for number, some in self._changes if number > revision for point in some]
        return {"revision": self.revision, "complete": complete, "points": points}

    def control(self) -> dict[str, Any]:
        """What the run is told, and what of it is in force."""
        state = self._reading.state
        found: dict[str, Any] = {
            "resumes": self.resumes,
            "is_held": RunLock.holder(self.run_dir) is not None,
            "listens": state.listens,
            "applied": state.control_version,
            "refused": {str(name): str(why) for name, why in state.refused_settings.items()},
        }
        try:
            command = self._control.read()
        except (OSError, ValueError) as problem:
            return {**found, "version": 0, "want": "run", "set": {}, "problem": str(problem)}
        settings = json.loads(_json(dict(command.set)))
        return {**found, "version": command.version, "want": command.want, "set": settings, "problem": None}

    def _changed_sections(self, content: Mapping[str, Any]) -> dict[str, Any]:
        changed = {}
        for name, value in content.items():
            if name not in _APART and self._sections.get(name) != (text := json.dumps(value)):
                self._sections[name] = text
                changed[name] = value
        return changed

    def _changed_metrics(self, metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
        changed = []
        for metric in metrics:
            short = _without_lines(metric)
            if self._metrics.get(metric["name"]) != (text := json.dumps(short)):
                self._metrics[metric["name"]] = text
                changed.append(short)
        return changed

    def _new_points(self, metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for metric in metrics:
            for line in metric["lines"]:
                where = {"name": metric["name"], "rank": line["rank"], "attempt": line["attempt"]}
                if (new := self._lines.new_in(("metric", *where.values()), line)) is not None:
                    found.append({**where, **new})
        return found

    def _new_log_lines(self, logs: Mapping[str, Any]) -> list[dict[str, Any]]:
        new = min(logs["total"] - self._log_total, len(logs["lines"]))
        self._log_total = logs["total"]
        return list(logs["lines"][-new:]) if new > 0 else []

    def _output_if_due(self, output: list[str]) -> list[str] | None:
        if output == self._output or time.monotonic() - self._system_at < _SYSTEM_SECONDS:
            return None
        self._output = output
        return output

    def _system_if_due(self, system: Mapping[str, Any]) -> dict[str, Any] | None:
        now = time.monotonic()
        if now - self._system_at < _SYSTEM_SECONDS:
            return None
        self._system_at = now
        series = [found for one in system["series"] if (found := self._changed_system(one)) is not None]
        return {"nodes": system["nodes"], "series": series} if series else None

    def _clock_if_due(self, clock: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """A chart along time guesses beyond its newest pair, so a pair every few seconds is enough."""
        now = time.monotonic()
        if now - self._clock_at < _SYSTEM_SECONDS or self._clock == clock:
            return None
        self._clock_at, self._clock = now, clock
        return clock

    def _changed_system(self, series: Mapping[str, Any]) -> dict[str, Any] | None:
        lines = []
        for line in series["lines"]:
            where = {"host": line["host"], "gpu": line["gpu"]}
            if (new := self._lines.new_in(("system", series["name"], *where.values()), line)) is not None:
                lines.append({**where, **new})
        return {**series, "lines": lines} if lines else None


def _without_lines(metric: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metric.items() if name != "lines"}


def _json(content: Any) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"))
