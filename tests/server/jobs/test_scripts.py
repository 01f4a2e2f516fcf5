"""The script of a job, before there is a job."""

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_project


def test_the_script_shown_before_launch_is_the_one_that_the_job_runs(
    installation: Installation, member: User, ada: Browser
) -> None:
    (installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 500)
    project = add_project(installation, member, training_data_path="corpus.txt")
    wanted = {"project_id": str(project.id), "config": {"epochs": 2, "name": "shown"}}
    shown = ada.post("/api/plan/script", json=wanted)
    assert shown.status_code == 200, shown.text
    assert installation.all(TrainingJob) == [], "nothing is started"
    job = ada.post("/api/jobs", json=wanted).json()
    assert ada.get(f"/api/jobs/{job['id']}/script").json() == shown.json()


def test_there_is_no_script_of_what_cannot_run(ada: Browser) -> None:
    refused = ada.post("/api/plan/script", json={"config": {"batch_size": -1}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "config.batch_size"


def test_a_script_of_somebody_elses_project_is_not_found(
    installation: Installation, ada: Browser, admin: User
) -> None:
    project = add_project(installation, admin)
    assert ada.post("/api/plan/script", json={"project_id": str(project.id)}).status_code == 404
