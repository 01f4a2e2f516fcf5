"""`bloom datasets list`, `show` and `upload`: datasets on a server, the same as in the web app."""

import json
import time
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from gpubloom.cli.api_client import PieceLost, call, received_bytes, send_piece
from gpubloom.cli.output import WRONG_INPUT, echo, fail
from gpubloom.cli.tables import print_table
from gpubloom.errors import shell_word

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_PIECE = 8 << 20
# A connection that stays broken for longer does not heal without the user.
_TRIES = 8
_LOOK_SECONDS = 1.0


def list_datasets(
    search: Annotated[str, typer.Option(help="Only list datasets with this text in their name.")] = "",
    as_json: AsJson = False,
) -> None:
    """List your datasets on the server, newest first."""
    page = call("GET", "/datasets", query={"search": search, "limit": 200})
    if as_json:
        echo(json.dumps(page["items"], indent=2))
        return
    if not page["items"]:
        echo("No datasets found. Upload a dataset: bloom datasets upload FILE")
        return
    print_table(
        {"id": "id", "status": "id", "rows": "number", "name": "text"},
        [_row(dataset) for dataset in page["items"]],
    )
    if page["total"] > len(page["items"]):
        echo(f"{page['total'] - len(page['items'])} more datasets. Filter the list with --search.")


def show(
    dataset_id: Annotated[UUID, typer.Argument(help="Dataset id from `bloom datasets list`.")],
    as_json: AsJson = False,
) -> None:
    """Show the format, size and errors of a dataset on the server."""
    show_dataset(call("GET", f"/datasets/{dataset_id}"), as_json)


def upload(
    file: Annotated[Path, typer.Argument(help="Dataset file: .jsonl, .json, .csv, .tsv, .txt or .parquet.")],
    name: Annotated[str | None, typer.Option(help="Name of the dataset. [default: the file name]")] = None,
    continued: Annotated[
        UUID | None, typer.Option("--continue", help="Id of the dataset whose upload was interrupted.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the server has inspected the dataset.")] = True,
    as_json: AsJson = False,
) -> None:
    """Upload a dataset file to the server.

    Continue an interrupted upload with --continue.
    """
    if not file.is_file():
        fail("data_not_found", f"There is no file {file}.", status=WRONG_INPUT)
    size = file.stat().st_size
    if continued is None:
        dataset = call("POST", "/datasets", body={"filename": file.name, "size": size, "name": name})
    else:
        dataset = call("GET", f"/datasets/{continued}")
        if dataset["size"] != size:
            fail(
                "size_changed",
                f"{file} has {size:,} bytes, but the interrupted upload has {dataset['size']:,}. "
                "Upload the unchanged file, or start again without --continue.",
                status=WRONG_INPUT,
            )
    send_file(
        file,
        dataset["id"],
        size,
        f"Continue with: bloom datasets upload {shell_word(file)} --continue {dataset['id']}",
    )
    while wait and (dataset := call("GET", f"/datasets/{dataset['id']}"))["status"] == "inspecting":
        time.sleep(_LOOK_SECONDS)
    show_dataset(call("GET", f"/datasets/{dataset['id']}"), as_json)
    if dataset["status"] == "failed":
        raise typer.Exit(1)


def _row(dataset: dict[str, Any]) -> tuple[str, str, str, str]:
    rows = f"{dataset['report']['rows']:,}" if dataset["report"] else ""
    return dataset["id"], dataset["status"], rows, dataset["name"]


def send_file(file: Path, dataset_id: str, size: int, again: str) -> None:
    """Send the bytes that the server does not have; `again` says what to do when the connection is lost."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    path = f"/datasets/{dataset_id}/content"
    offset, lost = received_bytes(path), 0
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with file.open("rb") as content, Progress(*columns, transient=True) as progress:
        bar = progress.add_task("", total=size, completed=offset)
        while offset < size:
            content.seek(offset)
            try:
                offset = send_piece(path, content.read(_PIECE), offset)
                lost = 0
            except PieceLost as problem:
                lost += 1
                if lost == _TRIES:
                    fail(
                        "upload_broke_off",
                        f"{problem} {again}",
                    )
                time.sleep(min(10.0, 0.5 * 2**lost))
                offset = received_bytes(path)
            progress.update(bar, completed=offset)


def show_dataset(dataset: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo(json.dumps(dataset, indent=2))
        return
    echo(f"{dataset['name']} ({dataset['id']})")
    echo(f"  {dataset['status']}, {dataset['size']:,} bytes, {dataset['filename']}")
    if dataset["problem"]:
        echo(f"  {dataset['problem']}")
    report = dataset["report"]
    if report is None:
        return
    format_ = report["mapping"]["format"] if report["mapping"] else "unknown format"
    echo(f"  {format_}: {report['examples']:,} examples in {report['rows']:,} rows")
    for note in report["notes"]:
        echo(f"  {note}")
    if report["duplicates"] and report["duplicates"]["repeated"]:
        echo(f"  Duplicate rows: {report['duplicates']['repeated']:,}")
    for problem in report["problems"]["first"]:
        where = f"line {problem['line']}" if problem["line"] else f"row {problem['row']}"
        echo(f"  {where} {problem['reason']}")
