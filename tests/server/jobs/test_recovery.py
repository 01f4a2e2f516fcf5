"""Jobs whose machine is gone, or whose owner is disabled: they end, whoever is left to ask for it."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.recovery import cancel_of_disabled, settle_cancelled
from gpubloom.server.jobs.tables import Machine, TrainingJob
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_job

HOUR = timedelta(hours=1)


def _running(installation: Installation, member: User, *, seen: timedelta, **changes: Any) -> TrainingJob:
    """A job on a machine that was heard of some time ago, and whose lease ran out."""
    installation.add(Machine(name="box", last_seen_at=now() - seen, gone_at=None))
    fields = {
        "status": "running",
        "attempt": 1,
        "machine": "box",
        "worker": "box:1",
        "lease_token": uuid4(),
        "lease_expires": now() - timedelta(seconds=30),
    }
    return add_job(installation, member, **{**fields, **changes})


@pytest.mark.parametrize("target", ["local", "toy"])
def test_a_job_whose_machine_is_gone_is_cancelled_at_once_and_deleted(
    installation: Installation, member: User, ada: Browser, target: str
) -> None:
    job = _running(installation, member, seen=HOUR, target=target)
    address = f"/api/jobs/{job.id}"
    assert ada.delete(address).status_code == 409, "it was not cancelled yet"
    cancelled = ada.post(f"{address}/cancel").json()
    assert (cancelled["status"], cancelled["end_time"] is None) == ("cancelled", False)
    stored = installation.get(TrainingJob, job.id)
    assert stored is not None
    assert stored.lease_token is None, "its machine has lost it"
    assert ada.delete(address).status_code == 204


def test_a_job_that_was_cancelled_before_its_machine_was_gone_does_not_stay_so(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = _running(installation, member, seen=HOUR, status="cancelling", want="cancel")
    assert ada.post(f"/api/jobs/{job.id}/cancel").json()["status"] == "cancelled"
    other = add_job(
        installation, member, status="cancelling", want="cancel", machine="box", project_id=job.project_id
    )
    assert ada.delete(f"/api/jobs/{other.id}").status_code == 204


def test_a_job_whose_machine_is_heard_of_is_cancelled_by_its_worker(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = _running(installation, member, seen=timedelta(minutes=1))
    address = f"/api/jobs/{job.id}"
    assert ada.post(f"{address}/cancel").json()["status"] == "cancelling"
    assert ada.delete(address).status_code == 409


def test_the_server_ends_cancelled_jobs_when_no_worker_is_left(
    installation: Installation, member: User
) -> None:
    lost = _running(installation, member, seen=HOUR, status="cancelling")
    held = add_job(
        installation,
        member,
        project_id=lost.project_id,
        status="cancelling",
        machine="box",
        lease_token=uuid4(),
        lease_expires=now() + HOUR,
    )

    async def settled() -> int:
        database = Database(installation.database_url)
        count = await settle_cancelled(database, timedelta(minutes=30))
        await database.close()
        return count

    assert asyncio.run(settled()) == 1
    found = {job.id: job.status for job in installation.all(TrainingJob)}
    assert found == {lost.id: "cancelled", held.id: "cancelling"}


def test_a_job_whose_machine_is_gone_is_paused_and_resumed(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = _running(installation, member, seen=HOUR)
    address = f"/api/jobs/{job.id}"
    assert ada.post(f"{address}/pause").json()["status"] == "paused"
    assert ada.post(f"{address}/resume").json()["status"] == "queued"


def test_the_jobs_of_a_disabled_account_are_cancelled_and_those_of_others_go_on(
    installation: Installation, member: User
) -> None:
    other = installation.add_user("Grace")
    project = add_job(installation, member, status="completed").project_id
    statuses = ("queued", "provisioning", "running", "pausing", "paused", "failed")
    own = {status: add_job(installation, member, status=status, project_id=project).id for status in statuses}
    sent = add_job(installation, member, status="running", kind="run", project_id=project).id
    others = add_job(installation, other, status="running").id
    installation.change(member, disabled=True)

    async def cancelled() -> tuple[int, int]:
        database = Database(installation.database_url)
        counts = await cancel_of_disabled(database), await cancel_of_disabled(database)
        await database.close()
        return counts

    assert asyncio.run(cancelled()) == (4, 0)
    jobs = {job.id: job for job in installation.all(TrainingJob)}
    assert {status: jobs[job_id].status for status, job_id in own.items()} == {
        "queued": "cancelled",
        "provisioning": "cancelling",
        "running": "cancelling",
        "pausing": "cancelling",
        "paused": "paused",
        "failed": "failed",
    }
    assert (jobs[sent].status, jobs[others].status) == ("running", "running")
    stopped = jobs[own["running"]]
    assert (stopped.want, stopped.control_version, stopped.error_code) == ("cancel", 1, "account_disabled")
    assert jobs[own["queued"]].end_time is not None
    assert installation.actions().count("training_job.cancel") == 4
