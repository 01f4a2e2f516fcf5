"""Rented machines, their cost, and budgets. Every query filters by the owner."""

import math
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.pages import Page, read_page
from gpubloom.server.jobs.service import lock_own_job
from gpubloom.server.jobs.summary import Cost, read_summary
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.projects.service import get_project
from gpubloom.server.projects.tables import Project
from gpubloom.server.rentals.budgets import month_start, spent, warned
from gpubloom.server.rentals.metering import cost_since
from gpubloom.server.rentals.schemas import BudgetIn, BudgetOut, ProviderSpending, RentalOut, SpendingOut
from gpubloom.server.rentals.tables import BILLED, Budget, Rental

_MOST_SHOWN = 500


def visible_to(principal: Principal) -> Select[Rental]:
    """The machines a person may see: their own."""
    return select(Rental).where(Rental.user_id == principal.id)


async def list_rentals(
    session: AsyncSession, principal: Principal, page: Page, *, running: bool | None, job_id: UUID | None
) -> tuple[list[RentalOut], int]:
    """A page of them, newest first, and how many there are."""
    statement = visible_to(principal)
    if running is not None:
        is_billed = Rental.state.in_(BILLED)
        statement = statement.where(is_billed if running else ~is_billed)
    if job_id is not None:
        statement = statement.where(Rental.job_id == job_id)
    statement = statement.order_by(Rental.created_at.desc())
    rows, total = await read_page(session, statement, page, searched=(Rental.job_name,))
    return [_rental_out(row) for row in rows], total


def _rental_out(row: Rental) -> RentalOut:
    return RentalOut(
        id=row.id,
        job_id=row.job_id,
        job_name=row.job_name,
        attempt=row.attempt,
        provider=row.provider,
        gpu=row.gpu,
        gpus=row.gpus,
        region=row.region,
        state=row.state,
        detail=row.detail,
        hourly=row.hourly,
        billed_seconds=row.billed_seconds,
        cost=row.cost,
        bill=row.bill,
        started_at=row.billed_from,
        ended_at=row.billed_to,
        page=row.page,
    )


async def spending(session: AsyncSession, principal: Principal) -> SpendingOut:
    """A machine that runs past midnight counts on each day for its share."""
    at = now()
    day, month = at.replace(hour=0, minute=0, second=0, microsecond=0), month_start(at)
    rows: Sequence[Rental] = (await session.scalars(visible_to(principal))).all()
    by_provider: dict[str, float] = {}
    for row in rows:
        by_provider[row.provider] = by_provider.get(row.provider, 0.0) + row.cost
    return SpendingOut(
        today=math.fsum(cost_since(row, day, at) for row in rows),
        this_month=math.fsum(cost_since(row, month, at) for row in rows),
        total=math.fsum(row.cost for row in rows),
        hourly_now=math.fsum(
            row.hourly for row in rows if row.state in BILLED and row.billed_from is not None
        ),
        by_provider=[
            ProviderSpending(provider=provider, cost=cost) for provider, cost in sorted(by_provider.items())
        ],
    )


async def list_budgets(session: AsyncSession, principal: Principal) -> list[BudgetOut]:
    """A person's own first, then those of projects and of jobs."""
    rows = await session.execute(
        select(Budget, Project.name)
        .outerjoin(Project, Project.id == Budget.project_id)
        .where(Budget.user_id == principal.id)
        .order_by(Budget.project_id.is_not(None), Budget.created_at)
    )
    at = now()
    found = [await _budget_out(session, row, name, at) for row, name in rows.all()]
    jobs = await session.scalars(
        select(TrainingJob)
        .where(TrainingJob.user_id == principal.id, TrainingJob.budget.is_not(None))
        .order_by(TrainingJob.created_at.desc())
        .limit(_MOST_SHOWN)
    )
    return found + [_job_budget_out(job) for job in jobs]


