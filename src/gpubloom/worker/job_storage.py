"""Measure how much the run directories of this machine take, for the quotas of their owners.

Every job that was changed since it was measured is measured again. Jobs of a person who keeps more than the
quota allows are ended: what they would write next has no room. Their files stay, so they can be resumed once
there is room again.
"""

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog
from sqlalchemy import or_, select
from sqlalchemy.exc import SQLAlchemyError

from gpubloom.server.db.clock import read_database_time
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import announce, lock_job
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.states import ACTIVE, after, can
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import JobStorage, quota_exceeded, read_usage, room_left

log = structlog.get_logger("bloom.worker")

MEASURE_SECONDS = 60.0
# Inputs are links to files that are counted as datasets and models.
_INPUTS = "inputs"
_BLOCK = 512


@dataclass(frozen=True)
class Sizes:
    """Bytes on the disk of one run directory, by kind."""

    run_bytes: int = 0
    checkpoint_bytes: int = 0
    model_bytes: int = 0


_KINDS = {"checkpoints": "checkpoint_bytes", "model": "model_bytes"}


def measure(run_dir: Path) -> Sizes:
    """What the files take on the disk, as the file system counts it. No link is followed.

    A file with several names counts once: a script may link its files as it likes.
    """
    found = dict.fromkeys(("run_bytes", "checkpoint_bytes", "model_bytes"), 0)
    seen: set[tuple[int, int]] = set()
    # A list, not recursion: a script may nest folders as deeply as it likes.
    folders = [run_dir]
    while folders:
        folder = folders.pop()
        top = folder.relative_to(run_dir).parts[:1]
        kind = _KINDS.get(top[0] if top else "", "run_bytes")
        # What is removed meanwhile, or never was there, takes no room.
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                    continue
                facts = entry.stat(follow_symlinks=False)
                file = (facts.st_dev, facts.st_ino)
                if file in seen or (top == (_INPUTS,) and facts.st_nlink > 1):
                    continue
                seen.add(file)
                found[kind] += facts.st_blocks * _BLOCK
    return Sizes(**found)


async def keep_measuring(
    settings: Settings, database: Database, machine: str, stopping: asyncio.Event
) -> None:
    """Measure until told to stop."""
    while not stopping.is_set():
        try:
            await measure_jobs(settings, database, machine)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("measuring the files of jobs waits", reason=type(problem).__name__)
        except Exception as problem:
            # One run directory must not end the quotas of all others.
            log.error("measuring the files of jobs failed", exc_info=problem)
        try:
            await asyncio.wait_for(stopping.wait(), MEASURE_SECONDS)
        except TimeoutError:
            continue


async def measure_jobs(settings: Settings, database: Database, machine: str) -> None:
    """One round: measure what changed, then end the jobs of people who keep too much."""
    async with database.read() as session:
        moment = await read_database_time(session)
        rows = await session.execute(
            select(TrainingJob.id, TrainingJob.user_id)
            .outerjoin(JobStorage, JobStorage.job_id == TrainingJob.id)
            .where(
                TrainingJob.machine == machine,
                or_(
                    JobStorage.measured_at.is_(None),
                    JobStorage.measured_at <= TrainingJob.updated_at,
                    TrainingJob.status.in_(ACTIVE),
                ),
            )
        )
        changed = [(row.id, row.user_id) for row in rows]
    for job_id, user_id in changed:
        sizes = await asyncio.to_thread(measure, run_directory(settings, job_id))
        async with database.write() as session:
            # Locked, so that it cannot be deleted before its size is stored.
            if await lock_job(session, job_id) is not None:
                await session.merge(
                    JobStorage(job_id=job_id, user_id=user_id, measured_at=moment, **vars(sizes))
                )
    await _end_jobs_without_room(settings, database, machine, {user_id for _, user_id in changed})


async def _end_jobs_without_room(
    settings: Settings, database: Database, machine: str, people: Collection[UUID]
) -> None:
    for user_id in people:
        async with database.read() as session:
            if await room_left(session, settings, user_id) >= 0:
                continue
            used = (await read_usage(session, user_id)).total
            active = await session.scalars(
                select(TrainingJob.id).where(
                    TrainingJob.user_id == user_id,
                    TrainingJob.machine == machine,
                    TrainingJob.status.in_(ACTIVE),
                )
            )
            job_ids = list(active)
        for job_id in job_ids:
            async with database.write() as session:
                job = await lock_job(session, job_id)
                if job is None or job.status not in ACTIVE or not can("cancel", job.status):
                    continue
                job.status = after("cancel", job.status)
                job.want = "cancel"
                job.control_version += 1
                job.error_code = "quota_exceeded"
                job.error_message = quota_exceeded(used, settings, "the job needs more").detail
                await announce(session, job)
            log.warning("ending a job whose owner has no room left", job=str(job_id), used=used)
