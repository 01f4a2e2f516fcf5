"""The files of jobs count against the quota of their owner, by kind, and end jobs that have no room."""

import asyncio
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import JobStorage, room_for
from gpubloom.worker.job_storage import Sizes, measure, measure_jobs
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_job
from tests.worker.machine import Machine

MACHINE = "box"
PIECE = 1 << 20
# Three pieces do not fit.
QUOTA_GB = 2.5 * PIECE / 1e9


@pytest.fixture
def member(installation: Installation) -> User:
    return installation.add_user("Ada")


def _write(path: Path, pieces: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(PIECE) * pieces)
    return path


def _rounded(sizes: Sizes) -> tuple[int, int, int]:
    """In pieces: a file system may add blocks of its own."""
    return (
        round(sizes.run_bytes / PIECE),
        round(sizes.checkpoint_bytes / PIECE),
        round(sizes.model_bytes / PIECE),
    )


def test_files_are_measured_by_kind(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    _write(run_dir / "logs/output.log")
    _write(run_dir / "work/out.bin", 2)
    _write(run_dir / "checkpoints/step-10/state.bin", 3)
    _write(run_dir / "model/model.safetensors", 4)
    assert _rounded(measure(run_dir)) == (3, 3, 4)
    assert measure(tmp_path / "nothing") == Sizes()


def test_links_neither_hide_a_file_nor_count_what_they_name(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    outside = _write(tmp_path / "outside/huge.bin", 8)
    first = _write(run_dir / "work/a.bin")
    os.link(first, run_dir / "work/b.bin")
    (run_dir / "work/link.bin").symlink_to(outside)
    (run_dir / "work/folder").symlink_to(outside.parent)
    # A dataset that was linked into the run is counted as a dataset.
    (run_dir / "inputs/train").mkdir(parents=True)
    os.link(outside, run_dir / "inputs/train/huge.bin")
    _write(run_dir / "inputs/train/copied.bin")
    assert _rounded(measure(run_dir)) == (2, 0, 0)
    # Announced, but not on the disk.
    with (run_dir / "work/sparse.bin").open("wb") as file:
        file.truncate(1 << 40)
    assert _rounded(measure(run_dir)) == (2, 0, 0)


def _run(installation: Installation, job: TrainingJob, pieces: int) -> None:
    _write(installation.home / "runs" / str(job.id) / "work/out.bin", pieces)


def _measure(installation: Installation, **settings: Any) -> None:
    async def scenario() -> None:
        database = Database(installation.database_url)
        wanted = Settings(
            _env_file=None, home=installation.home, database_url=installation.database_url, **settings
        )
        await measure_jobs(wanted, database, MACHINE)
        await database.close()

    asyncio.run(scenario())


def _status(installation: Installation, job_id: UUID) -> tuple[str, str | None]:
    job = installation.get(TrainingJob, job_id)
    assert job is not None
    return job.status, job.error_code


def test_jobs_of_a_person_without_room_end_and_others_run_on(installation: Installation) -> None:
    ada, grace = installation.add_user("Ada"), installation.add_user("Grace")
    fields: dict[str, Any] = {"status": "running", "machine": MACHINE, "kind": "script"}
    rented = add_job(installation, ada, **{**fields, "target": "lambda"})
    local, other = add_job(installation, ada, **fields), add_job(installation, grace, **fields)
    of_another_machine = add_job(installation, ada, **{**fields, "machine": "another"})
    _run(installation, rented, 2)
    _run(installation, local, 1)
    _run(installation, other, 2)
    _measure(installation, user_quota_gb=QUOTA_GB)
    assert _status(installation, rented.id) == ("cancelling", "quota_exceeded")
    assert _status(installation, local.id) == ("cancelling", "quota_exceeded")
    assert _status(installation, other.id) == ("running", None)
    # Its own worker ends it.
    assert _status(installation, of_another_machine.id) == ("running", None)
    stored = installation.get(TrainingJob, rented.id)
    assert stored is not None
    assert stored.want == "cancel"
    assert "BLOOM_USER_QUOTA_GB" in (stored.error_message or "")


def test_an_ended_job_is_measured_again_only_when_it_changed(
    installation: Installation, member: User
) -> None:
    job = add_job(installation, member, status="completed", machine=MACHINE)
    _run(installation, job, 1)
    _measure(installation)
    _run(installation, job, 2)
    _measure(installation)
    [row] = installation.all(JobStorage)
    assert round(row.run_bytes / PIECE) == 1
    installation.change(job, name="another")
    _measure(installation)
    [row] = installation.all(JobStorage)
    assert round(row.run_bytes / PIECE) == 2


def test_a_run_may_hold_what_the_quota_leaves_besides_its_own(
    installation: Installation, member: User
) -> None:
    for pieces in (1, 3):
        _run(installation, job := add_job(installation, member, status="paused", machine=MACHINE), pieces)
    _measure(installation)

    async def scenario() -> int:
        database = Database(installation.database_url)
        settings = Settings(_env_file=None, home=installation.home, user_quota_gb=10 * PIECE / 1e9)
        async with database.read() as session:
            room = await room_for(session, settings, member.id, job.id)
        await database.close()
        return room

    assert round(asyncio.run(scenario()) / PIECE) == 9


@pytest.fixture
def ada(installation: Installation, member: User) -> Any:
    with installation.serve(user_quota_gb=QUOTA_GB) as server:
        yield server.signed_in(member)


def test_storage_is_shown_by_kind_and_refuses_what_has_no_room(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="completed", machine=MACHINE)
    run_dir = installation.home / "runs" / str(job.id)
    for name in ("logs/output.log", "checkpoints/step-1/state.bin"):
        _write(run_dir / name)
    dataset = {"name": "a", "filename": "a.jsonl", "size": 2000}
    assert ada.post("/api/datasets", json=dataset).status_code == 201
    _measure(installation)
    storage = ada.get("/api/me/storage").json()
    kinds = ("datasets", "models", "runs", "checkpoints", "trained_models")
    assert [round(storage[name] / PIECE) for name in kinds] == [0, 0, 1, 1, 0]
    assert storage["datasets"] == 2000
    assert storage["total"] == sum(storage[name] for name in kinds)
    assert storage["quota"] == int(2.5 * PIECE)

    refused = ada.post("/api/datasets", json={**dataset, "size": PIECE})
    assert (refused.status_code, refused.json()["code"]) == (413, "quota_exceeded")
    assert ada.post(f"/api/jobs/{job.id}/extend", json={"epochs": 99}).status_code == 200

    _write(run_dir / "model/model.safetensors")
    installation.change(job, status="completed")
    _measure(installation)
    refused = ada.post(f"/api/jobs/{job.id}/extend", json={"epochs": 100})
    assert (refused.status_code, refused.json()["code"]) == (413, "quota_exceeded")
    # Deleting makes room at once.
    assert ada.delete(f"/api/jobs/{job.id}").status_code == 204
    assert ada.get("/api/me/storage").json()["total"] == 2000


def test_a_worker_ends_a_training_that_outgrows_the_quota_of_its_owner(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.worker.job_storage.MEASURE_SECONDS", 0.2)
    machine = Machine(installation)
    machine.settings = machine.settings.model_copy(update={"user_quota_gb": QUOTA_GB})
    job_id = machine.add_job(toy={"steps": 100_000, "seconds": 0.05})
    _write(installation.home / "runs" / str(job_id) / "work/out.bin", 3)
    job = machine.run_until(job_id, "cancelled", "completed", "failed")
    assert (job.status, job.error_code) == ("cancelled", "quota_exceeded"), job.error_message
