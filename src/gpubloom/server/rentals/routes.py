"""The HTTP routes of rented machines, their cost, remaining credits, and budgets."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query

from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.db.pages import PageQuery
from gpubloom.server.rentals import provider_credits, service
from gpubloom.server.rentals.price_book import CurrentPrices
from gpubloom.server.rentals.schemas import (
    BudgetIn,
    BudgetOut,
    Budgets,
    CreditIn,
    CreditOut,
    Credits,
    Rentals,
    SpendingOut,
)

router = APIRouter(tags=["rentals"])

ProviderName = Annotated[str, Path(max_length=64)]


@router.get("/rentals")
async def list_rentals(
    principal: CurrentPrincipal,
    session: ReadSession,
    page: PageQuery,
    running: Annotated[
        bool | None, Query(description="True: only machines that are billed now. False: only the others.")
    ] = None,
    job_id: Annotated[UUID | None, Query(description="Only the machines of this job.")] = None,
) -> Rentals:
    """List the machines rented for your jobs, newest first."""
    items, total = await service.list_rentals(session, principal, page, running=running, job_id=job_id)
    return Rentals(items=items, total=total)


@router.get("/spending")
async def read_spending(principal: CurrentPrincipal, session: ReadSession) -> SpendingOut:
    """Return the cost of your rented machines."""
    return await service.spending(session, principal)


@router.get("/budgets")
async def list_budgets(principal: CurrentPrincipal, session: ReadSession) -> Budgets:
    """List your budgets and how much of each is spent."""
    return Budgets(items=await service.list_budgets(session, principal))


@router.put("/budgets")
async def set_budget(body: BudgetIn, principal: CurrentPrincipal, session: WriteSession) -> BudgetOut:
    """Set a budget. Jobs get warnings at 50, 80 and 100 %.

    Before the budget is exceeded, jobs save a checkpoint and pause.
    """
    return await service.set_budget(session, principal, body)


@router.delete("/budgets/{budget_id}", status_code=204)
async def remove_budget(budget_id: UUID, principal: CurrentPrincipal, session: WriteSession) -> None:
    """Remove a budget. For a job's budget, send the id of the job."""
    await service.remove_budget(session, principal, budget_id)


@router.get("/credits")
async def list_credits(principal: CurrentPrincipal, session: ReadSession, prices: CurrentPrices) -> Credits:
    """List the credits that you stated, and what is left of each."""
    return await provider_credits.list_credits(session, principal, prices)


@router.put("/credits/{provider}")
async def state_credit(
    provider: ProviderName,
    body: CreditIn,
    principal: CurrentPrincipal,
    session: WriteSession,
    prices: CurrentPrices,
) -> CreditOut:
    """State the credit that is left at a provider. Offers there count as paid until it is used up."""
    return await provider_credits.state_credit(session, principal, provider, body, prices)


@router.delete("/credits/{provider}", status_code=204)
async def remove_credit(provider: ProviderName, principal: CurrentPrincipal, session: WriteSession) -> None:
    """Forget a stated credit. Offers of the provider then count with their full cost."""
    await provider_credits.remove_credit(session, principal, provider)
