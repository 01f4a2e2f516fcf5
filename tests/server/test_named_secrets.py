"""Named secrets: stored once, never shown again, and only for the jobs of their owner."""

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.secrets.tables import Secret
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job

VALUE = "hf_9c2e-the-value"


def test_a_secret_is_listed_replaced_and_deleted_but_its_value_never_comes_back(
    server: Server, installation: Installation, member: User
) -> None:
    ada = server.signed_in(member)
    stored = ada.put("/api/secrets/HF_TOKEN", json={"value": VALUE})
    assert stored.status_code == 200, stored.text
    assert ada.put("/api/secrets/HF_TOKEN", json={"value": f"{VALUE}-2"}).status_code == 200
    listed = ada.get("/api/secrets")
    assert [item["name"] for item in listed.json()["items"]] == ["HF_TOKEN"]
    [row] = installation.all(Secret)
    assert VALUE not in stored.text + listed.text + row.sealed
    audit = [entry for entry in installation.actions() if entry.startswith("secret.")]
    assert ada.delete("/api/secrets/HF_TOKEN").status_code == 204
    assert audit == ["secret.stored", "secret.stored"]
    assert "secret.deleted" in installation.actions()
    assert ada.delete("/api/secrets/HF_TOKEN").status_code == 404


def test_nobody_else_sees_them_and_an_api_token_cannot_change_them(
    server: Server, installation: Installation, member: User
) -> None:
    job = add_job(installation, member)
    project = {"project_id": str(job.project_id)}
    ada, eve = server.signed_in(member), server.signed_in(installation.add_user("Eve"))
    assert ada.put("/api/secrets/WANDB_API_KEY", params=project, json={"value": VALUE}).status_code == 200
    assert ada.get("/api/secrets").json()["items"] == []
    assert len(ada.get("/api/secrets", params=project).json()["items"]) == 1
    assert len(ada.get("/api/secrets", params={"all": True}).json()["items"]) == 1
    assert eve.get("/api/secrets", params={"all": True}).json()["items"] == []
    assert eve.get("/api/secrets", params=project).status_code == 404
    assert eve.put("/api/secrets/WANDB_API_KEY", params=project, json={"value": "x"}).status_code == 404
    assert eve.delete("/api/secrets/WANDB_API_KEY", params=project).status_code == 404
    program = server.program(member)
    assert program.get("/api/secrets").status_code == 200
    assert program.put("/api/secrets/HF_TOKEN", json={"value": "x"}).status_code == 403


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "BLOOM_HOME", "PYTHONPATH"])
def test_names_that_act_on_the_system_are_refused(server: Server, member: User, name: str) -> None:
    refused = server.signed_in(member).put(f"/api/secrets/{name}", json={"value": "x"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "secret_name_reserved")


def test_a_job_keeps_the_names_of_its_secrets_and_asking_for_a_missing_one_is_refused(
    server: Server, installation: Installation, member: User
) -> None:
    ada = server.signed_in(member)
    for name in ("HF_TOKEN", "OTHER"):
        assert ada.put(f"/api/secrets/{name}", json={"value": VALUE}).status_code == 200
    project = {"name": "P", "model_architecture": "transformer", "model_size": 0.001}
    made = ada.post("/api/jobs", json={"project": project})
    assert made.status_code == 201, made.text
    named = ada.post("/api/jobs", json={"project": {**project, "name": "Q"}, "secrets": ["OTHER"]})
    kept = {job.id: job.secrets for job in installation.all(TrainingJob)}
    assert sorted(kept.values(), key=len) == [["OTHER"], ["HF_TOKEN", "OTHER"]]
    assert VALUE not in made.text + named.text
    refused = ada.post("/api/jobs", json={"project": {**project, "name": "R"}, "secrets": ["GONE"]})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "secret_missing")
