"""A process that does one task in its directory: lock, Reporter, signals, result, errors in one sentence."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubloom.engine.session import Signals
from gpubloom.errors import exit_with
from gpubloom.plan.tasks import RESULT_FILE, Task, read_task
from gpubloom.traincard import Reporter, RunInUseError, RunLock
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.lines import PrintingReporter


class Stopped(Exception):
    """Somebody asked the task to stop; nothing is wrong with it."""


@dataclass(frozen=True)
class TaskSession:
    """What a task works with: its directory, its Reporter, and whether somebody wants it to stop."""

    home: Path
    task: Task
    reporter: Reporter
    _signals: Signals

    def stop_wanted(self) -> bool:
        """Asked between pieces of work; from the first time on, signals wait for it."""
        self._signals.deferred = True
        command = self.reporter.control.poll()
        if command is not None:
            self.reporter.applied(command.version)
        return self._signals.status is not None or (command is not None and command.want != "run")

    def keep_going(self) -> None:
        """Raises Stopped when somebody wants the task to stop."""
        if self.stop_wanted():
            raise Stopped

    def finish(self, result: dict[str, Any] | None) -> None:
        if result is not None:
            replace_file(self.home / RESULT_FILE, json.dumps(result, indent=2) + "\n", durable=True)
        self.reporter.finish("completed")


@contextmanager
def task_session(home: Path) -> Iterator[TaskSession]:
    """Opens the task in `home`."""
    signals = Signals()
    home = home.resolve()
    try:
        task = read_task(home)
        lock = RunLock.acquire(home)
        signals.install()
        with PrintingReporter(home, lock=lock) as reporter:
            reporter.phase("load")
            try:
                yield TaskSession(home, task, reporter, signals)
            except Stopped:
                reporter.finish("cancelled")
    except (ValueError, RunInUseError) as problem:
        exit_with(problem)
