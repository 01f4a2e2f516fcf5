"""The samples of the first descriptions of the product are accepted word for word; only ids are filled in."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.plan import Gpu, Hardware
from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob, Worker
from gpubloom.server.ml_jobs import service
from tests.server.installation import Browser, Installation, Server

# Less id, userId and createdAt, which a new project cannot choose.
PROJECT: dict[str, Any] = {
    "name": "QuantumLeap-130B",
    "description": "Experimenting with Quantum NLP concepts on a 130B parameter model.",
    "modelArchitecture": "transformer",
    "modelSize": 130,
    "trainingDataPath": "s3://my-bucket/datasets/quantum-corpus/",
}
CONFIG = {"learningRate": 0.0001, "batchSize": 1, "epochs": 3, "optimizer": "AdamW"}
QUEUED: dict[str, Any] = {
    "id": "job_qwert123",
    "projectId": "proj_abcdef12",
    "userId": "usr_12345abc",
    "status": "queued",
    "config": CONFIG,
    "gpuType": "H200",
    "hostMemory": 1536,
    "createdAt": "2023-10-26T11:00:00Z",
}
RUNNING = {**QUEUED, "id": "job_asdfg456", "status": "running", "startTime": "2023-10-26T11:05:00Z"}
COMPLETED = {
    **QUEUED,
    "id": "job_zxcvb789",
    "status": "completed",
    "startTime": "2023-10-26T12:00:00Z",
    "endTime": "2023-10-26T14:00:00Z",
}
FAILED = {
    **COMPLETED,
    "id": "job_fail101",
    "status": "failed",
    "errorMessage": "CUDA out of memory error during optimizer step.",
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


@pytest.fixture
def ada(server: Server, member: User) -> Browser:
    return server.signed_in(member)


@pytest.fixture(autouse=True)
def _the_machine_of_the_samples(installation: Installation, server: Server) -> None:
    h200 = Gpu(name="NVIDIA H200", memory_bytes=150 * 10**9)
    hardware = Hardware(name="box", host_memory_bytes=1536 * 10**9, cpu_cores=64, gpus=(h200,))
    installation.add(Worker(id=uuid4(), name="box:1", hardware=hardware.model_dump(mode="json")))


def _post(ada: Browser, address: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = ada.post(address, json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_the_sample_project_is_kept_as_it_was_described(ada: Browser) -> None:
    made = _post(ada, "/api/projects", PROJECT)
    assert {name: made[name] for name in PROJECT} == PROJECT


@pytest.mark.parametrize("data", [None, "corpus.txt"], ids=["without data", "with data"])
@pytest.mark.parametrize("sample", [QUEUED, RUNNING, COMPLETED, FAILED], ids=lambda sample: sample["status"])
def test_the_sample_jobs_are_queued_with_their_config(
    installation: Installation, ada: Browser, sample: dict[str, Any], data: str | None
) -> None:
    (installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 500)
    project = _post(ada, "/api/projects", {**PROJECT, "trainingDataPath": data})
    job = _post(ada, "/api/training-jobs", {**sample, "projectId": project["id"]})
    config = job["config"]
    assert (config["learning_rate"], config["batch_size"], config["epochs"]) == (0.0001, 1, 3)
    assert config["optimizer"]["name"] == "adamw"
    assert (job["status"], job["gpuType"], job["hostMemory"]) == ("queued", "H200", 1536)
    used = {"projectId", "config", "gpuType", "hostMemory"}
    assert job["ignored"] == [name for name in sample if name not in used]
    assert (job["errorMessage"], job["startTime"]) == (None, None)


def test_the_sample_config_may_name_its_data_itself(installation: Installation, ada: Browser) -> None:
    (installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 500)
    body = {"project": PROJECT, "config": {**CONFIG, "data": {"trainPath": "corpus.txt"}}}
    job = _post(ada, "/api/training-jobs", body)
    assert job["config"]["data"]["train_path"].endswith("corpus.txt")
    assert job["ignored"] == []


def test_data_in_a_bucket_is_refused_with_what_to_do(ada: Browser) -> None:
    project = _post(ada, "/api/projects", PROJECT)
    answer = ada.post("/api/training-jobs", json={**QUEUED, "projectId": project["id"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert answer.json()["errors"][0]["field"] == "config.data.train_path"


@pytest.mark.parametrize("wrong", ["statuss", "createdat", "gpuTyp", "user_id"])
def test_a_misspelt_field_is_refused(ada: Browser, wrong: str) -> None:
    project = _post(ada, "/api/projects", {**PROJECT, "trainingDataPath": None})
    answer = ada.post("/api/training-jobs", json={**QUEUED, "projectId": project["id"], wrong: "x"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert answer.json()["errors"][0]["field"] == wrong


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
