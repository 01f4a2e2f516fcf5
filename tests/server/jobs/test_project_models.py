"""What a project says about its jobs: the model by its size, the data by its dataset. On both databases."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpubloom.plan import Gpu, Hardware
from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob, Worker
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_dataset, add_project

H200 = Gpu(name="NVIDIA H200", memory_bytes=150 * 10**9, flops=989e12, bf16=True)


def _machine(installation: Installation, *gpus: Gpu, memory: int = 64 * 10**9) -> None:
    hardware = Hardware(name="box", host_memory_bytes=memory, cpu_cores=64, gpus=gpus)
    installation.add(Worker(id=uuid4(), name="box:1", hardware=hardware.model_dump(mode="json")))


def _plan(browser: Browser, **body: Any) -> dict[str, Any]:
    answer = browser.post("/api/plan", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_size_of_a_project_is_the_model_of_its_jobs_unless_they_name_one(
    installation: Installation, member: User, ada: Browser
) -> None:
    _machine(installation, H200, memory=3072 * 10**9)
    project = add_project(installation, member, model_size=130)
    asked = {"project_id": str(project.id)}
    answer = _plan(ada, **asked, config={"batch_size": 1})
    assert answer["fits"] is True, answer["reason"]
    assert answer["defaults"]["model"]["preset"] == "130b"
    assert answer["plan"]["parameters"] / 1e9 == pytest.approx(130, rel=0.02)
    for model in ({"preset": "nano"}, {"hidden_size": 64, "heads": 4}):
        assert _plan(ada, **asked, config={"model": model})["plan"]["parameters"] < 1e6
    queued = ada.post("/api/jobs", json={**asked, "config": {"batchSize": 1}})
    assert queued.status_code == 201, queued.text
    assert queued.json()["config"]["model"]["preset"] == "130b"
    assert "model" not in queued.json()["requested_config"]


def test_a_custom_architecture_gets_no_transformer_of_its_size(
    installation: Installation, member: User, ada: Browser
) -> None:
    _machine(installation, H200, memory=3072 * 10**9)
    project = add_project(installation, member, model_size=130, model_architecture="custom")
    answer = _plan(ada, project_id=str(project.id), config={})
    assert answer["defaults"]["model"]["preset"] == "tiny"
    own = _plan(ada, project_id=str(project.id), config={"model": {"architecture": "mine"}, "batch_size": 1})
    assert own["defaults"]["model"]["preset"] == "130b"


def test_a_project_that_does_not_fit_says_what_does_not_and_what_would(
    installation: Installation, member: User, ada: Browser
) -> None:
    _machine(installation, H200, memory=1536 * 2**30)
    project = add_project(installation, member, model_size=130)
    asked: dict[str, Any] = {"project_id": str(project.id), "gpu_type": "H200"}
    answer = _plan(ada, **asked, config={"batch_size": 1})
    if answer["fits"]:
        pytest.fail("130B fits now: ask for a larger model here")
    gpu, host = answer["needs"]["gpu"], answer["needs"]["host"]
    assert sum(gpu.values()) <= 2 * gpu["limit_bytes"]
    assert sum(host.values()) > 2 * host["limit_bytes"]
    smaller = next(each for each in answer["options"] if "model.preset" in each["changes"])
    assert 100e9 < smaller["plan"]["parameters"] < 130e9
    taken = _plan(
        ada, **asked, config={"batch_size": 1, "model": {"preset": smaller["changes"]["model.preset"]}}
    )
    assert taken["fits"] is True
    assert taken["plan"] == smaller["plan"]
    more = next(each for each in answer["options"] if each["host_memory"])
    larger = _plan(ada, **asked, host_memory=more["host_memory"], config={"batch_size": 1})
    assert (larger["fits"], larger["code"]) == (False, "not_enough_host_memory")
    assert larger["requested_machine"]["plan"]["parameters"] == pytest.approx(130e9, rel=0.02)


def test_a_machine_that_is_not_there_is_planned_in_words(
    installation: Installation, member: User, ada: Browser
) -> None:
    _machine(installation, memory=16 * 10**9)
    # The first description's own project: its data lies in a bucket, and it asks for one H200.
    project = add_project(installation, member, model_size=130, training_data_path="s3://my-bucket/corpus/")
    asked: dict[str, Any] = {"project_id": str(project.id), "config": {"batchSize": 1}}
    here = _plan(ada, **asked)
    # The data is fetched when the job starts; what is in the way is the memory of this machine.
    assert here["code"] == "does_not_fit"
    assert here["requested_machine"] is None
    assert here["options"][0]["gpu_type"] == "H200"
    there = _plan(ada, **asked, gpu_type="H200", host_memory=4096)
    assert there["requested_machine"]["machine"] == "H200, 4,096 GB host"
    assert there["requested_machine"]["plan"]["device"] == "cuda"
    assert _plan(ada, **asked, gpu_type="Abacus 7")["requested_machine"] is None


def test_the_dataset_of_a_project_is_the_data_of_its_jobs(
    installation: Installation, server: Server, member: User, ada: Browser, tmp_path: Path
) -> None:
    dataset = add_dataset(
        installation,
        member,
        filename="corpus.txt",
        report={"mapping": {"format": "text", "columns": {}}, "examples": 9},
    )
    file = installation.home / "datasets" / str(dataset.id)
    (file / "data.jsonl").rename(file / "data.txt")
    body = {"name": "Chats", "modelArchitecture": "transformer", "modelSize": 0.001}
    path = f"dataset://{dataset.id}"
    project = ada.post("/api/projects", json={**body, "trainingDataPath": path}).json()
    assert project["trainingDataPath"] == path
    job = ada.post("/api/jobs", json={"project_id": project["id"]})
    assert job.status_code == 201, job.text
    assert (job.json()["dataset_id"], job.json()["config"]["data"]["kind"]) == (str(dataset.id), "text")
    (installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 500)
    other = ada.post(
        "/api/jobs", json={"project_id": project["id"], "config": {"data": {"train_path": "corpus.txt"}}}
    )
    assert (other.status_code, other.json()["dataset_id"]) == (201, None)
    # Examples need a tokenizer that a new model does not have; its size is known all the same.
    chats = add_dataset(installation, member)
    ada.patch(f"/api/projects/{project['id']}", json={"trainingDataPath": f"dataset://{chats.id}"})
    planned = _plan(ada, project_id=project["id"])
    assert planned["code"] == "examples_need_tokenizer"
    assert planned["requested_machine"]["plan"]["parameters"] > 1e5
    # A reference opens nothing: another person's dataset is not found.
    eve = server.signed_in(installation.add_user("Eve"))
    theirs = eve.post("/api/projects", json={**body, "trainingDataPath": path}).json()
    assert eve.post("/api/jobs", json={"project_id": theirs["id"]}).status_code == 404
    assert len(installation.all(TrainingJob)) == 2
