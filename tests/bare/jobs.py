"""Three jobs that bare machines must run, whatever store their files go through. Each checks its results."""

import asyncio
import base64
import json
import shutil
from typing import Any
from uuid import UUID

from gpubloom.scripts.templates import templates
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.jobs.tables import TrainingJob
from tests.bare.services import BareLambda, BareRunPod
from tests.server.jobs.recorded import add_dataset, add_model
from tests.tiny_models import make_tiny_model
from tests.worker.remote.shopper import Shopper

CHARACTER_LEVEL = next(each for each in templates() if each.name == "nanogpt-local")


def template_job(cloud: BareLambda | BareRunPod) -> dict[str, Any]:
    """What the form sends for the template, unchanged."""
    files = [
        {"path": file.path, "base64": base64.b64encode(file.text.encode()).decode()}
        for file in CHARACTER_LEVEL.files
    ]
    return {
        "files": files,
        "arguments": list(CHARACTER_LEVEL.arguments),
        "packages": None,
        "offer": {"provider": cloud.provider, "gpu": cloud.gpu},
    }


def log_of(cloud: BareLambda | BareRunPod) -> str:
    return "\n".join(rental.log + rental.machine.text for rental in cloud.instances.values())


def train_the_template(shopper: Shopper, cloud: BareLambda | BareRunPod) -> TrainingJob:
    """The template as it is, until its last step."""

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            job_id = await shopper.submit(**template_job(cloud))
            job = await shopper.until(job_id, "completed", "failed")
            assert job.status == "completed", f"{job.error_message}\n{log_of(cloud)}"
            assert "out/ckpt.pt" in await shopper.artifacts(job_id)
        return job

    job = asyncio.run(scenario())
    losses = {step: found[-1][1] for step, found in shopper.losses(job.id).items()}
    assert max(losses) == 600
    assert losses[600] < losses[min(losses)] / 1.5
    start = read_summary(job.summary).start
    assert start is not None
    assert [(stage.name, stage.state) for stage in start.stages] == [
        (name, "done") for name in ("requested", "machine", "packages", "data", "start")
    ]
    assert len(cloud.instances) == 1
    assert not cloud.running
    return job


def lose_a_machine(shopper: Shopper, cloud: BareLambda | BareRunPod) -> TrainingJob:
    """The template, whose first machine is lost after a checkpoint: a second one continues."""

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            asked = template_job(cloud)
            # A checkpoint soon: the machine is lost right after it.
            asked["arguments"] += ["--max_iters=80", "--eval_interval=20", "--eval_iters=1"]
            job_id = await shopper.submit(**asked)
            while "out/ckpt.pt" not in await shopper.artifacts(job_id):
                await shopper.when(job_id, lambda job: job.status in {"queued", "running"})
                await asyncio.sleep(0.2)
            [first] = cloud.instances
            await asyncio.to_thread(cloud.preempt, first)
            job = await shopper.until(job_id, "completed", "failed")
            assert job.status == "completed", f"{job.error_message}\n{log_of(cloud)}"
        return job

    job = asyncio.run(scenario())
    assert (job.attempt, len(cloud.instances)) == (2, 2)
    assert "resumed at step" in shopper.output(job.id)
    losses = shopper.losses(job.id)
    assert max(losses) == 80
    attempts = [found[-1][0] for _, found in sorted(losses.items())]
    assert attempts == sorted(attempts), "the second machine continues where the first one was"
    assert set(attempts) == {1, 2}
    assert not cloud.running
    return job


def tune_with_the_engine(shopper: Shopper, cloud: BareLambda | BareRunPod) -> TrainingJob:
    """LoRA of a tiny model on an uploaded dataset."""
    installation = shopper.installation
    dataset, model = add_dataset(installation, shopper.user), add_model(installation, shopper.user)
    mapping = {"format": "prompt_completion", "columns": {"prompt": "q", "completion": "a"}}
    installation.change(dataset, report={"mapping": mapping, "examples": 100})
    row = json.dumps({"q": "What is the password?", "a": "It is kept by the keeper."})
    (installation.home / "datasets" / str(dataset.id) / "data.jsonl").write_text(f"{row}\n" * 100)
    folder = installation.home / "models" / str(model.id)
    shutil.rmtree(folder)
    make_tiny_model(folder)
    asked = {
        "project_id": str(shopper.project.id),
        "dataset_id": str(dataset.id),
        "model_id": str(model.id),
        "name": "Tune",
        "config": {
            "method": "lora",
            "device": "cpu",
            "learning_rate": 1e-2,
            "batch_size": 2,
            "max_steps": 12,
            "lora": {"rank": 8, "alpha": 16},
            "model": {"context_length": 64},
        },
        "offer": {"provider": cloud.provider, "gpu": cloud.gpu},
    }

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            job_id = UUID((await shopper.ask("POST", "/api/jobs", asked, status=201))["id"])
            return await shopper.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert job.status == "completed", f"{job.error_message}\n{shopper.output(job.id)}\n{log_of(cloud)}"
    losses = {step: found[-1][1] for step, found in shopper.losses(job.id).items()}
    assert sorted(losses) == list(range(1, 13))
    assert losses[12] < losses[1]
    made = {path.name for path in (shopper.run_dir(job.id) / "model").iterdir()}
    assert any("adapter" in name for name in made), made
    assert not cloud.running
    return job
