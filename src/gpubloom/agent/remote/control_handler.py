"""Commands for a run on another machine: control.json for trainers that read it, a signal for others."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.agent.files import AgentFiles, AgentRecord
from gpubloom.agent.processes import group_has
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.layout import RunFiles


class ControlHandler:
    """`control_seconds`: how long a trainer that reads control.json has, before it gets a signal."""

    def __init__(
        self, run_dir: Path, control_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._files, self._control = AgentFiles(run_dir), RunFiles(run_dir).control
        self._latest = RunFiles(run_dir).latest
        self._control_seconds, self._clock = control_seconds, clock
        self._asked_at: float | None = None
        self._must_stop = self._signalled = False
        self._orphaned_at: float | None = None

    def take(self, content: Mapping[str, Any]) -> None:
        """Write control.json if this content is newer than what the run has."""
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
            self._asked_at = None
        elif self._asked_at is None:
            self._asked_at = self._clock()

    def signal_if_late(self) -> None:
        """Asks the agent to stop a script that was told to and has not, or that never reads control.json."""
        if self._signalled or (self._asked_at is None and not self._must_stop):
            return
        record = self._read_agent()
        if record is None:
            return
        asked_at = self._clock() if self._asked_at is None else self._asked_at
        is_late = self._clock() - asked_at >= self._control_seconds
        if self._must_stop or is_late or not self._reports(record):
            self._signalled = record.agent.signal(signal.SIGTERM)

    def stop(self) -> None:
        """The instance is about to end: ask the training to stop, whatever control.json says."""
        self._must_stop = True
        self.signal_if_late()

    def end_orphan(self, grace_seconds: float) -> None:
        """Stop a training whose agent was killed: nothing reads its output or enforces its limit."""
        record = self._read_agent()
        if record is None or record.agent.lives or not group_has(record.group, self._files.lock):
            return
        if self._orphaned_at is None:
            self._orphaned_at = self._clock()
            number = signal.SIGTERM
        elif self._clock() - self._orphaned_at >= grace_seconds:
            number = signal.SIGKILL
        else:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(record.group, number)

    def _reports(self, record: AgentRecord) -> bool:
        """Whether the script has a Reporter, and with it control.json; the agent's reports do not count."""
        try:
            latest = read_json_object(self._latest) or {}
        except ValueError:
            return True
        return latest.get("attempt") == record.attempt and latest.get("pid") not in {None, record.agent.pid}

    def _read_agent(self) -> AgentRecord | None:
        try:
            return self._files.read_agent()
        except ValueError:
            return None
