"""What a request to the run list asks for, and how it is answered from runs and curves.

The server answers from its database and `bloom ui` from a folder; both take the same parameters and give the
same answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query

from gpubloom.errors import InputError
from gpubloom.runs.overlay import MOST_RUNS, RunCurve, overlay
from gpubloom.runs.schemas import Overlay, OverlayGroup, RunList, run_list
from gpubloom.runs.table import DEFAULT_COLUMNS, SEEDS, Run, View, tabulate
from gpubloom.server.problems import InvalidInput
from gpubloom.server.schema import Storable

Name = Annotated[str, Query(max_length=200), Storable]
GROUP_HELP = "The ids of the runs of one group, with commas between them. Repeat it for each group."


@dataclass(frozen=True)
class ListRequest:
    """A page of the run list."""

    view: View
    source: str | None
    limit: int
    offset: int

    def answer(self, runs: Sequence[Run]) -> RunList:
        """The page, of these runs. Takes a moment where the runs are many: for a thread."""
        try:
            table = tabulate(runs, self.view, limit=self.limit, offset=self.offset, source=self.source)
            return run_list(table, runs)
        except InputError as problem:
            raise InvalidInput.for_field("query", str(problem), code=problem.code) from problem


def _list_request(
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
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> ListRequest:
    view = View(query, tuple(column or DEFAULT_COLUMNS), tuple([SEEDS] if group is None else group), sort)
    return ListRequest(view, source, limit, offset)


AskedList = Annotated[ListRequest, Depends(_list_request)]


@dataclass(frozen=True)
class OverlayRequest:
    """One metric of several groups of runs."""

    series: str
    groups: list[list[UUID]]
    tokens: bool
    points: int

    @property
    def ids(self) -> list[UUID]:
        """Every run once."""
        return list(dict.fromkeys(run_id for each in self.groups for run_id in each))

    def answer(self, curves: Mapping[str, RunCurve]) -> Overlay:
        """The mean of each group and how far its runs lie apart. `curves`: by run id."""
        return Overlay.model_construct(
            series=self.series,
            groups=[
                OverlayGroup.of(
                    overlay([curves[str(each)] for each in group if str(each) in curves], self.points)
                )
                for group in self.groups
            ],
        )


def _overlay_request(
    series: Name,
    group: Annotated[list[str], Query(min_length=1, max_length=MOST_RUNS, description=GROUP_HELP)],
    along: Annotated[str, Query(pattern="^(step|tokens)$")] = "step",
    points: Annotated[int, Query(ge=10, le=2_000)] = 400,
) -> OverlayRequest:
    asked = OverlayRequest(series, [_ids(text) for text in group], along == "tokens", points)
    if len(asked.ids) > MOST_RUNS:
        raise InvalidInput.for_field(
            "group", f"At most {MOST_RUNS} runs fit into one chart. Choose fewer.", code="too_many_runs"
        )
    return asked


AskedOverlay = Annotated[OverlayRequest, Depends(_overlay_request)]


def _compared_ids(
    run: Annotated[list[UUID], Query(min_length=2, max_length=MOST_RUNS, description="Ids of the runs.")],
) -> list[UUID]:
    if len(set(run)) != len(run):
        raise InvalidInput.for_field(
            "run", "The same run is listed twice. List each run once.", code="same_run_twice"
        )
    return run


ComparedIds = Annotated[list[UUID], Depends(_compared_ids)]


def _ids(text: str) -> list[UUID]:
    try:
        return [UUID(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput.for_field(
            "group", "A group is a list of run ids with commas between them.", code="invalid_id"
        ) from None
