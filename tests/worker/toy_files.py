"""Has a worker write the toys where it would write the trainer's script or a task's.

Chosen by what a job asks for: a config of the name `toy`, a task about the model `/nowhere`.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from gpubloom.worker import run_directory
from tests.worker.toy_task import TOY_TASK
from tests.worker.toy_training import TOY

TOY_NAME = "toy"
TOY_MODEL = "/nowhere"

_run_files, _task_files = run_directory.run_files, run_directory.task_files


def _with_toy(config: Any, *rest: Any) -> dict[str, str]:
    files = _run_files(config, *rest)
    return {**files, "train.py": TOY} if config.name == TOY_NAME else files


def _with_toy_task(task: Any, *rest: Any) -> dict[str, str]:
    files = _task_files(task, *rest)
    return {**files, "task.py": TOY_TASK} if getattr(task, "model", None) == TOY_MODEL else files


def use_toys(patch: pytest.MonkeyPatch) -> None:
    """For workers in this process."""
    patch.setattr(run_directory, "run_files", _with_toy)
    patch.setattr(run_directory, "task_files", _with_toy_task)


_SITE = """\
import sys
if "worker" in sys.orig_argv:
    import pytest
    from tests.worker.toy_files import use_toys
    use_toys(pytest.MonkeyPatch())
"""


def path_with_toys(home: Path) -> str:
    """PYTHONPATH for workers in processes of their own: Python imports `sitecustomize` when it starts."""
    site = home / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE)
    return os.pathsep.join([str(site), str(Path(__file__).parents[2])])
