"""Nothing that lies outside of a run directory is served, whatever links a job has left in it."""

from pathlib import Path

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import Checkpoint
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job, add_training

SECRET = "the server's own secret"


@pytest.fixture
def ada(server: Server, member: User) -> Browser:
    return server.signed_in(member)


@pytest.fixture
def outside(installation: Installation) -> Path:
    folder = installation.home / "outside"
    folder.mkdir()
    for name in ("secret.key", "config.json", "output.log"):
        (folder / name).write_text(f"{SECRET}\n")
    return folder


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("where", ["model", "model/part"])
def test_a_model_folder_that_is_a_link_is_not_downloaded(
    installation: Installation, member: User, ada: Browser, outside: Path, where: str
) -> None:
    job = add_job(installation, member, kind="train", status="completed")
    run_dir = installation.home / "runs" / str(job.id)
    (run_dir / where).parent.mkdir(parents=True)
    (run_dir / where).symlink_to(outside)
    address = f"/api/jobs/{job.id}"
    assert ada.get(address).json()["has_model"] is False
    assert ada.get(f"{address}/model").status_code == 404
    assert ada.get(f"{address}/model/archive").status_code == 404
    for name in ("secret.key", "part/secret.key"):
        answer = ada.get(f"{address}/model/files/{name}")
        assert answer.status_code == 404
        assert SECRET not in answer.text


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("where", ["logs", "logs/output.log"])
def test_output_that_is_a_link_is_not_shown(
    installation: Installation, member: User, ada: Browser, outside: Path, where: str
) -> None:
    job = add_job(installation, member, kind="script", status="completed")
    path = installation.home / "runs" / str(job.id) / where
    path.parent.mkdir(parents=True)
    path.symlink_to(outside if where == "logs" else outside / "output.log")
    address = f"/api/jobs/{job.id}/logs"
    for answer in (ada.get(address), ada.get(f"{address}/search", params={"text": "secret"})):
        assert answer.status_code == 200
        assert SECRET not in answer.text


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("path", ["checkpoints/link", "checkpoints/..", "/"])
def test_a_checkpoint_outside_of_the_run_directory_cannot_be_exported(
    installation: Installation, member: User, ada: Browser, outside: Path, path: str
) -> None:
    training = add_training(installation, member, status="running")
    folder = installation.home / "runs" / str(training.id) / "checkpoints"
    (folder / "link").symlink_to(outside)
    checkpoint = installation.all(Checkpoint)[0]
    installation.change(checkpoint, path=path)
    body = {"form": "merged", "checkpoint_id": str(checkpoint.id)}
    answer = ada.post(f"/api/jobs/{training.id}/exports", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "checkpoint_removed")
