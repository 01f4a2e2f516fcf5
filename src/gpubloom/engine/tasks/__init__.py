"""Tasks: what can be asked of a model besides training it. `python task.py` lands here.

Each kind lives in a module of its own with one function, `run(task, session)`, that returns the answer.
Modules are imported when they are needed: each brings libraries that the others do not want to wait for.
"""

import importlib
from pathlib import Path

from gpubloom.engine.tasks.session import TaskSession, task_session

__all__ = ["TaskSession", "run_task", "task_session"]

_MODULES = {
    "serve": "gpubloom.engine.tasks.serve",
    "evaluate": "gpubloom.engine.tasks.evaluate",
    "export": "gpubloom.engine.tasks.export",
    "find_learning_rate": "gpubloom.engine.tasks.find_learning_rate",
}


def run_task(home: Path) -> None:
    """Does the task of a directory; ends the process with 2 and one sentence on wrong input."""
    with task_session(home) as session:
        module = importlib.import_module(_MODULES[session.task.kind])
        session.finish(module.run(session.task, session))
