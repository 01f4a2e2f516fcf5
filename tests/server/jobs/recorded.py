"""Events as a run would have written them, and the rows that a job needs."""

from typing import Any
from uuid import uuid4

from gpubloom.plan import TrainConfig, detect_hardware, plan
from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.traincard import RunEvent
from tests.server.installation import Installation

START = 1_790_000_000.0


def add_project(installation: Installation, user: User, **changes: Any) -> Project:
    fields = {
        "id": uuid4(),
        "user_id": user.id,
        "name": "P",
        "model_architecture": "transformer",
        "model_size": 0.001,
    }
    return installation.add(Project(**{**fields, **changes}))


def add_job(installation: Installation, user: User, **changes: Any) -> TrainingJob:
    """A job in any state, past the API."""
    if "project_id" not in changes:
        changes["project_id"] = add_project(installation, user).id
    config = TrainConfig.model_validate({"data": {"train_path": "/nowhere"}, "device": "cpu"})
    fields = {
        "id": uuid4(),
        "user_id": user.id,
        "name": "toy",
        "config": config.model_dump(mode="json"),
        "plan": plan(config, detect_hardware(), tokens_per_epoch=1000).model_dump(mode="json"),
    }
    return installation.add(TrainingJob(**{**fields, **changes}))


def metric(step: int, value: float | str, *, attempt: int = 1, seq: int | None = None) -> RunEvent:
    """One step's loss, as the reader hands it on."""
    seq = step if seq is None else seq
    fields = {"seq": seq, "t": START + step, "kind": "metric", "step": step, "values": {"loss": value}}
    return RunEvent(attempt, 0, seq, START + step, "metric", step, fields)


def system(second: int, values: dict[str, float]) -> RunEvent:
    """One look at the machine."""
    fields = {"seq": 10**6 + second, "t": START + second, "kind": "system", "values": values}
    return RunEvent(1, 0, 10**6 + second, START + second, "system", None, fields)
