"""The samples of the first descriptions of the product are accepted word for word; only ids are filled in."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic.alias_generators import to_snake

from gpubloom.plan import Gpu, Hardware, TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.curves import Axis
from gpubloom.server.jobs.tables import MetricPoint, MetricSeries, TrainingJob, Worker
from gpubloom.server.ml_jobs import service
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job

_SECTION = (Path(__file__).parent / "samples/first_description.md").read_text(encoding="utf-8")
# Title to the text of its sample, byte for byte as in the description.
SAMPLES = dict(re.findall(r"\*\*([^*]+):\*\*\n```json\n(.*?)```", _SECTION, re.DOTALL))
JOBS = [title for title in SAMPLES if title.startswith("Training Job")]
METRICS = [title for title in SAMPLES if title.startswith("Training Metric")]
JSON = {"Content-Type": "application/json"}
# A series to its column in the samples, its axis, and how many of its units are one of the column's.
SERIES: dict[str, tuple[str, Axis, int]] = {
    "train/loss": ("loss", "step", 1),
    "train/learning_rate": ("learningRate", "step", 1),
    "train/samples_per_second": ("throughput", "step", 1),
    "system/gpu/0/utilization": ("gpuUtilization", "time", 1),
    "system/cpu/utilization": ("cpuUtilization", "time", 1),
    "system/ram/used": ("memoryUsage", "time", 1_000_000),
}
NANOGPT = """\
# Typical nanoGPT training script
import torch
from model import GPT

# Requires:
# - GPU with 8-16GB VRAM
# - 2-8 hours runtime
# - PyTorch with CUDA
# - Access to datasets (shakespeare, openwebtext)
# - Ability to save checkpoints
# - TensorBoard logging

