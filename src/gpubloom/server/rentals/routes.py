"""The addresses of rented machines, what they cost, and budgets."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.db.pages import AskedPage
from gpubloom.server.rentals import service
from gpubloom.server.rentals.schemas import BudgetIn, BudgetOut, Budgets, Rentals, SpendingOut

router = APIRouter(tags=["rentals"])


@router.get("/rentals")
async def list_rentals(
    principal: CurrentPrincipal,
    session: ReadSession,
    page: AskedPage,
    running: Annotated[
        bool | None, Query(description="Only those that are billed now, or only others.")
    ] = None,
) -> Rentals:
    """The machines that were rented for your jobs, newest first."""
    items, total = await service.list_rentals(session, principal, page, running=running)
    return Rentals(items=items, total=total)


@router.get("/spending")
async def read_spending(principal: CurrentPrincipal, session: ReadSession) -> SpendingOut:
    """What your rented machines cost."""
    return await service.spending(session, principal)


@router.get("/budgets")
async def list_budgets(principal: CurrentPrincipal, session: ReadSession) -> Budgets:
    """What may be spent, and how much of it was."""
    return Budgets(items=await service.list_budgets(session, principal))


@router.put("/budgets")
async def set_budget(body: BudgetIn, principal: CurrentPrincipal, session: WriteSession) -> BudgetOut:
    """Set a budget. Jobs are warned at 50, 80 and 100 %, and paused after a checkpoint when it ends."""
    return await service.set_budget(session, principal, body)


@router.delete("/budgets/{budget_id}", status_code=204)
async def remove_budget(budget_id: UUID, principal: CurrentPrincipal, session: WriteSession) -> None:
    """Remove a budget; a job's by the job's id."""
    await service.remove_budget(session, principal, budget_id)
