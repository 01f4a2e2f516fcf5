"""Jobs that are given a dataset and a model by id: whose they are, what the config says, who sees it."""

from typing import Any
from uuid import uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_dataset, add_model, add_project

CONFIG = {"method": "lora", "batch_size": 2, "max_steps": 4, "model": {"context_length": 64}}


def _body(installation: Installation, member: User, **changes: Any) -> dict[str, Any]:
    project = add_project(installation, member)
    return {"project_id": str(project.id), "name": "Tune", "config": CONFIG, **changes}


def test_paths_and_the_inspected_mapping_go_into_the_config(
    installation: Installation, member: User, ada: Browser
) -> None:
    dataset, model = add_dataset(installation, member, encoding="latin-1"), add_model(installation, member)
    body = _body(installation, member, dataset_id=str(dataset.id), model_id=str(model.id))
    answer = ada.post("/api/jobs", json=body)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    data = job["config"]["data"]
    assert data["train_path"] == f"datasets/{dataset.id}/data.jsonl"
    assert (data["kind"], data["format"], data["columns"]) == (
        "examples",
        "prompt_completion",
        {"prompt": "q"},
    )
    assert data["encoding"] == "latin-1"
    assert job["config"]["model"]["path"] == f"models/{model.id}"
    assert (job["dataset_id"], job["dataset_name"]) == (str(dataset.id), "chats")
    assert (job["model_id"], job["model_name"]) == (str(model.id), "tiny-llama")
    assert (job["kind"], job["result"], job["parent_id"]) == ("train", None, None)


def test_what_the_config_says_about_the_data_wins_over_the_datasets_mapping(
    installation: Installation, member: User, ada: Browser
) -> None:
    dataset, model = add_dataset(installation, member), add_model(installation, member)
    config = {**CONFIG, "data": {"format": "text", "columns": {"text": "q"}, "packing": False}}
    body = _body(installation, member, dataset_id=str(dataset.id), model_id=str(model.id), config=config)
    data = ada.post("/api/jobs", json=body).json()["config"]["data"]
    assert (data["format"], data["columns"], data["packing"]) == ("text", {"text": "q"}, False)


def test_the_plan_takes_the_same_ids(installation: Installation, member: User, ada: Browser) -> None:
    dataset, model = add_dataset(installation, member), add_model(installation, member)
    ids = {"dataset_id": str(dataset.id), "model_id": str(model.id)}
    planned = ada.post("/api/plan", json={"config": CONFIG, **ids}).json()
    assert planned["fits"] is True, planned["reason"]
    installation.change(dataset, status="inspecting", report=None)
    waiting = ada.post("/api/plan", json={"config": CONFIG, **ids}).json()
    assert (waiting["fits"], waiting["reason"]) == (False, "The dataset is not ready (status: inspecting).")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dataset": {"status": "uploading", "report": None}}, "dataset_id"),
        ({"dataset": {"report": {"mapping": None, "examples": 0}}}, "dataset_id"),
        ({"model": {"status": "fetching"}}, "model_id"),
        ({"model": {"status": "failed"}}, "model_id"),
        (
            {"model": {"check": {"findings": [{"severity": "error", "code": "x", "sentence": "No."}]}}},
            "model_id",
        ),
        ({"config": {"data": {"train_path": "elsewhere.txt"}}}, "config.data.train_path"),
        ({"config": {"data": {"trainPath": "elsewhere.txt"}}}, "config.data.train_path"),
        ({"config": {"model": {"path": "elsewhere"}}}, "config.model.path"),
    ],
)
def test_what_is_not_ready_or_named_twice_is_refused_by_its_field(
    installation: Installation, member: User, ada: Browser, changes: dict[str, Any], field: str
) -> None:
    dataset = add_dataset(installation, member, **changes.get("dataset", {}))
    model = add_model(installation, member, **changes.get("model", {}))
    body = _body(
        installation,
        member,
        dataset_id=str(dataset.id),
        model_id=str(model.id),
        config=changes.get("config", CONFIG),
    )
    answer = ada.post("/api/jobs", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field), answer.text
    # What to send instead is a field of the request.
    assert {"data_id", "model.id"}.isdisjoint(answer.json()["detail"].split())
    assert installation.all(TrainingJob) == []


