"""The HTTP routes of the run list: the list, overlays, comparisons, tags and notes, saved views."""

from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Query

from gpubloom.errors import InputError
from gpubloom.runs.comparing import compare
from gpubloom.runs.overlay import MOST_RUNS, overlay
from gpubloom.runs.schemas import Comparison, Overlay, OverlayGroup, RunList, run_list
from gpubloom.runs.table import DEFAULT_COLUMNS, SEEDS, View, tabulate
from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.problems import InvalidInput
from gpubloom.server.runs import service
from gpubloom.server.runs.schemas import RunChange, RunLabels, ViewIn, ViewOut, Views
from gpubloom.server.runs.tables import RunView
from gpubloom.server.schema import Storable

router = APIRouter(tags=["runs"])

Name = Annotated[str, Query(max_length=200), Storable]
GROUP_HELP = "The ids of the runs of one group, with commas between them. Repeat it for each group."


@router.get("/runs")
async def list_runs(
    principal: CurrentPrincipal,
    session: ReadSession,
    query: Annotated[
        str,
        Query(max_length=2_000, description="A filter, such as `lr > 1e-4 and status = failed`."),
        Storable,
    ] = "",
    column: Annotated[
        list[str] | None, Query(max_length=40, description="Config fields and metrics to return.")
    ] = None,
    group: Annotated[
        list[str] | None,
        Query(max_length=4, description="Columns to group by. `seeds` puts runs that differ in it together."),
    ] = None,
    sort: Annotated[str, Query(max_length=400, description="Columns, descending with a -.")] = "-created",
    source: Name | None = None,
    project_id: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> RunList:
    """List runs: those that match the filter, grouped, sorted, with the chosen columns."""
    runs = await service.read_runs(session, principal, project_id=project_id)
    view = View(query, tuple(column or DEFAULT_COLUMNS), tuple([SEEDS] if group is None else group), sort)

    def listed() -> RunList:
        return run_list(tabulate(runs, view, limit=limit, offset=offset, source=source), runs)

    try:
        # A filter over many runs must not keep other requests waiting.
        return await anyio.to_thread.run_sync(listed)
    except InputError as problem:
        raise InvalidInput.for_field("query", str(problem), code=problem.code) from problem


@router.get("/runs/overlay")
async def read_overlay(
    principal: CurrentPrincipal,
    session: ReadSession,
    series: Name,
    group: Annotated[list[str], Query(min_length=1, max_length=MOST_RUNS, description=GROUP_HELP)],
    along: Annotated[str, Query(pattern="^(step|tokens)$")] = "step",
    points: Annotated[int, Query(ge=10, le=2_000)] = 400,
) -> Overlay:
    """Return one metric of several groups of runs: the mean of each group and how far its runs lie apart."""
    groups = [_ids(text) for text in group]
    ids = list(dict.fromkeys(run_id for each in groups for run_id in each))
    if len(ids) > MOST_RUNS:
        raise InvalidInput.for_field(
            "group", f"At most {MOST_RUNS} runs fit into one chart. Choose fewer.", code="too_many_runs"
        )
    runs = await service.read_chosen(session, principal, ids)
    curves = await service.read_curves_of(session, runs, series, points, tokens=along == "tokens")

    def drawn() -> Overlay:
        return Overlay.model_construct(
            series=series,
            groups=[
                OverlayGroup.of(overlay([curves[str(i)] for i in each if str(i) in curves], points))
                for each in groups
            ],
        )

    return await anyio.to_thread.run_sync(drawn)


@router.get("/runs/compare")
async def compare_runs(
    principal: CurrentPrincipal,
    session: ReadSession,
    run: Annotated[list[UUID], Query(min_length=2, max_length=MOST_RUNS, description="Ids of the runs.")],
) -> Comparison:
    """Compare runs: how their configs differ and which results they reached."""
    if len(set(run)) != len(run):
        raise InvalidInput.for_field(
            "run", "The same run is listed twice. List each run once.", code="same_run_twice"
        )
    return compare(await service.read_chosen(session, principal, run))


def _ids(text: str) -> list[UUID]:
    try:
        return [UUID(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput.for_field(
            "group", "A group is a list of run ids with commas between them.", code="invalid_id"
        ) from None


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
