"""A task of the training tower in a child process, in a directory of its own that is gone afterwards."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubloom.cli.child_process import Child

if TYPE_CHECKING:
    from gpubloom.plan.tasks import Task

_POLL_SECONDS = 0.05


class TaskFailed(Exception):
    """The child ended with an error that is no answer to wrong input."""


class RunningTask:
    """A task that is being done."""

    def __init__(self, home: Path, child: Child) -> None:
        self.home = home
        self._child = child

    def wait_for(self, name: str, meanwhile: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The JSON of a file that the task writes; ValueError with its own sentence when it refuses."""
        file = self.home / name
        while not file.exists():
            if not self._child.is_alive() and not file.exists():
                sentence = self._child.last_words()
                raise ValueError(sentence) if self._child.wait() == 2 else TaskFailed(sentence)
            meanwhile()
            time.sleep(_POLL_SECONDS)
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def is_alive(self) -> bool:
        return self._child.is_alive()


@contextmanager
def running(task: "Task") -> Iterator[RunningTask]:
    """Starts a task; at the end of the block it is stopped, whatever happened."""
    from gpubloom import __version__
    from gpubloom.cli.child_process import must_have_torch, stopping_signals
    from gpubloom.plan.tasks import task_files

    must_have_torch()
    with tempfile.TemporaryDirectory(prefix="bloom-task-") as folder, stopping_signals():
        home = Path(folder)
        for name, text in task_files(task, __version__).items():
            (home / name).write_text(text, encoding="utf-8")
        child = Child([str(home / "task.py")], home / "logs" / "output.log")
        try:
            yield RunningTask(home, child)
        finally:
            if child.is_alive():
                child.stop()
