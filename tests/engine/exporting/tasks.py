"""Runs an export as a process does, but in this one."""

import json
from pathlib import Path
from typing import Any

from gpubloom.engine.tasks import run_task
from gpubloom.plan.tasks import ExportTask, task_files


def write_task(home: Path, **fields: Any) -> Path:
    task = ExportTask.model_validate({"device": "cpu"} | fields)
    home.mkdir(parents=True, exist_ok=True)
    for name, text in task_files(task, "0").items():
        (home / name).write_text(text)
    return home


def export(home: Path, **fields: Any) -> dict[str, Any]:
    run_task(write_task(home, **fields))
    return dict(json.loads((home / "result.json").read_text()))
