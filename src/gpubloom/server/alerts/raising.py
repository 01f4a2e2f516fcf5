"""Look at jobs that have changed, note alerts for each channel, and stop runs by the rules of their config.

One task of the server does it for all jobs, whoever wrote their rows: a worker, or the receiver of runs that
are sent. Noting is idempotent (`AlertDelivery.key`), so several servers may look at the same time.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import structlog
from sqlalchemy import delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.alerts.rules import Raised, alerts_of, rules_of
from gpubloom.server.alerts.tables import AlertChannel, AlertDelivery
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import announce, lock_job
from gpubloom.server.jobs.states import TOP_LEVEL_KINDS, after, can
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard.alert_rules import STALL_SECONDS

log = structlog.get_logger("bloom")

# What happened longer ago is not told any more, for example after a server was off for a week.
_RECENT = timedelta(days=2)
# Workers on other machines write `updated_at` by their own clocks.
_CLOCK_SKEW = timedelta(minutes=10)
_KEPT = timedelta(days=30)
MOST_PER_HOUR = 60
_JOBS_AT_ONCE = 100


class Raiser:
    """Knows how far each job was looked at. A new one looks again and notes nothing twice."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: dict[UUID, int] = {}
        self._since: datetime | None = None
        self._pruned: datetime | None = None

    async def look(self) -> None:
        """Note alerts of jobs that have changed, and of sent runs that nothing was heard of."""
        moment = now()
        since = self._since or moment - _RECENT
        silent = moment - timedelta(seconds=STALL_SECONDS)
        async with self._database.read() as session:
            rows = await session.execute(
                select(TrainingJob.id, TrainingJob.position, TrainingJob.updated_at).where(
                    TrainingJob.kind.in_(TOP_LEVEL_KINDS),
                    or_(
                        TrainingJob.updated_at >= since,
                        (TrainingJob.status == "running")
                        & (TrainingJob.kind == "run")
                        & (TrainingJob.updated_at.between(moment - _RECENT, silent)),
                    ),
                )
            )
            found = {
                row.id: (-row.position if row.updated_at < silent else row.position) for row in rows.all()
            }
        changed = [job_id for job_id, position in found.items() if self._seen.get(job_id) != position]
        for first in range(0, len(changed), _JOBS_AT_ONCE):
            await self._look_at(changed[first : first + _JOBS_AT_ONCE], moment)
        self._seen = {**{job_id: self._seen[job_id] for job_id in self._seen.keys() & found.keys()}, **found}
        self._since = moment - _CLOCK_SKEW
        if self._pruned is None or moment - self._pruned > timedelta(hours=1):
            self._pruned = moment
            await self._prune(moment)

    async def _look_at(self, ids: Sequence[UUID], moment: datetime) -> None:
        async with self._database.read() as session:
            jobs = list(await session.scalars(select(TrainingJob).where(TrainingJob.id.in_(ids))))
            owners = {job.user_id for job in jobs}
            channels = list(
                await session.scalars(
                    select(AlertChannel).where(AlertChannel.user_id.in_(owners), AlertChannel.enabled)
                )
            )
        for job in jobs:
            try:
                await self._look_at_job(job, channels, moment)
            except (DataError, ValueError, TypeError, OverflowError) as problem:
                # What one run says must not silence the alerts of all others.
                log.error("could not look for alerts of a job", job=str(job.id), exc_info=problem)

    async def _look_at_job(
        self, job: TrainingJob, channels: Sequence[AlertChannel], moment: datetime
    ) -> None:
        raised = [each for each in alerts_of(job, moment) if moment - each.at < _RECENT]
        if not raised:
            return
        rules = rules_of(job)
        if stopping := [each for each in raised if each.rules & rules.stop_on]:
            await self._stop(job, stopping[0])
        wanted = [
            (channel, each)
            for channel in channels
            if channel.user_id == job.user_id and channel.project_id in {None, job.project_id}
            for each in raised
            if each.at >= channel.created_at and each.rules & (rules.on or set(channel.rules))
        ]
        await self._note(job, wanted, moment)

    async def _note(
        self, job: TrainingJob, wanted: Sequence[tuple[AlertChannel, Raised]], moment: datetime
    ) -> None:
        if not wanted:
            return
        async with self._database.read() as session:
            # A read first: most looks find what was told before.
            rows = await session.execute(
                select(AlertDelivery.channel_id, AlertDelivery.key).where(AlertDelivery.job_id == job.id)
            )
            known = {(channel_id, key) for channel_id, key in rows}
        new = [pair for pair in wanted if (pair[0].id, pair[1].key) not in known]
        if not new:
            return
        insert = sqlite_insert if self._database.kind == "sqlite" else postgresql_insert
        async with self._database.write() as session:
            for channel, raised in new:
                busy = await _sent_within_an_hour(session, channel.id, moment) >= MOST_PER_HOUR
                await session.execute(
                    insert(AlertDelivery)
                    .values(
                        id=uuid4(),
                        channel_id=channel.id,
                        job_id=job.id,
                        key=raised.key,
                        rule=raised.alert.rule,
                        level=raised.alert.level,
                        title=raised.alert.title,
                        text=raised.alert.text,
                        created_at=moment,
                        next_try_at=None if busy else moment,
                        tries=0,
                        problem=f"More than {MOST_PER_HOUR} alerts in an hour; left out." if busy else None,
                    )
                    .on_conflict_do_nothing()
                )

    async def _stop(self, job: TrainingJob, raised: Raised) -> None:
        """Cancel a job by the rules of its config. A run that was sent stops itself."""
        if job.kind == "run" or not can("cancel", job.status) or job.want == "cancel":
            return
        async with self._database.write() as session:
            locked = await lock_job(session, job.id)
            if (
                locked is None
                or locked.attempt != job.attempt
                or locked.want == "cancel"
                or not can("cancel", locked.status)
            ):
                return
            locked.status = after("cancel", locked.status)
            locked.want = "cancel"
            locked.control_version += 1
            locked.error_code = "stopped_by_rule"
            sentence = (
                f"Stopped early by the rule {raised.alert.rule} in its config. "
                f"{raised.alert.title}: {raised.alert.text}"
            )
            locked.error_message = sentence.strip().removesuffix(":")[:2_000]
            if locked.status == "cancelled":
                locked.end_time = now()
            record(
                session,
                SYSTEM,
                "training_job.stopped_by_rule",
                f"training_job:{locked.id}",
                locked.project_id,
                rule=raised.alert.rule,
            )
            await announce(session, locked)
        log.info("stopped a job by a rule of its config", job=str(job.id), rule=raised.alert.rule)

    async def _prune(self, moment: datetime) -> None:
        async with self._database.write() as session:
            await session.execute(
                delete(AlertDelivery).where(
                    AlertDelivery.created_at < moment - _KEPT, AlertDelivery.next_try_at.is_(None)
                )
            )


async def _sent_within_an_hour(session: AsyncSession, channel_id: UUID, moment: datetime) -> int:
    return (
        await session.scalar(
            select(func.count())
            .select_from(AlertDelivery)
            .where(
                AlertDelivery.channel_id == channel_id,
                AlertDelivery.created_at > moment - timedelta(hours=1),
            )
        )
        or 0
    )
