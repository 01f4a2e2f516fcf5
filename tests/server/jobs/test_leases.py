"""Claims and leases: one worker per job, and a stale worker changes nothing. On both databases."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from uuid import uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.lease import (
    Claimant,
    FreeSlots,
    LeaseLost,
    claim_abandoned,
    claim_queued,
    holding,
    renew,
)
from gpubloom.server.jobs.tables import TrainingJob
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job, add_project

# What one worker process does: claim, finish, until nothing is left.
_WORKER = """
import asyncio, json, sys
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.lease import Claimant, FreeSlots, claim_queued, holding, release

async def main():
    database = Database(sys.argv[1])
    claimed = []
    while True:
        async with database.write() as session:
            job = await claim_queued(session, Claimant(sys.argv[2], "machine"), FreeSlots(cpu=True))
        if job is None:
            break
        claimed.append(str(job.id))
        async with database.write() as session:
            row = await holding(session, job.id, job.lease_token)
            row.status = "completed"
            release(row)
    await database.close()
    print(json.dumps(claimed))

asyncio.run(main())
"""


@pytest.mark.long
def test_four_workers_claim_400_jobs_once_each(installation: Installation, member: User) -> None:
    project = add_project(installation, member)
    template = add_job(installation, member, project_id=project.id)
    with installation.session() as session:
        fields = {"config": template.config, "plan": template.plan, "name": "toy"}
        session.add_all(
            TrainingJob(id=uuid4(), project_id=project.id, user_id=member.id, **fields) for _ in range(399)
        )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, installation.database_url, f"worker-{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    outputs = [worker.communicate(timeout=150)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    claims = [job_id for output in outputs for job_id in json.loads(output)]
    assert len(claims) == len(set(claims)) == 400
    assert {job.status for job in installation.all(TrainingJob)} == {"completed"}


def test_a_stale_worker_can_change_nothing(installation: Installation, member: User) -> None:
    job = add_job(installation, member)

    async def scenario() -> None:
        database = Database(installation.database_url)
        async with database.write() as session:
            first = await claim_queued(session, Claimant("first", "here"), FreeSlots(cpu=True))
        assert first is not None
        assert first.lease_token is not None
        async with database.write() as session:
            assert await claim_abandoned(session, Claimant("second", "here")) is None, (
                "a held lease cannot be taken"
            )
        installation.change(job, lease_expires=now() - timedelta(seconds=1))
        async with database.write() as session:
            second = await claim_abandoned(session, Claimant("second", "here"))
        assert second is not None
        assert second.lease_token is not None
        assert (second.status, second.attempt) == ("provisioning", 1)
        async with database.write() as session:
            assert not await renew(session, job.id, first.lease_token)
            assert await renew(session, job.id, second.lease_token)
        async with database.write() as session:
            with pytest.raises(LeaseLost):
                await holding(session, job.id, first.lease_token)
        await database.close()

    asyncio.run(scenario())


def test_people_take_turns_whoever_queued_more(installation: Installation, member: User) -> None:
    crowd, late = member, installation.add_user("Grace")
    project = add_project(installation, crowd)
    template = add_job(installation, crowd, project_id=project.id)
    fields = {"config": template.config, "plan": template.plan, "name": "toy", "project_id": project.id}
    with installation.session() as session:
        session.add_all(TrainingJob(id=uuid4(), user_id=crowd.id, **fields) for _ in range(500))
    for _ in range(3):
        add_job(installation, late, project_id=project.id)

    async def scenario(*, ends: bool) -> list[str]:
        database = Database(installation.database_url)
        claims = []
        for _ in range(4):
            async with database.write() as session:
                job = await claim_queued(session, Claimant("first", "here"), FreeSlots(cpu=True))
                assert job is not None
                if ends:
                    job.status = "completed"
            claims.append("crowd" if job.user_id == crowd.id else "late")
        await database.close()
        return claims

    # On one device, one after the other; then on several at once.
    assert asyncio.run(scenario(ends=True)) == ["crowd", "late", "crowd", "late"]
    assert asyncio.run(scenario(ends=False)) == ["crowd", "late", "crowd", "crowd"]


def test_jobs_start_in_the_order_they_were_queued_where_a_device_is_free(
    installation: Installation, member: User
) -> None:
    project = add_project(installation, member)
    moment = now()
    later = add_job(installation, member, project_id=project.id, queued_at=moment)
    needs_gpu = add_job(
        installation, member, project_id=project.id, gpus=1, queued_at=moment - timedelta(minutes=2)
    )
    first = add_job(installation, member, project_id=project.id, queued_at=moment - timedelta(minutes=1))

    async def scenario() -> list[object]:
        database = Database(installation.database_url)
        order = []
        for gpus, cpu in ((0, True), (0, True), (0, True), (1, False)):
            async with database.write() as session:
                job = await claim_queued(session, Claimant("w", "here"), FreeSlots(gpus=gpus, cpu=cpu))
            order.append(None if job is None else job.id)
        await database.close()
        return order

    assert asyncio.run(scenario()) == [first.id, later.id, None, needs_gpu.id]


def test_a_job_that_ran_goes_on_only_where_its_run_directory_is(
    installation: Installation, member: User
) -> None:
    add_job(installation, member, machine="here", attempt=1)

    async def scenario() -> None:
        database = Database(installation.database_url)
        async with database.write() as session:
            assert await claim_queued(session, Claimant("w", "there"), FreeSlots(cpu=True)) is None
            job = await claim_queued(session, Claimant("w", "here"), FreeSlots(cpu=True))
            assert job is not None
            job.lease_expires = now() - timedelta(seconds=1)
        async with database.write() as session:
            assert await claim_abandoned(session, Claimant("w", "there")) is None
            assert await claim_abandoned(session, Claimant("w", "here")) is not None
        await database.close()

    asyncio.run(scenario())
