"""The HTTP routes of the run list: the list, overlays, comparisons, tags and notes, saved views."""

from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter

from gpubloom.runs.comparing import compare
from gpubloom.runs.schemas import Comparison, Overlay, RunList
from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.runs import service
from gpubloom.server.runs.asked import AskedList, AskedOverlay, ComparedIds
from gpubloom.server.runs.schemas import RunChange, RunLabels, ViewIn, ViewOut, Views
from gpubloom.server.runs.tables import RunView

router = APIRouter(tags=["runs"])


@router.get("/runs")
async def list_runs(
    principal: CurrentPrincipal,
    session: ReadSession,
    asked: AskedList,
    project_id: UUID | None = None,
) -> RunList:
    """List runs: those that match the filter, grouped, sorted, with the chosen columns."""
    runs = await service.read_runs(session, principal, project_id=project_id)
    # A filter over many runs must not keep other requests waiting.
    return await anyio.to_thread.run_sync(asked.answer, runs)


@router.get("/runs/overlay")
async def read_overlay(principal: CurrentPrincipal, session: ReadSession, asked: AskedOverlay) -> Overlay:
    """Return one metric of several groups of runs: the mean of each group and how far its runs lie apart."""
    runs = await service.read_chosen(session, principal, asked.ids)
    curves = await service.read_curves_of(session, runs, asked.series, asked.points, tokens=asked.tokens)
    return await anyio.to_thread.run_sync(asked.answer, curves)


@router.get("/runs/compare")
async def compare_runs(principal: CurrentPrincipal, session: ReadSession, run: ComparedIds) -> Comparison:
    """Compare runs: how their configs differ and which results they reached."""
    return compare(await service.read_chosen(session, principal, run))


@router.patch("/runs/{run_id}")
async def change_run(
    run_id: UUID, body: RunChange, principal: CurrentPrincipal, session: WriteSession
) -> RunLabels:
    """Change the tags and notes of a run."""
    job = await service.change_run(session, principal, run_id, body)
    return RunLabels(id=job.id, tags=job.tags, notes=job.notes)


@router.get("/run-views")
async def list_views(principal: CurrentPrincipal, session: ReadSession) -> Views:
    """List the saved views of the run list."""
    return Views(items=[_view(row) for row in await service.list_views(session, principal)])


@router.post("/run-views", status_code=201)
async def create_view(body: ViewIn, principal: CurrentPrincipal, session: WriteSession) -> ViewOut:
    """Save a view of the run list."""
    return _view(await service.create_view(session, principal, body))


@router.put("/run-views/{view_id}")
async def change_view(
    view_id: UUID, body: ViewIn, principal: CurrentPrincipal, session: WriteSession
) -> ViewOut:
    """Replace a saved view."""
    return _view(await service.change_view(session, principal, view_id, body))


@router.delete("/run-views/{view_id}", status_code=204)
async def delete_view(view_id: UUID, principal: CurrentPrincipal, session: WriteSession) -> None:
    """Delete a saved view."""
    await service.delete_view(session, principal, view_id)


def _view(row: RunView) -> ViewOut:
    return ViewOut(id=row.id, name=row.name, updated_at=row.updated_at, **row.view)