async def _budget_out(session: AsyncSession, row: Budget, name: str | None, at: datetime) -> BudgetOut:
    return BudgetOut(
        id=row.id,
        scope="user" if row.project_id is None else "project",
        project_id=row.project_id,
        job_id=None,
        name=name or "Everything",
        limit=row.amount,
        period=row.period,
        spent=await spent(session, row, at),
        warned=warned(row, at),
    )


def _job_budget_out(job: TrainingJob) -> BudgetOut:
    cost = read_summary(job.summary).cost or Cost()
    return BudgetOut(
        # The job's row is where it is kept.
        id=job.id,
        scope="job",
        project_id=None,
        job_id=job.id,
        name=job.name,
        limit=job.budget or 0.0,
        period="total",
        spent=cost.so_far,
        warned=cost.warnings,
    )


async def set_budget(session: AsyncSession, principal: Principal, wanted: BudgetIn) -> BudgetOut:
    """In place of an earlier one of the same thing; its warnings are told anew."""
    given = {
        "user": (wanted.project_id, wanted.job_id) == (None, None),
        "project": wanted.project_id is not None and wanted.job_id is None,
        "job": wanted.job_id is not None and wanted.project_id is None,
    }
    if not given[wanted.scope]:
        raise InvalidInput.for_field(
            "scope",
            "For scope user, send neither project_id nor job_id. For scope project, send only "
            "project_id. For scope job, send only job_id.",
            code="contradictory_fields",
        )
    _record(session, principal, "budget.set", wanted.scope, wanted.project_id or wanted.job_id)
    if wanted.job_id is not None:
        if wanted.period != "total":
            raise InvalidInput.for_field(
                "period",
                "The budget of a job covers the whole job. Set period to total.",
                code="contradictory_fields",
            )
        job, _ = await lock_own_job(session, principal, wanted.job_id)
        job.budget = wanted.limit
        _tell_again(job)
        return _job_budget_out(job)
    name = None
    if wanted.project_id is not None:
        name = (await get_project(session, principal, wanted.project_id)).name
    same = (
        Budget.project_id.is_(None) if wanted.project_id is None else Budget.project_id == wanted.project_id
    )
    row = await session.scalar(select(Budget).where(Budget.user_id == principal.id, same).with_for_update())
    if row is None:
        row = Budget(id=uuid4(), user_id=principal.id, project_id=wanted.project_id, created_at=now())
        session.add(row)
    row.amount, row.period, row.warned, row.warned_in = wanted.limit, wanted.period, [], None
    await session.flush()
    return await _budget_out(session, row, name, now())


def _tell_again(job: TrainingJob) -> None:
    summary = read_summary(job.summary)
    if summary.cost is not None:
        summary.cost = summary.cost.model_copy(update={"limit": job.budget, "warnings": []})
        job.summary = summary.dump()


async def remove_budget(session: AsyncSession, principal: Principal, budget_id: UUID) -> None:
    """Of a person, a project, or a job by the job's id."""
    row = await session.scalar(select(Budget).where(Budget.id == budget_id, Budget.user_id == principal.id))
    if row is not None:
        _record(session, principal, "budget.removed", "user" if row.project_id is None else "project", row.id)
        await session.delete(row)
        return
    job = await session.scalar(
        select(TrainingJob)
        .where(
            TrainingJob.id == budget_id,
            TrainingJob.user_id == principal.id,
            TrainingJob.budget.is_not(None),
        )
        .with_for_update()
    )
    if job is None:
        raise NotFound("This budget does not exist.")
    if job.offer is not None:
        raise Conflict(
            "A job on a rented machine always has a budget. Set a higher budget instead.",
            code="budget_required",
        )
    job.budget = None
    _tell_again(job)
    _record(session, principal, "budget.removed", "job", job.id)


def _record(
    session: AsyncSession, principal: Principal, action: str, scope: str, subject: UUID | None
) -> None:
    record(
        session,
        principal.actor,
        action,
        f"budget:{scope}:{subject or principal.id}",
        subject if scope == "project" else None,
    )
