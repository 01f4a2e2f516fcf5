"""What a job on rented instances costs, written while it runs, and the limits on what it may cost.

Every method is one short transaction under the job's lease, repeated while the database is away, and its time
is the database's: one worker may continue the meter of another. The budget is checked before an instance is
rented; at a limit the job is asked to pause, and its row says why. `RemoteProvider` terminates the instance.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import Attempt, Decision, Meter, decide, warnings_due
from gpubloom.offers.budget import BudgetWarning
from gpubloom.providers.cloud import Instance
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.clock import now
from gpubloom.server.db.clock import read_database_time
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import announce
from gpubloom.server.jobs.lease import holding
from gpubloom.server.jobs.states import after, can
from gpubloom.server.jobs.summary import Cost, StartState, add_mark, read_summary, with_waiting
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.budgets import Limit, limits_of
from gpubloom.server.rentals.metering import (
    by_database_clock,
    end_rental,
    meter,
    meter_of,
    note_instance,
    rate_of,
    rentals_of,
)
from gpubloom.server.rentals.price_book import PriceBook, current_rate
from gpubloom.server.rentals.tables import BILLED, Rental
from gpubloom.worker.retries import persist

log = structlog.get_logger("bloom.worker")

Result = TypeVar("Result")

_CODES = {"budget": "budget", "time": "time_limit", "price": "price_rose"}
# Another machine is rented only if the budget pays for this many more seconds.
_WORTH_ANOTHER_MACHINE = 600.0
# A smaller difference of two rates is a rounding error.
_SAME_RATE = 1.01


@dataclass(frozen=True)
class Allowance:
    """Whether an instance may be rented, and for how many seconds the rest of the budget pays."""

    decision: Decision
    seconds: float


class Spending:
    """The bill of one job under one lease. `checkpoint_seconds`: how long before a limit it is paused."""

    def __init__(self, database: Database, job_id: UUID, token: UUID, *, checkpoint_seconds: float) -> None:
        self._database, self._job_id, self._token = database, job_id, token
        self._checkpoint_seconds = checkpoint_seconds
        self._log = log.bind(job=str(job_id))

    async def allow(self, rental_id: UUID) -> Allowance:
        """Before an instance is rented: a job whose budget or time is spent is asked to pause instead."""

        async def allowed(session: AsyncSession, job: TrainingJob) -> Allowance:
            rentals = await rentals_of(session, job.id)
            rental = next(each for each in rentals if each.id == rental_id)
            at = await read_database_time(session)
            others = meter_of([each for each in rentals if each.id != rental_id])
            start = Meter((*others.attempts, Attempt(rental.provider, rate_of(rental), at.timestamp())))
            limits = await limits_of(session, job, _sent_warnings(job), at, lock=True)
            decision = self._decide(start, limits, job, at)
            seconds = decision.seconds + self._checkpoint_seconds
            if decision.action == "stop":
                _ask_to_pause(job, decision)
                end_rental(rental, at, decision.reason)
                await self._tell(session, job, rentals, limits, at)
            elif math.isfinite(seconds):
                rental.reserved = rate_of(rental).cost(seconds)
            return Allowance(decision, seconds)

        return await self._transaction(allowed)

    async def note(self, rental_id: UUID, instance: Instance | None, *, is_over: bool = False) -> Decision:
        """Meter the job's instances; `instance`: what the provider said of this one now, if it was asked.

        `is_over`: the agent stopped at its own limit, so the job's limit was reached whatever is metered.
        """

        async def noted(session: AsyncSession, job: TrainingJob) -> Decision:
            at = await read_database_time(session)
            rentals = await rentals_of(session, job.id)
            for rental in rentals:
                if rental.id == rental_id and instance is not None:
                    note_instance(rental, by_database_clock(instance, at), at)
                elif rental.state in BILLED:
                    meter(rental, at)
            limits = await limits_of(session, job, _sent_warnings(job), at)
            metered = meter_of(rentals)
            if is_over:
                # Billing has ended: the rest of the budget can pay for another machine like this one.
                same = next(rental for rental in rentals if rental.id == rental_id)
                another = Attempt(same.provider, rate_of(same), at.timestamp())
                metered = Meter((*metered.attempts, another))
            decision = self._decide(metered, limits, job, at)
            # Money that other jobs had reserved may be free again: then the job goes on with a new machine.
            is_spent = is_over and decision.seconds < _WORTH_ANOTHER_MACHINE
            if (decision.action == "stop" or is_spent) and can("pause", job.status):
                _ask_to_pause(job, decision)
            await self._tell(session, job, rentals, limits, at)
            return decision

        return await self._transaction(noted)

    async def check_rate(self, rental_id: UUID, prices: PriceBook) -> bool:
        """Whether the machine still costs at most what the owner agreed to; otherwise the job is paused."""

        async def checked(session: AsyncSession, job: TrainingJob) -> bool:
            offer = job.offer or {}
            hourly = current_rate(offer, await prices.current(session), now())
            if hourly is None or hourly <= float(offer["hourly"]) * _SAME_RATE:
                return True
            job.offer = {**offer, "new_hourly": hourly}
            reason = (
                f"The price rose from ${offer['hourly']:.2f} to ${hourly:.2f} per hour while the job waited."
            )
            _pause(job, _CODES["price"], f"{reason} Resume the job to accept the new price, or move it.")
            for rental in await rentals_of(session, job.id):
                if rental.id == rental_id:
                    end_rental(rental, await read_database_time(session), reason)
            await announce(session, job)
            return False

        return await self._transaction(checked)

    async def wait(self, sentence: str) -> None:
        """Store why the job is waiting."""

        async def waiting(session: AsyncSession, job: TrainingJob) -> None:
            if read_summary(job.summary).waiting != sentence:
                job.summary = with_waiting(job.summary, sentence)
                await announce(session, job)

        await self._transaction(waiting)

    async def note_start(self, start: StartState) -> None:
        """Store how the machine starts."""

        async def noted(session: AsyncSession, job: TrainingJob) -> None:
            summary = read_summary(job.summary)
            if summary.start != start:
                summary.start = start
                job.summary = summary.dump()
                await announce(session, job)

        await self._transaction(noted)

    async def end(self, rental_id: UUID, detail: str) -> None:
        """End the rental: no instance was rented, or its fate is unknown."""

        async def ended(session: AsyncSession, job: TrainingJob) -> None:
            rentals = await rentals_of(session, job.id)
            at = await read_database_time(session)
            for rental in rentals:
                if rental.id == rental_id and rental.state in BILLED:
                    end_rental(rental, at, detail)
            await self._tell(
                session, job, rentals, await limits_of(session, job, _sent_warnings(job), at), at
            )

        await self._transaction(ended)

    async def _transaction(self, work: Callable[[AsyncSession, TrainingJob], Awaitable[Result]]) -> Result:
        async def once() -> Result:
            async with self._database.write() as session:
                return await work(session, await holding(session, self._job_id, self._token))

        return await persist(once, self._log)

    def _decide(self, spent: Meter, limits: Sequence[Limit], job: TrainingJob, at: datetime) -> Decision:
        return decide(
            spent,
            tuple(limit.value for limit in limits),
            at.timestamp(),
            checkpoint_seconds=self._checkpoint_seconds,
            max_seconds=None if job.max_hours is None else job.max_hours * 3600,
        )

    async def _tell(
        self,
        session: AsyncSession,
        job: TrainingJob,
        rentals: list[Rental],
        limits: Sequence[Limit],
        at: datetime,
    ) -> None:
        total = math.fsum(rental.cost for rental in rentals)
        told = set(_sent_warnings(job))
        summary = read_summary(job.summary)
        before = summary.model_copy()
        summary.waiting = None
        for limit in limits:
            value, warnings = warnings_due(limit.value, total)
            if not warnings:
                continue
            limit.remember(value, at)
            if limit.row is None:
                told |= value.told
            for warning in warnings:
                add_mark(summary, _mark(job, warning))
                _record(session, job, warning)
        summary.cost = cost_of(job, rentals, sorted(told))
        if summary != before:
            job.summary = summary.dump()
            await announce(session, job)


def cost_of(job: TrainingJob, rentals: Sequence[Rental], told: list[int]) -> Cost:
    """What the job's page shows of money; US dollars."""
    offer = job.offer or {}
    last = rentals[-1] if rentals else None
    running = [rental for rental in rentals if rental.state in BILLED and rental.billed_from is not None]
    return Cost(
        so_far=round(math.fsum(rental.cost for rental in rentals), 6),
        hourly=round(math.fsum(rental.hourly for rental in running), 6)
        if running
        else offer.get("hourly", 0.0),
        estimated=offer.get("estimate"),
        limit=job.budget,
        provider=offer.get("provider") if last is None else last.provider,
        gpu=offer.get("gpu") if last is None else last.gpu,
        gpus=offer.get("gpus") if last is None else last.gpus,
        region=offer.get("region") if last is None else last.region,
        kind=offer.get("kind") if last is None else last.kind,
        billed_seconds=round(math.fsum(rental.billed_seconds for rental in rentals), 3),
        running=bool(running),
        detail=None if last is None else last.detail or None,
        page=None if last is None else last.page,
        warnings=told,
    )


def _sent_warnings(job: TrainingJob) -> list[int]:
    return (read_summary(job.summary).cost or Cost()).warnings


def _ask_to_pause(job: TrainingJob, decision: Decision) -> None:
    _pause(
        job,
        _CODES[decision.limit],
        f"{decision.reason} The job was paused. Raise the limit, then resume the job here or on "
        "another machine.",
    )


def _pause(job: TrainingJob, code: str, sentence: str) -> None:
    if not can("pause", job.status):
        return
    job.status = after("pause", job.status)
    job.want = "pause"
    job.control_version += 1
    job.error_code, job.error_message = code, sentence


def _mark(job: TrainingJob, warning: BudgetWarning) -> dict[str, Any]:
    return {
        "kind": "budget",
        "attempt": job.attempt,
        "step": read_summary(job.summary).step or 0,
        "percent": warning.percent,
        "scope": warning.scope,
        "sentence": warning.sentence,
    }


def _record(session: AsyncSession, job: TrainingJob, warning: BudgetWarning) -> None:
    record(
        session,
        SYSTEM,
        "budget.warning",
        f"training_job:{job.id}",
        percent=warning.percent,
        scope=warning.scope,
        sentence=warning.sentence,
    )
