"""Budgets of people and projects. A job's own is in its row; here all three become one kind of value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import budget as money
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.metering import cost_since, rentals_of
from gpubloom.server.rentals.tables import BILLED, Budget, Rental


def month_of(at: datetime) -> str:
    return at.strftime("%Y-%m")


def month_start(at: datetime) -> datetime:
    return at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


@dataclass
class Limit:
    """A budget that a job counts against. `row` is None for the job's own."""

    value: money.Budget
    row: Budget | None = None

    def remember(self, told: money.Budget, at: datetime) -> None:
        """Keep which percentages were told."""
        self.value = told
        if self.row is not None:
            self.row.warned, self.row.warned_in = sorted(told.told), month_of(at)


async def limits_of(
    session: AsyncSession, job: TrainingJob, told: Sequence[int], at: datetime, *, lock: bool = False
) -> list[Limit]:
    """Every budget that holds for a job; `told`: what was told of its own already.

    `lock`: nobody else reserves a part of these budgets before the transaction ends.
    """
    limits = []
    if job.budget is not None:
        limits.append(Limit(money.Budget(job.budget, "job", told=frozenset(told))))
    statement = (
        select(Budget)
        .where(
            Budget.user_id == job.user_id,
            or_(Budget.project_id.is_(None), Budget.project_id == job.project_id),
        )
        .order_by(Budget.created_at)
    )
    rows = await session.scalars(statement.with_for_update() if lock else statement)
    for row in rows:
        others = await spent(session, row, at, but=job.id)
        if row.period == "month":
            # The job's meter counts from its first second; those of earlier months are not this month's.
            others -= await _cost_before_month(session, job.id, at)
        limits.append(
            Limit(
                money.Budget(
                    row.amount,
                    "user" if row.project_id is None else "project",
                    spent_by_others=others,
                    reserved_by_others=await _reserved(session, row, but=job.id),
                    told=frozenset(warned(row, at)),
                ),
                row,
            )
        )
    return limits


def warned(row: Budget, at: datetime) -> list[int]:
    """The percentages that were told; a new month begins with none."""
    return [] if row.period == "month" and row.warned_in != month_of(at) else list(row.warned)


async def spent(session: AsyncSession, row: Budget, at: datetime, *, but: UUID | None = None) -> float:
    """What counts against a budget so far; of a monthly one, what was billed for this month's time."""
    conditions: list[ColumnElement[bool]] = [Rental.user_id == row.user_id]
    if row.project_id is not None:
        conditions.append(Rental.project_id == row.project_id)
    if but is not None:
        conditions.append(or_(Rental.job_id.is_(None), Rental.job_id != but))
    if row.period == "total":
        return float(await session.scalar(select(func.sum(Rental.cost)).where(*conditions)) or 0.0)
    start = month_start(at)
    conditions += [Rental.cost > 0, or_(Rental.billed_to.is_(None), Rental.billed_to >= start)]
    rentals = await session.scalars(select(Rental).where(*conditions))
    return math.fsum(cost_since(rental, start, at) for rental in rentals)


async def _reserved(session: AsyncSession, row: Budget, *, but: UUID) -> float:
    """What the running machines of other jobs may still cost: their agents were given that time."""
    conditions: list[ColumnElement[bool]] = [
        Rental.user_id == row.user_id,
        Rental.state.in_(BILLED),
        Rental.reserved.is_not(None),
        or_(Rental.job_id.is_(None), Rental.job_id != but),
    ]
    if row.project_id is not None:
        conditions.append(Rental.project_id == row.project_id)
    rentals = await session.scalars(select(Rental).where(*conditions))
    return math.fsum(max(0.0, (rental.reserved or 0.0) - rental.cost) for rental in rentals)


async def _cost_before_month(session: AsyncSession, job_id: UUID, at: datetime) -> float:
    start = month_start(at)
    rentals = await rentals_of(session, job_id)
    return math.fsum(rental.cost - cost_since(rental, start, at) for rental in rentals)
