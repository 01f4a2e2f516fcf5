"""Makes a task's directory ready for an attempt, and reads its answer. Plain file work."""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import gpubloom
from gpubloom.plan import TrainConfig
from gpubloom.plan.backends import interpreter_for
from gpubloom.plan.tasks import RESULT_FILE, TASK_SCRIPT, task_files, task_from
from gpubloom.server.jobs.kinds import Kind
from gpubloom.server.playground.endpoint import SERVE_FILE
from gpubloom.traincard import ControlFile
from gpubloom.traincard.atomic_write import replace_file

LARGEST_RESULT_BYTES = 4 << 20
_TOKEN_FILE = "hub-token"  # noqa: S105 - a file's name


def command_of(kind: Kind, config: dict[str, Any], attempt: int) -> tuple[str, ...]:
    """What an agent runs in the job's directory."""
    if kind != "train":
        return (sys.executable, TASK_SCRIPT)
    python = interpreter_for(TrainConfig.model_validate(config)) or sys.executable
    return (python, "train.py", *(("--resume",) if attempt > 1 else ()))


def prepare_task(run_dir: Path, config: dict[str, Any], hub_token: str | None) -> None:
    """Write what was asked for, and leave nothing of an earlier attempt that could pass for this one's."""
    run_dir.mkdir(parents=True, exist_ok=True)
    remove_secrets(run_dir)
    (run_dir / RESULT_FILE).unlink(missing_ok=True)
    for name, text in task_files(task_from(config), gpubloom.__version__).items():
        replace_file(run_dir / name, text, durable=True)
    if hub_token is not None:
        _write_secret(run_dir / _TOKEN_FILE, hub_token)
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")


def _write_secret(path: Path, secret: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secret)


def remove_secrets(run_dir: Path) -> None:
    """Called while nothing of the task lives: what only a living process needs must not lie around."""
    for name in (_TOKEN_FILE, SERVE_FILE):
        (run_dir / name).unlink(missing_ok=True)


def read_result(run_dir: Path) -> dict[str, Any] | None:
    """The task's answer, fit for a database; None when there is none."""
    path = run_dir / RESULT_FILE
    try:
        size = path.stat().st_size
        if size > LARGEST_RESULT_BYTES:
            return _only_noted(f"The answer has {size / 1e6:.1f} MB and stays in {RESULT_FILE} of the task.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as problem:
        return _only_noted(f"The answer in {RESULT_FILE} cannot be read: {problem}")
    return _storable(content) if isinstance(content, dict) else _only_noted(f"{RESULT_FILE} holds no object.")


def _only_noted(sentence: str) -> dict[str, Any]:
    return {"notes": [sentence]}


def _storable(value: Any) -> Any:
    """JSON has no NaN, and a database takes no NUL and no lone surrogate."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "")
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(name): _storable(item) for name, item in value.items()}
    return value
