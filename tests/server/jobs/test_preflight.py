"""The pre-flight over HTTP: confined, kept, and what plans are made of."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs import preflight
from tests.server.bringing import on_sqlite
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_dataset, add_model
from tests.tiny_models import make_tiny_model

CONFIG = {"method": "lora", "batch_size": 2, "epochs": 3, "model": {"context_length": 64}}


def bring(
    installation: Installation, member: User, rows: list[dict[str, Any]], tmp_path: Path
) -> dict[str, str]:
    """A dataset of these rows and a model that has a tokenizer."""
    columns = {"prompt": "q", "completion": "completion"}
    report = {"mapping": {"format": "prompt_completion", "columns": columns}, "examples": len(rows)}
    dataset = add_dataset(installation, member, report=report)
    file = installation.home / "datasets" / str(dataset.id) / "data.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = add_model(installation, member)
    shutil.copytree(
        make_tiny_model(tmp_path / "tiny"), installation.home / "models" / str(model.id), dirs_exist_ok=True
    )
    return {"dataset_id": str(dataset.id), "model_id": str(model.id)}


@on_sqlite
def test_a_preflight_counts_and_the_plan_uses_its_counts(
    installation: Installation, member: User, ada: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"q": f"Question {n}?", "completion": f"Answer {n}.", "topic": "x"} for n in range(120)]
    body = {"config": CONFIG, **bring(installation, member, rows, tmp_path)}
    guessed = ada.post("/api/plan", json=body).json()["plan"]
    assert any("estimated from file sizes" in text for text in guessed["assumptions"])
    answer = ada.post("/api/preflight", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["train_file"]["rows"], found["train_file"]["used"]) == (120, 120)
    assert found["train_file"]["name"] == "chats"
    assert found["train_file"]["unused_columns"] == ["topic"]
    assert found["train"]["examples"] + found["eval"]["examples"] == 120
    assert found["eval"]["examples"] >= 6
    assert found["steps"] == 3 * -(-found["train"]["sequences"] // 2)
    unused = next(each for each in found["findings"] if each["kind"] == "columns_unused")
    assert (unused["title"], unused["severity"]) == ("Columns not used", "info")
    plan = ada.post("/api/plan", json=body).json()["plan"]
    assert plan["steps"] == found["steps"]
    assert any("counted by the pre-flight" in text for text in plan["assumptions"])
    # Kept: no process is asked again, until something changes.
    monkeypatch.setattr(preflight, "MODULE", "gpubloom.no_such_module")
    assert ada.post("/api/preflight", json=body).json() == found
    changed = {**body, "config": {**CONFIG, "data": {"eval_fraction": 0.5}}}
    assert ada.post("/api/preflight", json=changed).json()["code"] == "preflight_failed"


@on_sqlite
def test_a_dataset_that_cannot_be_trained_on_says_so_without_paths(
    installation: Installation, member: User, ada: Browser, tmp_path: Path
) -> None:
    body = {"config": CONFIG, **bring(installation, member, [{"q": "only a question"}], tmp_path)}
    refused = ada.post("/api/preflight", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "no_examples")
    assert str(installation.home) not in refused.text


@on_sqlite
def test_plain_text_has_no_preflight(ada: Browser) -> None:
    refused = ada.post("/api/preflight", json={"config": {}})
    assert refused.json()["code"] == "preflight_needs_examples"


@on_sqlite
def test_a_validation_dataset_is_read_its_own_way_and_cannot_be_deleted_while_a_job_needs_it(
    installation: Installation, member: User, ada: Browser, tmp_path: Path
) -> None:
    rows = [{"q": f"Question {n}?", "completion": f"Answer {n}."} for n in range(20)]
    ids = bring(installation, member, rows, tmp_path)
    mapping = {"format": "alpaca", "columns": {"instruction": "frage", "output": "antwort"}}
    held = add_dataset(installation, member, name="held", report={"mapping": mapping, "examples": 3})
    file = installation.home / "datasets" / str(held.id) / "data.jsonl"
    pairs = [{"frage": f"Question {n}?", "antwort": f"Answer {n}."} for n in (1, 50, 51)]
    file.write_text("".join(json.dumps(row) + "\n" for row in pairs))
    body = {"config": CONFIG, **ids, "eval_dataset_id": str(held.id)}
    found = ada.post("/api/preflight", json=body).json()
    assert (found["train"]["examples"], found["eval"]["examples"], found["overlap"]) == (20, 3, 1)
    assert found["eval_file"]["name"] == "held"
    created = ada.post("/api/jobs", json={**body, "project": {"name": "P"}})
    assert created.status_code == 201, created.text
    job = created.json()
    assert (job["eval_dataset_id"], job["eval_dataset_name"]) == (str(held.id), "held")
    assert job["config"]["data"]["eval_path"] == f"datasets/{held.id}/data.jsonl"
    assert job["plan"]["steps"] == found["steps"]
    assert ada.delete(f"/api/datasets/{held.id}").status_code == 409
    both = {**body, "config": {**CONFIG, "data": {"eval_path": "x.jsonl"}}}
    assert ada.post("/api/preflight", json=both).json()["errors"][0]["field"] == "config.data.eval_path"


@on_sqlite
def test_datasets_are_mixed_with_weights_and_kept_while_a_job_needs_them(
    installation: Installation, member: User, ada: Browser, tmp_path: Path
) -> None:
    rows = [{"q": f"Question {n}?", "completion": f"Answer {n}."} for n in range(20)]
    ids = bring(installation, member, rows, tmp_path)
    mapping = {"format": "alpaca", "columns": {"instruction": "frage", "output": "antwort"}}
    more = add_dataset(installation, member, name="identity", report={"mapping": mapping, "examples": 4})
    file = installation.home / "datasets" / str(more.id) / "data.jsonl"
    pairs = [{"frage": f"Who are you, {n}?", "antwort": "Bloom.", "topic": "x"} for n in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in pairs))
    config = {**CONFIG, "data": {"eval_fraction": 0}}
    body = {"config": config, **ids, "mix": [{"dataset_id": str(more.id), "weight": 5}]}
    answer = ada.post("/api/preflight", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["train"]["examples"] == 40
    (mixed,) = found["mixed_files"]
    assert (mixed["name"], mixed["train_examples"], mixed["weight"]) == ("identity", 20, 5)
    unused = next(each for each in found["findings"] if each["kind"] == "columns_unused")
    assert "identity" in unused["sentence"]
    created = ada.post("/api/jobs", json={**body, "project": {"name": "P"}})
    assert created.status_code == 201, created.text
    job = created.json()
    assert job["mix"] == [{"dataset_id": str(more.id), "name": "identity", "weight": 5}]
    assert job["plan"]["steps"] == found["steps"]
    assert ada.delete(f"/api/datasets/{more.id}").status_code == 409
    twice = {**body, "mix": [{"dataset_id": ids["dataset_id"]}]}
    assert ada.post("/api/preflight", json=twice).json()["errors"][0]["field"] == "mix.0.dataset_id"
    alone = {"config": config, "model_id": ids["model_id"], "mix": body["mix"]}
    assert ada.post("/api/preflight", json=alone).json()["errors"][0]["field"] == "mix"


@on_sqlite
def test_examples_with_an_address_are_planned_without_a_preflight(
    installation: Installation, member: User, ada: Browser, tmp_path: Path
) -> None:
    bringing = bring(installation, member, [{"q": "Why?", "completion": "So."}], tmp_path)
    data = {"train_path": "https://data.example.org/chats.jsonl", "kind": "examples", "format": "messages"}
    body = {"config": {**CONFIG, "data": data}, "model_id": bringing["model_id"]}
    planned = ada.post("/api/plan", json=body).json()
    assert planned["plan"] is not None, planned
    refused = ada.post("/api/preflight", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "preflight_needs_examples")
