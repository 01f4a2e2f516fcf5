"""One checkpoint of a job: downloaded, deleted, gone back to, and branched from."""

import io
import tarfile
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs import checkpoint_actions
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.problems import Conflict
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_job


def _add_checkpoints(installation: Installation, job: TrainingJob, *steps: int) -> dict[int, str]:
    """Rows and folders; returns the address of each checkpoint by its step."""
    found = {}
    for step in steps:
        folder = _folder(installation, job, step)
        folder.mkdir(parents=True)
        (folder / "progress.json").write_text(f'{{"step": {step}}}')
        row = installation.add(
            Checkpoint(
                id=uuid4(),
                job_id=job.id,
                attempt=1,
                step=step,
                path=f"checkpoints/step-{step:08d}",
                metrics={},
                best=False,
                saved_at=now(),
            )
        )
        found[step] = f"/api/jobs/{job.id}/checkpoints/{row.id}"
    return found


def _run_dir(installation: Installation, job: TrainingJob) -> Path:
    return installation.home / "runs" / str(job.id)


def _folder(installation: Installation, job: TrainingJob, step: int) -> Path:
    return _run_dir(installation, job) / "checkpoints" / f"step-{step:08d}"


def _steps(ada: Browser, job: TrainingJob) -> list[int]:
    return [item["step"] for item in ada.get(f"/api/jobs/{job.id}/checkpoints").json()["items"]]


@pytest.mark.long
def test_a_checkpoint_is_downloaded_and_deleted(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="completed")
    at = _add_checkpoints(installation, job, 10, 20)
    content = ada.get(f"{at[10]}/archive").content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        [name] = archive.getnames()
    assert name.endswith("/progress.json")
    assert ada.delete(at[10]).status_code == 204
    assert _steps(ada, job) == [20]
    assert not _folder(installation, job, 10).exists()
    assert _folder(installation, job, 20).exists()
    again = ada.delete(at[10])
    assert (again.status_code, again.json()["code"]) == (409, "checkpoint_removed")


def test_a_job_goes_back_to_an_older_checkpoint(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="paused")
    at = _add_checkpoints(installation, job, 10, 20, 30)
    resumed = ada.post(f"{at[20]}/resume")
    assert (resumed.status_code, resumed.json()["status"]) == (200, "queued")
    assert _steps(ada, job) == [20, 10]
    # The trainer takes the newest folder, so the later one must be gone.
    assert not _folder(installation, job, 30).exists()
    assert [path.name for path in _run_dir(installation, job).iterdir()] == ["checkpoints"]


def test_files_are_deleted_outside_of_the_transaction_and_come_back_if_it_fails(
    installation: Installation, member: User, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(installation, member, status="paused")
    at = _add_checkpoints(installation, job, 10, 20)
    remove, seen = checkpoint_actions.remove_beneath, []

    def removed(top: Path, name: str, *, folder: bool) -> None:
        # Whoever else writes to the database does not wait for the disk.
        installation.change(job, notes="written meanwhile")
        seen.append(name)
        remove(top, name, folder=folder)

    monkeypatch.setattr(checkpoint_actions, "remove_beneath", removed)
    assert ada.delete(at[20]).status_code == 204
    assert len(seen) == 1

    def refused(*_: object, **__: object) -> None:
        raise Conflict("No.")

    monkeypatch.setattr(checkpoint_actions.service, "record_change", refused)
    assert ada.delete(at[10]).status_code == 409
    assert (_folder(installation, job, 10) / "progress.json").exists()
    assert _steps(ada, job) == [10]
    assert [path.name for path in _run_dir(installation, job).iterdir()] == ["checkpoints"]


def test_a_server_that_was_killed_while_it_removed_checkpoints_finishes_at_its_next_start(
    installation: Installation, member: User
) -> None:
    job = add_job(installation, member, status="paused")
    _add_checkpoints(installation, job, 10, 20)
    removed = installation.all(Checkpoint)[0]
    installation.change(removed, removed=True)
    # One deletion was committed, the other was not; both folders were taken away before the kill.
    run_dir = _run_dir(installation, job)
    for aside, name in (("a", "step-00000010"), ("b", "step-00000020")):
        (run_dir / f".removed-{aside}").mkdir()
        (run_dir / "checkpoints" / name).rename(run_dir / f".removed-{aside}" / name)
    with installation.serve() as server:
        assert [path.name for path in run_dir.iterdir()] == ["checkpoints"]
        assert [path.name for path in (run_dir / "checkpoints").iterdir()] == ["step-00000020"]
        assert _steps(server.signed_in(member), job) == [20]


@pytest.mark.parametrize("status", ["running", "queued"])
def test_a_job_that_runs_keeps_its_checkpoints_itself(
    installation: Installation, member: User, ada: Browser, status: str
) -> None:
    job = add_job(installation, member, status=status)
    at = _add_checkpoints(installation, job, 10)
    for answer in (ada.delete(at[10]), ada.post(f"{at[10]}/resume")):
        assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")
    assert _folder(installation, job, 10).exists()


def test_a_branch_is_a_new_job_with_changed_settings(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="completed", secrets=["AWS_ACCESS_KEY_ID"])
    at = _add_checkpoints(installation, job, 10)
    body = {"name": "Slower", "learning_rate": 1e-5, "max_steps": 40}
    branch = ada.post(f"{at[10]}/branch", json=body).json()
    assert branch["status"] == "queued"
    assert branch["name"] == "Slower"
    assert branch["branch"] == {"job_id": str(job.id), "step": 10}
    assert branch["config"]["learning_rate"] == 1e-5
    assert branch["config"]["max_steps"] == 40
    made = installation.get(TrainingJob, UUID(branch["id"]))
    assert made is not None
    assert made.secrets == ["AWS_ACCESS_KEY_ID"], "its data may be at an address"
    first = ada.get(f"/api/jobs/{job.id}").json()
    assert (first["status"], first["branch"]) == ("completed", None)
    refused = ada.post(f"{at[10]}/branch", json={"max_steps": 10})
    assert (refused.status_code, refused.json()["code"]) == (409, "already_trained")
