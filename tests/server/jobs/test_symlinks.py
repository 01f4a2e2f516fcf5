"""Nothing that lies outside of a run directory is served, whatever links a job has left in it."""

import os
from pathlib import Path

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.files import remove_run
from gpubloom.server.jobs.tables import Checkpoint
from gpubloom.server.playground.endpoint import last_use, note_use, read_endpoint
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_job, add_training

SECRET = "the server's own secret"


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


def nest(folder: Path, depth: int) -> None:
    """Folders inside of each other, deeper than a path can name."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("folder", ["model", "artifacts"])
def test_odd_names_pipes_and_endless_folders_do_not_break_a_download(
    installation: Installation, member: User, ada: Browser, outside: Path, folder: str
) -> None:
    job = add_job(installation, member, kind="script", status="completed")
    run_dir = installation.home / "runs" / str(job.id)
    here = run_dir / ("work" if folder == "artifacts" else folder)
    here.mkdir(parents=True)
    (here / "weights.bin").write_text("mine")
    (here / "line\nbreak").write_text("odd")
    Path(os.fsdecode(os.fsencode(here) + b"/\xff")).write_text("odd")
    (here / "secret").symlink_to(outside / "secret.key")
    os.mkfifo(here / "pipe")
    nest(here, 1_500)
    address = f"/api/jobs/{job.id}/{folder}"
    listed = ada.get(address)
    assert [file["path"] for file in listed.json()["items"]] == ["weights.bin"]
    assert ada.get(f"{address}/files/weights.bin").text == "mine"
    archive = ada.get(f"{address}/archive")
    assert archive.status_code == 200
    assert SECRET.encode() not in archive.content
    for name in ("secret", "pipe", "%FF"):
        assert ada.get(f"{address}/files/{name}").status_code == 404
    remove_run(run_dir)
    assert not run_dir.exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_output_that_is_a_pipe_keeps_nobody_waiting(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, kind="script", status="running")
    logs = installation.home / "runs" / str(job.id) / "logs"
    logs.mkdir(parents=True)
    os.mkfifo(logs / "output.log")
    assert ada.get(f"/api/jobs/{job.id}/logs").json()["lines"] == []
    assert ada.get(f"/api/jobs/{job.id}/logs/search", params={"text": "a"}).status_code == 200


@pytest.mark.timeout(30)
def test_a_playground_is_not_found_through_a_link(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
    (other / "serve.json").write_text('{"port": 8000, "token": "private", "models": ["m"]}')
    assert read_endpoint(other) is not None
    (mine / "serve.json").symlink_to(other / "serve.json")
    assert read_endpoint(mine) is None
    (mine / "serve.json").unlink()
    os.mkfifo(mine / "serve.json")
    assert read_endpoint(mine) is None


def test_the_use_of_a_playground_is_not_noted_through_a_link(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    (mine / "used").symlink_to(other)
    note_use(mine)
    assert not other.exists()
    (mine / "used").unlink()
    note_use(mine)
    assert last_use(mine) is not None
