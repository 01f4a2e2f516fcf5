"""What the API says of a run that did not go well: findings, no best step, failures on data, time taken."""

from datetime import timedelta
from uuid import uuid4

import pytest

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_dataset, add_job


@pytest.mark.parametrize(
    ("kind", "best"),
    [("diverging", False), ("few_rows_used", False), ("overfitting", False), ("no_learning", True)],
)
def test_a_run_that_diverged_overfitted_or_used_few_rows_has_no_best_checkpoint(
    installation: Installation, member: User, ada: Browser, kind: str, best: bool
) -> None:
    finding = {"kind": kind, "severity": "critical", "sentence": "So it is.", "next_step": "Do this."}
    job = add_job(installation, member, status="completed", summary={"findings": [finding]})
    installation.add(
        Checkpoint(
            id=uuid4(),
            job_id=job.id,
            attempt=1,
            step=5,
            path="checkpoints/step-5",
            metrics={},
            best=True,
            saved_at=now(),
        )
    )
    [shown] = ada.get(f"/api/jobs/{job.id}").json()["summary"]["findings"]
    assert (shown["severity"], shown["next_step"]) == ("critical", "Do this.")
    assert shown["title"]
    assert shown["without_best"] is not best
    for address in (f"/api/jobs/{job.id}/checkpoints", "/api/checkpoints"):
        [checkpoint] = ada.get(address).json()["items"]
        assert checkpoint["best"] is best, address


def test_a_job_that_failed_on_its_data_says_so_with_the_name_of_the_dataset(
    installation: Installation, member: User, ada: Browser
) -> None:
    dataset = add_dataset(installation, member, name="support tickets")
    path = str(installation.home / "datasets" / str(dataset.id) / "data.jsonl")
    config = TrainConfig.model_validate({"data": {"train_path": path}, "device": "cpu"})
    job = add_job(
        installation,
        member,
        status="failed",
        dataset_id=dataset.id,
        config=config.model_dump(mode="json"),
        error_code="no_examples",
        error_message=f"{path}: no row can be used. data.jsonl has 3 rows.",
    )
    shown = ada.get(f"/api/jobs/{job.id}").json()
    assert shown["failed_on_data"] is True
    assert shown["error_message"] == "support tickets: no row can be used. support tickets has 3 rows."
    other = add_job(installation, member, status="failed", error_code="too_many_attempts")
    assert ada.get(f"/api/jobs/{other.id}").json()["failed_on_data"] is False
    for code in ("data_not_found", "not_finite"):
        again = add_job(installation, member, status="failed", error_code=code)
        assert ada.get(f"/api/jobs/{again.id}").json()["failed_on_data"] is True


@pytest.mark.long
def test_time_taken_leaves_out_the_queue_and_pauses(installation: Installation, member: User) -> None:
    job = add_job(installation, member, status="queued")
    with installation.session() as session:
        row = session.get_one(TrainingJob, job.id)
        row.status = "provisioning"
        assert row.active_since is not None
        row.status = "running"
        row.active_since = now() - timedelta(seconds=60)
        row.status = "pausing"
        row.status = "paused"
        assert 60 <= row.active_seconds < 90
        # A pause of any length adds nothing.
        taken = row.active_seconds
        row.status = "queued"
        row.status = "provisioning"
        row.active_since = now() - timedelta(seconds=30)
        row.status = "completed"
        assert 30 <= row.active_seconds - taken < 60
        # Nor does a clock that is put back by an hour take anything away.
        taken = row.active_seconds
        row.status = "queued"
        row.status = "provisioning"
        row.active_since = now() + timedelta(hours=1)
        row.status = "completed"
        assert row.active_seconds == taken
