"""Events as a run would have written them, and the rows that a job needs."""

import json
from typing import Any
from uuid import uuid4

from gpubloom.plan import TrainConfig, detect_hardware, plan
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.models.tables import Model
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


def add_dataset(installation: Installation, user: User, **changes: Any) -> Dataset:
    """A dataset of two messages, inspected, with its file where the server keeps it."""
    fields = {
        "id": uuid4(),
        "user_id": user.id,
        "name": "chats",
        "filename": "chats.jsonl",
        "source": "upload",
        "status": "ready",
        "report": {"mapping": {"format": "prompt_completion", "columns": {"prompt": "q"}}, "examples": 2},
    }
    dataset = installation.add(Dataset(**{**fields, **changes}))
    file = installation.home / "datasets" / str(dataset.id) / "data.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"q": "Who?", "completion": "Ada."}\n' * 200)
    return dataset


def add_model(installation: Installation, user: User, **changes: Any) -> Model:
    """A checked model: the small files of a folder, which is all that a plan reads."""
    fields = {
        "id": uuid4(),
        "user_id": user.id,
        "name": "tiny-llama",
        "source": "upload",
        "status": "ready",
        "check": {"ok": True, "findings": []},
    }
    model = installation.add(Model(**{**fields, **changes}))
    folder = installation.home / "models" / str(model.id)
    folder.mkdir(parents=True)
    shape = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 300,
        "max_position_embeddings": 512,
    }
    (folder / "config.json").write_text(json.dumps(shape))
    (folder / "tokenizer.json").write_text("{}")
    return model


def add_training(installation: Installation, user: User, **changes: Any) -> TrainingJob:
    """A training that is over, with a finished model and one checkpoint."""
    job = add_job(installation, user, **{"status": "completed", "machine": "here", **changes})
    run_dir = installation.home / "runs" / str(job.id)
    (run_dir / "model").mkdir(parents=True)
    (run_dir / "model/config.json").write_text("{}")
    add_checkpoint(installation, job, 10, best=True)
    return job


def add_checkpoint(installation: Installation, job: TrainingJob, step: int, **changes: Any) -> Checkpoint:
    """A checkpoint of a training, with its folder."""
    folder = installation.home / "runs" / str(job.id) / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    fields = {
        "id": uuid4(),
        "job_id": job.id,
        "attempt": 1,
        "step": step,
        "path": str(folder),
        "size": 100,
        "metrics": {"eval/loss": 1.5},
        "best": False,
        "saved_at": now(),
    }
    return installation.add(Checkpoint(**{**fields, **changes}))


def metric(step: int, value: float | str, *, attempt: int = 1, seq: int | None = None) -> RunEvent:
    """One step's loss, as the reader hands it on."""
    seq = step if seq is None else seq
    fields = {"seq": seq, "t": START + step, "kind": "metric", "step": step, "values": {"loss": value}}
    return RunEvent(attempt, 0, seq, START + step, "metric", step, fields)


def system(second: int, values: dict[str, float]) -> RunEvent:
    """One look at the machine."""
    fields = {"seq": 10**6 + second, "t": START + second, "kind": "system", "values": values}
    return RunEvent(1, 0, 10**6 + second, START + second, "system", None, fields)
