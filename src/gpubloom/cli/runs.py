"""`bloom runs`: the run list in the terminal, of a folder or of a server; tags and notes; sending a run."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

import typer
from typer.core import TyperGroup

from gpubloom.cli.api_client import call, token_of
from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse

if TYPE_CHECKING:
    from gpubloom.cli.tables import Fit
    from gpubloom.runs.folder import RunFolder
    from gpubloom.runs.table import View

_MOST_ROWS = 1_000
_PIPE_WIDTH = 10_000
_MOST_LEFT_OUT = 10


class RunCommands(TyperGroup):
    """`bloom runs FOLDER --filter …` is short for `bloom runs list FOLDER --filter …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            # A word that is no folder is a command that somebody misspelled.
            is_folder = args[0].startswith((".", "/", "~")) or Path(args[0]).is_dir()
            if is_folder or args[0].startswith("-"):
                args = ["list", *args]
        return super().parse_args(ctx, args)


def list_runs(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder with run directories. [default: the runs of the server, or ./runs if you are not "
            "signed in]"
        ),
    ] = None,
    query: Annotated[
        str, typer.Option("--filter", "-f", help="Filter, such as 'lr > 1e-4 and status = failed'.")
    ] = "",
    columns: Annotated[
        str | None, typer.Option(help="Columns with commas between them, such as lr,eval/loss.min,time.")
    ] = None,
    group: Annotated[
        str, typer.Option(help="Columns to group by; seeds puts the seeds of a run together.")
    ] = "seeds",
    sort: Annotated[str, typer.Option(help="Column to sort by; descending with a -.")] = "-created",
    limit: Annotated[int, typer.Option(min=1, max=_MOST_ROWS, help="Number of rows.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List runs with any config field or metric as a column. Filter, group and sort them."""
    from gpubloom.cli.auth import load_credentials
    from gpubloom.runs.table import DEFAULT_COLUMNS, View

    names = tuple(name.strip() for name in columns.split(",") if name.strip()) if columns else DEFAULT_COLUMNS
    groups = tuple(name.strip() for name in group.split(",") if name.strip())
    view = View(query, names, groups, sort)
    if folder is None and not load_credentials().token:
        folder = Path("runs")
        if not folder.is_dir():
            sentence = (
                "There is no folder runs here. Name a folder with runs, or sign in to list the runs of a "
                "server: bloom auth login"
            )
            fail("run_not_found", sentence, status=WRONG_INPUT)
    answer = _of_server(view, limit) if folder is None else _of_folder(folder, view, limit)
    if as_json:
        echo(json.dumps(answer, indent=2))
        return
    _print(answer)


def _of_folder(folder: Path, view: "View", limit: int) -> dict[str, Any]:
    from gpubloom.runs.folder import RunFolder
    from gpubloom.runs.schemas import run_list
    from gpubloom.runs.table import DEFAULT_COLUMNS, SEEDS, tabulate

    run_folder = RunFolder(folder)
    try:
        runs = run_folder.runs()
        table = tabulate(runs, view, limit=limit)
    except ValueError as problem:
        refuse(problem)
    named = {*view.columns, *view.group, view.sort.removeprefix("-")} - {*DEFAULT_COLUMNS, SEEDS, ""}
    for name in sorted(named):
        if table.columns.find(name) is None:
            echo(f"warning: {table.columns.missing(name)}", err=True)
    _name_left_out(run_folder)
    return run_list(table, runs).model_dump(mode="json")


def _name_left_out(folder: "RunFolder") -> None:
    count = len(folder.left_out)
    if count == 0:
        return
    echo(f"warning: {count} folder{' is' if count == 1 else 's are'} left out:", err=True)
    for path, reason in sorted(folder.left_out.items())[:_MOST_LEFT_OUT]:
        echo(f"  {path.relative_to(folder.folder)}: {reason}", err=True)
    if count > _MOST_LEFT_OUT:
        echo(f"  … and {count - _MOST_LEFT_OUT} more", err=True)


def _of_server(view: "View", limit: int) -> dict[str, Any]:
    query = [("query", view.query), ("sort", view.sort), ("limit", str(limit))]
    query += [("column", name) for name in view.columns] + [("group", name) for name in view.group or ("",)]
    answer: dict[str, Any] = call("GET", f"/runs?{urlencode(query)}")
    return answer


def _print(answer: dict[str, Any]) -> None:
    from gpubloom.cli.tables import fitting_columns, print_table

    if answer["rows"] == 0:
        echo(f"No runs match the filter (0 of {answer['total']:,})." if answer["total"] else "No runs.")
        return
    names = ["run", "status", *answer["columns"]]
    sections = [[_cells(row, answer["columns"]) for row in section["rows"]] for section in answer["sections"]]
    # A pipe gets every column; a terminal gets those that fit beside the name.
    width = shutil.get_terminal_size(fallback=(_PIPE_WIDTH, 24)).columns
    chosen = fitting_columns(names, [row for rows in sections for row in rows], width)
    fits: dict[str, Fit] = {"run": "text", "status": "id"}
    fits.update(dict.fromkeys([names[n] for n in chosen[2:]], "number"))
    for section, cells in zip(answer["sections"], sections, strict=True):
        if section["title"]:
            echo(f"\n{section['title']}  {section['runs']} runs", bold=True)
        print_table(fits, [[row[n] for n in chosen] for row in cells], width=width)
    if left_out := [name for n, name in enumerate(names) if n not in chosen]:
        echo(f"Not shown, for lack of room: {', '.join(left_out)}. Choose columns with --columns.")
    shown = sum(len(section["rows"]) for section in answer["sections"])
    rest = "" if shown == answer["rows"] else f", the first {shown:,} of {answer['rows']:,} rows"
    echo(f"{answer['matched']:,} of {answer['total']:,} runs{rest}")


def _cells(row: dict[str, Any], columns: list[str]) -> list[str]:
    count = len(row["run_ids"])
    name = row["name"] + (f" ({count} seeds)" if count > 1 else "")
    name += "".join(f" #{tag}" for tag in row["tags"])
    status = row["status"] if count == 1 else " ".join(f"{n} {name}" for name, n in row["statuses"].items())
    return [name, status, *(_value(row, column) for column in columns)]


def _value(row: dict[str, Any], column: str) -> str:
    from datetime import UTC, datetime

    from gpubloom.traincard.lines import duration

    value = row["cells"].get(column)
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if column == "time":
        return duration(value)
    if column in {"created", "started", "ended"}:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
    if column == "cost":
        return f"${value:,.2f}"
    spread = row["spread"].get(column)
    return f"{value:.4g}" + ("" if spread is None else f" ± {spread:.2g}")


def label(
    run: Annotated[str, typer.Argument(help="Run directory, or the id of a run on the server.")],
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Tag to add. Repeat it for more.")] = None,
    removed: Annotated[list[str] | None, typer.Option("--untag", help="Tag to remove.")] = None,
    notes: Annotated[str | None, typer.Option(help="Text that replaces the notes of the run.")] = None,
) -> None:
    """Change the tags and notes of a run."""
    if not tags and not removed and notes is None:
        fail("invalid_option", "Set at least one of --tag, --untag and --notes.", status=WRONG_INPUT)
    if not all(tag.strip() for tag in tags or ()):
        fail("invalid_option", "A tag is empty: write, for example, --tag baseline.", status=WRONG_INPUT)
    folder = Path(run)
    if folder.is_dir():
        from gpubloom.cli.run_view import must_be_run
        from gpubloom.runs.folder import RunFolder

        try:
            must_be_run(folder)
        except ValueError as problem:
            refuse(problem)
        runs = RunFolder(folder)
        labels = runs.set_labels(".", tags=None, notes=notes) or {}
        labels = runs.set_labels(".", tags=_changed(labels.get("tags", []), tags, removed), notes=None) or {}
    else:
        labels = _label_on_server(run, tags, removed, notes)
    echo(f"tags: {', '.join(labels.get('tags', [])) or 'none'}")


def _changed(before: list[str], added: list[str] | None, removed: list[str] | None) -> list[str]:
    return [tag for tag in dict.fromkeys([*before, *(added or ())]) if tag not in (removed or ())]


def _label_on_server(
    run: str, tags: list[str] | None, removed: list[str] | None, notes: str | None
) -> dict[str, Any]:
    try:
        run_id = UUID(run)
    except ValueError:
        fail(
            "run_not_found",
            f"{run} is neither a run directory nor the id of a run. Both are listed by: bloom runs list",
            status=WRONG_INPUT,
        )
    found = call("GET", f"/runs?{urlencode([('query', f'id = {run_id}'), ('group', '')])}")
    rows = [row for section in found["sections"] for row in section["rows"]]
    before = rows[0]["tags"] if rows else []
    body: dict[str, Any] = {"tags": _changed(before, tags, removed)}
    if notes is not None:
        body["notes"] = notes
    answer: dict[str, Any] = call("PATCH", f"/runs/{run_id}", body=body)
    return answer


def send(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    project: Annotated[str, typer.Option(help="Project on the server. A new one is created.")],
) -> None:
    """Send a run directory to the server: all of it, or what is missing there."""
    from gpubloom.cli.auth import load_credentials
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard.sender import SendRefusedError, send_run

    credentials = load_credentials()
    token = token_of(credentials)
    try:
        must_be_run(run)
        run_id = send_run(run.absolute(), credentials.server, token, project)
    except ValueError as problem:
        refuse(problem)
    except SendRefusedError as problem:
        fail("run_not_sent", f"The run was not sent: {str(problem).rstrip('.')}.")
    echo(f"{credentials.server}/jobs/{run_id}")
