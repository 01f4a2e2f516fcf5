"""What a run is told from afar: control.json goes where the trainer looks; others get a signal."""

import json
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.agent.files import AgentFiles
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.whole_files import read_json_object, replace_file


class Obedience:
    """`obey_seconds`: how long a trainer that reads control.json has, before it gets a signal."""

    def __init__(
        self, run_dir: Path, obey_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._files, self._control = AgentFiles(run_dir), RunFiles(run_dir).control
        self._events = RunFiles(run_dir).folder
        self._obey_seconds, self._clock = obey_seconds, clock
        self._asked_at: float | None = None
        self._signalled = False

    def take(self, content: Mapping[str, Any]) -> None:
        """Takes over what is newer than what the run knows."""
        version = content.get("version")
        if not isinstance(version, int):
            return
        try:
            known = (read_json_object(self._control) or {}).get("version", 0)
        except ValueError:
            known = 0
        if version > known:
            self._control.parent.mkdir(parents=True, exist_ok=True)
            now = time.time_ns()
            # Trainers look at the file's time first; it must grow even where clocks tick coarsely.
            modified = max(now, self._control.stat().st_mtime_ns + 1) if self._control.exists() else now
            replace_file(self._control, json.dumps(content) + "\n", modified_ns=modified)
        if content.get("want", "run") == "run":
            self._asked_at, self._signalled = None, False
        elif self._asked_at is None:
            self._asked_at = self._clock()

    def insist(self) -> None:
        """Asks the agent to stop a script that was told to and has not, or that never reads control.json."""
        if self._asked_at is None or self._signalled:
            return
        reports = any(self._events.glob("events*.jsonl"))
        if not reports or self._clock() - self._asked_at >= self._obey_seconds:
            self._signalled = self.stop_agent()

    def stop_agent(self) -> bool:
        """False when there is no agent to ask yet, or any more."""
        try:
            record = self._files.read_agent()
        except ValueError:
            return False
        return record is not None and record.agent.signal(signal.SIGTERM)