def test_other_peoples_datasets_and_models_are_not_found(
    installation: Installation, member: User, ada: Browser
) -> None:
    eve = installation.add_user("Eve")
    dataset, model = add_dataset(installation, eve), add_model(installation, eve)
    for ids in ({"dataset_id": str(dataset.id)}, {"model_id": str(model.id)}, {"model_id": str(uuid4())}):
        body = _body(installation, member, **ids)
        assert ada.post("/api/jobs", json=body).status_code == 404
        assert ada.post("/api/plan", json={"config": CONFIG, **ids}).status_code == 404
    # Nor by the path where the server keeps them.
    for config in (
        {"data": {"train_path": str(installation.home / f"datasets/{dataset.id}/data.jsonl")}},
        {"model": {"path": str(installation.home / f"models/{model.id}")}},
    ):
        refused = ada.post("/api/jobs", json=_body(installation, member, config=config))
        assert refused.status_code == 422
    own = add_model(installation, member)
    tokenizer = {"kind": "file", "path": str(installation.home / f"models/{model.id}/tokenizer.json")}
    body = _body(installation, member, model_id=str(own.id), config={"data": {"tokenizer": tokenizer}})
    assert ada.post("/api/jobs", json=body).status_code == 422


def test_a_share_shows_which_model_it_is_and_no_path_or_dataset(
    installation: Installation, member: User, server: Server, ada: Browser
) -> None:
    dataset, model = add_dataset(installation, member), add_model(installation, member)
    body = _body(installation, member, dataset_id=str(dataset.id), model_id=str(model.id))
    job = ada.post("/api/jobs", json=body).json()
    installation.change(
        installation.all(TrainingJob)[0],
        summary={"facts": {"model": str(installation.home / "models/x"), "method": "lora"}},
    )
    secret = ada.post(f"/api/jobs/{job['id']}/shares").json()["link"].partition("#token=")[2]
    shown = server.browser().get("/api/shared/job", headers={"X-Share-Token": secret})
    assert str(installation.home) not in shown.text
    assert str(dataset.id) not in shown.text
    assert shown.json()["config"]["model"]["path"] == "tiny-llama"
    assert shown.json()["summary"]["facts"] == {"method": "lora"}


def test_a_dataset_in_use_is_kept_until_its_job_has_ended(
    installation: Installation, member: User, ada: Browser
) -> None:
    dataset, model = add_dataset(installation, member), add_model(installation, member)
    body = _body(installation, member, dataset_id=str(dataset.id), model_id=str(model.id))
    job = ada.post("/api/jobs", json=body).json()
    refused = ada.delete(f"/api/datasets/{dataset.id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "dataset_in_use")
    assert "Tune" in refused.json()["detail"]
    assert ada.delete(f"/api/models/{model.id}").status_code == 409
    ada.post(f"/api/jobs/{job['id']}/cancel")
    assert ada.delete(f"/api/datasets/{dataset.id}").status_code == 204
    assert ada.delete(f"/api/models/{model.id}").status_code == 204
    left = ada.get(f"/api/jobs/{job['id']}").json()
    assert (left["dataset_id"], left["model_id"], left["status"]) == (None, None, "cancelled")


def test_a_backend_that_cannot_run_here_is_refused_with_what_to_do(
    installation: Installation, member: User, ada: Browser
) -> None:
    offered = {each["name"]: each for each in ada.get("/api/backends").json()["items"]}
    assert offered["engine"]["available"] is True
    assert offered["unsloth"]["available"] is False
    model = add_model(installation, member)
    body = _body(installation, member, model_id=str(model.id), config={**CONFIG, "backend": "unsloth"})
    answer = ada.post("/api/jobs", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "config.backend"
    assert answer.json()["detail"] == offered["unsloth"]["reason"]
