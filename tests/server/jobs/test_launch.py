"""What was requested and what the defaults add: kept apart in a job, and told with a plan."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.plan import Hardware, TrainConfig, detect_hardware
from gpubloom.plan.speedups import Speedup, device_name, store_speedup
from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob, Worker
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job, add_project
from tests.tiny_models import make_tiny_model

NEW_PROJECT = {"name": "New", "model_architecture": "transformer", "model_size": 0.001}


@pytest.fixture
def text(installation: Installation, server: Server) -> Path:
    path = installation.home / "uploads/corpus.txt"
    path.write_text("To be, or not to be, that is the question. " * 500)
    return path


def test_a_job_keeps_what_was_requested_apart_from_the_defaults(
    installation: Installation, member: User, ada: Browser, text: Path
) -> None:
    project = add_project(installation, member, training_data_path="corpus.txt")
    body = {"project_id": str(project.id), "config": {"batchSize": 2, "optimizer": {"weight_decay": 0}}}
    job = ada.post("/api/jobs", json=body).json()
    requested = {"batch_size": 2, "optimizer": {"weight_decay": 0}}
    assert job["requested_config"] == requested
    assert (job["config"]["epochs"], job["config"]["learning_rate"]) == (10, 1e-3)
    again = ada.post("/api/jobs", json={**body, "config": job["requested_config"]}).json()
    assert again["config"] == job["config"]
    row = installation.get(TrainingJob, UUID(job["id"]))
    assert row is not None
    installation.change(row, status="completed")
    extended = ada.post(f"/api/jobs/{job['id']}/extend", json={"epochs": 12}).json()
    assert extended["requested_config"] == {**requested, "epochs": 12}


def test_a_job_of_an_earlier_version_requests_what_differs_from_the_defaults(
    installation: Installation, member: User, ada: Browser
) -> None:
    config = TrainConfig.model_validate({"name": "old", "epochs": 4, "device": "cpu"})
    job = add_job(installation, member, config=config.model_dump(mode="json"), requested_config=None)
    assert ada.get(f"/api/jobs/{job.id}").json()["requested_config"] == {"epochs": 4}


@pytest.mark.parametrize(
    ("config", "rate", "epochs", "batch"),
    [
        ({}, 2e-5, 3, 8),
        ({"method": "lora"}, 2e-4, 3, 8),
        ({"method": "qlora", "epochs": 7}, 2e-4, None, 8),
        ({"model": {"random_weights": True}}, 1e-3, 10, 32),
    ],
)
def test_a_plan_says_what_is_used_for_fields_that_are_left_out(
    ada: Browser,
    installation: Installation,
    text: Path,
    config: dict[str, Any],
    rate: float,
    epochs: int | None,
    batch: int,
) -> None:
    folder = make_tiny_model(installation.home / "uploads/tiny", context_length=128)
    model = {**config.get("model", {}), "path": folder.name}
    wanted = {**config, "model": model, "data": {"train_path": "corpus.txt"}}
    answer = ada.post("/api/plan", json={"config": wanted}).json()
    defaults = answer["defaults"]
    assert answer["fits"] is True, answer["reason"]
    assert (defaults["learning_rate"], defaults.get("epochs"), defaults["batch_size"]) == (
        rate,
        epochs,
        batch,
    )
    assert defaults["model"]["context_length"] == 128, "no longer than the model's positions"
    assert str(installation.home) not in json.dumps(defaults)
    started = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": wanted}).json()
    used = started["config"]
    assert (used["learning_rate"], used["batch_size"]) == (rate, batch)
    assert used["model"]["context_length"] == 128


def test_sequences_beyond_the_positions_of_the_model_are_refused_at_their_field(
    installation: Installation, ada: Browser, text: Path
) -> None:
    folder = make_tiny_model(installation.home / "uploads/tiny", context_length=128)
    model = {"path": folder.name, "context_length": 256}
    config = {"model": model, "data": {"train_path": "corpus.txt"}}
    problem = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": config}).json()
    assert [(each["field"], each["code"]) for each in problem["errors"]] == [
        ("config.model.context_length", "context_too_long")
    ]
    answer = ada.post("/api/plan", json={"config": config}).json()
    assert (answer["fits"], answer["code"]) == (False, "context_too_long")


def test_a_plan_that_does_not_fit_still_says_the_defaults(
    installation: Installation, ada: Browser, text: Path
) -> None:
    small = Hardware(name="box", host_memory_bytes=10**9, cpu_cores=8)
    installation.add(Worker(id=uuid4(), name="box:1", hardware=small.model_dump(mode="json")))
    wanted = {"model": {"preset": "8b"}, "data": {"train_path": "corpus.txt"}}
    answer = ada.post("/api/plan", json={"config": wanted}).json()
    assert answer["fits"] is False
    assert answer["defaults"]["learning_rate"] == 1e-3


def test_a_demo_of_another_model_has_that_models_rate(
    installation: Installation, ada: Browser, text: Path
) -> None:
    folder = make_tiny_model(installation.home / "uploads/tiny")
    body = {"project": NEW_PROJECT, "config": {"model": {"path": folder.name}}}
    config = ada.post("/api/jobs", json=body).json()["config"]
    assert (config["learning_rate"], config["batch_size"], config["max_steps"]) == (2e-5, 8, 450)


def test_a_speedup_that_was_measured_on_the_machine_is_in_the_plan_and_in_the_job(
    installation: Installation, member: User, ada: Browser, text: Path
) -> None:
    project = add_project(installation, member, training_data_path="corpus.txt")
    config: dict[str, Any] = {"precision": "fp32", "processes": 1, "data": {"train_path": "corpus.txt"}}
    body = {"project_id": str(project.id), "config": config}
    before = ada.post("/api/plan", json=body).json()
    assert before["plan"]["speedup"] is None
    hardware = detect_hardware()
    measured = Speedup(
        machine=hardware.name,
        device=device_name(hardware, on_gpu=False),
        model="tiny",
        parameters=before["plan"]["parameters"],
        method="full",
        precision="fp32",
        batch_size=1,
        context_length=64,
        ratio=1.94,
        lowest=1.9,
        highest=2.0,
        rounds=3,
        step_seconds=0.1,
        baseline_step_seconds=0.194,
        versions={},
        measured_at=datetime(2026, 11, 16, tzinfo=UTC),
    )
    store_speedup(installation.home, measured)
    shown = ada.post("/api/plan", json=body).json()["plan"]["speedup"]
    sentence = "1.9 × faster than transformers with checkpointing, measured on this machine on 2026-11-16"
    assert (shown["ratio"], shown["sentence"]) == (1.94, sentence)
    job = ada.post("/api/jobs", json=body).json()
    assert job["plan"]["speedup"] == shown
    # The job keeps what was known when it started.
    (installation.home / "speedups.json").unlink()
    assert ada.get(f"/api/jobs/{job['id']}").json()["plan"]["speedup"] == shown
    other = {**body, "config": {**config, "precision": "bf16"}}
    assert ada.post("/api/plan", json=other).json()["plan"]["speedup"] is None