model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768)
model.to('cuda')
# ... training loop
"""
REQUIREMENTS = {"gpu_memory": 8, "duration_hours": 1, "framework": "pytorch", "interactive": False}


@pytest.fixture(autouse=True)
def _the_machine_of_the_samples(installation: Installation, server: Server) -> None:
    h200 = Gpu(name="NVIDIA H200", memory_bytes=150 * 10**9)
    hardware = Hardware(name="box", host_memory_bytes=2048 * 10**9, cpu_cores=64, gpus=(h200,))
    installation.add(Worker(id=uuid4(), name="box:1", hardware=hardware.model_dump(mode="json")))


def _post(ada: Browser, address: str, body: dict[str, Any] | str) -> dict[str, Any]:
    text = body if isinstance(body, str) else json.dumps(body)
    answer = ada.post(address, content=text, headers=JSON)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def _sample(title: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SAMPLES[title])
    return found


def test_there_are_samples_of_everything() -> None:
    assert (len(SAMPLES), len(JOBS), len(METRICS)) == (8, 4, 2)


def test_the_sample_user_is_shown_as_described(server: Server, installation: Installation) -> None:
    described = _sample("User")
    alice = installation.add_user(name=described["name"], email=described["email"])
    shown = server.signed_in(alice).get("/api/me").json()
    assert {name: shown[name] for name in described} == {**described, "id": str(alice.id)}


def test_the_sample_project_is_kept_as_it_was_described(ada: Browser, member: User) -> None:
    described = _sample("Project")
    made = _post(ada, "/api/projects", SAMPLES["Project"])
    set_here = {"id": made["id"], "userId": str(member.id), "createdAt": made["createdAt"]}
    assert {name: made[name] for name in described} == {**described, **set_here}
    assert made["id"] != described["id"]


@pytest.mark.parametrize("data", [None, "corpus.txt"], ids=["without data", "with data"])
@pytest.mark.parametrize("title", JOBS)
def test_the_sample_jobs_are_queued_with_their_config(
    installation: Installation, ada: Browser, title: str, data: str | None
) -> None:
    (installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 500)
    project = _post(ada, "/api/projects", {**_sample("Project"), "trainingDataPath": data})
    described = _sample(title)
    job = _post(ada, "/api/training-jobs", SAMPLES[title].replace("proj_abcdef12", project["id"]))
    used = {"projectId", "config", "gpuType", "hostMemory"}
    assert {name: job[name] for name in used} == {
        **{name: described[name] for name in used},
        "projectId": project["id"],
    }
    assert job["ignored"] == [name for name in described if name not in used]
    assert (job["status"], job["errorMessage"], job["startTime"]) == ("queued", None, None)
    config = ada.get(f"/api/jobs/{job['id']}").json()["config"]
    assert (config["learning_rate"], config["batch_size"], config["epochs"]) == (0.0001, 1, 3)
    assert config["optimizer"]["name"] == "adamw"


@pytest.mark.parametrize("title", JOBS)
def test_a_job_in_each_state_is_shown_as_described(
    installation: Installation, ada: Browser, member: User, title: str
) -> None:
    described = _sample(title)
    job = add_job(
        installation,
        member,
        status=described["status"],
        requested_config=TrainConfig.own_names(described["config"]),
        gpu_type=described["gpuType"],
        host_memory=described["hostMemory"],
        error_message=described.get("errorMessage"),
        **{
            to_snake(name): datetime.fromisoformat(described[name])
            for name in ("createdAt", "startTime", "endTime")
            if name in described
        },
    )
    ids = {"id": str(job.id), "projectId": str(job.project_id), "userId": str(member.id)}
    shown = ada.get(f"/api/training-jobs/{job.id}").json()
    assert {name: shown[name] for name in described} == {**described, **ids}
    [listed] = ada.get("/api/training-jobs", params={"projectId": str(job.project_id)}).json()["items"]
    assert listed == shown


def test_metrics_are_shown_as_described(installation: Installation, ada: Browser, member: User) -> None:
    job = add_job(installation, member, summary={"facts": {"steps_per_epoch": 1_000}})
    described = [_sample(title) for title in METRICS]
    for series, (column, axis, scale) in SERIES.items():
        row = MetricSeries(job_id=job.id, name=series, rank=0, axis=axis)
        series_id = installation.add(row).id
        for seq, described_row in enumerate(described):
            time = datetime.fromisoformat(described_row["timestamp"]).timestamp()
            x = described_row["step"] if axis == "step" else int(time)
            value = described_row[column] * scale
            point = MetricPoint(series_id=series_id, x=x, attempt=1, seq=seq, time=time, value=value)
            installation.add(point)
    shown = ada.get(f"/api/training-jobs/{job.id}/metrics").json()["items"]
    assert shown == [{**row, "trainingJobId": str(job.id)} for row in described]


def test_the_sample_config_may_name_its_data_itself(installation: Installation, ada: Browser) -> None:
    (installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 500)
    config = {**_sample(JOBS[0])["config"], "data": {"trainPath": "corpus.txt"}}
    job = _post(ada, "/api/training-jobs", {"project": _sample("Project"), "config": config})
    assert job["config"] == config
    assert job["ignored"] == []


def test_data_in_a_bucket_is_fetched_by_the_job(ada: Browser) -> None:
    project = _post(ada, "/api/projects", SAMPLES["Project"])
    body = SAMPLES[JOBS[0]].replace("proj_abcdef12", project["id"])
    job = _post(ada, "/api/training-jobs", body)
    assert project["trainingDataPath"].startswith("s3://")
    data = ada.get(f"/api/jobs/{job['id']}").json()["config"]["data"]
    assert data["train_path"] == project["trainingDataPath"]


@pytest.mark.parametrize("wrong", ["statuss", "createdat", "gpuTyp", "user"])
def test_a_misspelt_field_is_refused(ada: Browser, wrong: str) -> None:
    project = _post(ada, "/api/projects", {**_sample("Project"), "trainingDataPath": None})
    body = {**_sample(JOBS[0]), "projectId": project["id"], wrong: "x"}
    answer = ada.post("/api/training-jobs", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == wrong


@pytest.mark.parametrize("path", ["totals", "5e1f/checkpoints", "5e1f/pause"])
def test_a_page_of_an_earlier_version_is_told_to_reload(ada: Browser, path: str) -> None:
    answer = ada.post(f"/api/training-jobs/{path}")
    assert (answer.status_code, answer.json()["code"]) == (410, "reload_page")


def test_the_sample_script_with_its_requirements_becomes_a_job(
    installation: Installation, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "why_no_sandbox", lambda: None)
    body = {"code": NANOGPT, "requirements": REQUIREMENTS}
    quote = ada.post("/api/ml-jobs/quote", json=body)
    assert quote.json()["ignored"] == ["requirements.framework"], quote.text
    started = _post(ada, "/api/ml-jobs", body)
    assert {"job_id", "provider", "estimated_cost", "status_url"} <= set(started)
    assert started["ignored"] == ["requirements.framework"]
    assert ada.get(started["status_url"]).json()["status"] == "queued"
    limited = _post(ada, "/api/ml-jobs", {**body, "requirements": {**REQUIREMENTS, "timeout_seconds": 7_200}})
    job = installation.get(TrainingJob, UUID(limited["job_id"]))
    assert job is not None
    assert job.max_hours == 2.0
    for wrong in ("gpu_memori", "gpuMemory"):
        refused = ada.post("/api/ml-jobs", json={**body, "requirements": {**REQUIREMENTS, wrong: 8}})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
