"""`bloom datasets from-documents` and `bloom datasets questions`: the same as in the web app."""

import tempfile
import time
import zipfile
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from gpubloom.cli.api_client import call
from gpubloom.cli.datasets import AsJson, send_file, show_dataset
from gpubloom.cli.output import WRONG_INPUT, echo, fail

_LOOK_SECONDS = 1.0
_SHOWN_PROBLEMS = 20

DatasetId = Annotated[UUID, typer.Argument(help="Dataset id from `bloom datasets list`.")]
Wait = Annotated[bool, typer.Option(help="Wait until the server is done.")]


def from_documents(
    paths: Annotated[
        list[Path], typer.Argument(help="Folders, documents (.pdf .docx .md .html .txt) or one .zip.")
    ],
    name: Annotated[str | None, typer.Option(help="Name of the dataset. [default: the file name]")] = None,
    passage_characters: Annotated[
        int | None, typer.Option(help="Most characters of a passage. [default: 1500]")
    ] = None,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Upload documents; their passages become the rows of a dataset.

    Each row keeps its file, page or heading, and the number of its passage.
    """
    with tempfile.TemporaryDirectory() as folder:
        file, filename = _packed(paths, Path(folder))
        size = file.stat().st_size
        wanted = {"filename": filename, "size": size, "name": name, "passage_characters": passage_characters}
        body = {field: value for field, value in wanted.items() if value is not None}
        dataset = call("POST", "/datasets/from-documents", body=body)
        send_file(file, dataset["id"], size, "Run the command again.")
    dataset = _settled(dataset["id"], wait)
    show_dataset(dataset, as_json)
    if not as_json and dataset["documents"]["files"]:
        _show_documents(dataset)
    if dataset["status"] == "failed":
        raise typer.Exit(1)


def _packed(paths: list[Path], folder: Path) -> tuple[Path, str]:
    """The file to upload, and its name."""
    from gpubloom.datasets.documents.archive import PARSERS

    for path in paths:
        if not path.exists():
            fail("data_not_found", f"There is no file or folder {path}.", status=WRONG_INPUT)
    first = paths[0]
    if len(paths) == 1 and first.is_file():
        return first, first.name
    target = folder / "documents.zip"
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            inside = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in inside:
                hidden = any(part.startswith(".") for part in file.relative_to(path.parent).parts)
                if file.is_file() and not hidden and file.suffix.lower() in PARSERS:
                    archive.write(file, str(file.relative_to(path.parent)))
                    count += 1
    if count == 0:
        fail(
            "data_not_found",
            f"There are no documents in {first}. Supported: {' '.join(PARSERS)}.",
            status=WRONG_INPUT,
        )
    name = first.resolve().name if len(paths) == 1 else "documents"
    return target, f"{name}.zip"


def _show_documents(dataset: dict[str, Any]) -> None:
    made = dataset["documents"]
    echo(
        f"  {made['files']:,} documents, {made['passages']:,} passages of at most "
        f"{made['passage_characters']:,} characters"
    )
    page = call("GET", f"/datasets/{dataset['id']}/documents", query={"limit": _SHOWN_PROBLEMS})
    for document in page["items"]:
        if document["problem"]:
            echo(f"  {document['file']} {document['problem']}")
        for note in document["notes"]:
            echo(f"  {document['file']}: {note}")


def write_questions(
    dataset_id: DatasetId,
    model: Annotated[
        str,
        typer.Option(help="Model name at the endpoint, or id or name of a playground or a training job."),
    ],
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="Base address of an OpenAI-compatible API. [default: the playground of the server]"
        ),
    ] = None,
    secret: Annotated[str | None, typer.Option(help="Name of your secret with the API key.")] = None,
    pairs: Annotated[int, typer.Option(help="Question-answer pairs per passage.")] = 2,
    most_passages: Annotated[int, typer.Option(help="Ask about at most this many passages.")] = 200,
    max_answer_tokens: Annotated[int, typer.Option(help="Most tokens of one answer.")] = 800,
    most_tokens: Annotated[int, typer.Option(help="Stop before this many tokens are used.")] = 500_000,
    name: Annotated[str | None, typer.Option(help="Name of the new dataset.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.")] = False,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Have a model write question-answer pairs about the passages of documents.

    The command shows the largest possible cost and asks before it starts.
    """
    order = {
        "endpoint": endpoint,
        "model": model,
        "secret": secret,
        "pairs": pairs,
        "most_passages": most_passages,
        "max_answer_tokens": max_answer_tokens,
        "most_tokens": most_tokens,
    }
    cost = call("POST", f"/datasets/{dataset_id}/questions/estimate", body=order)
    echo(
        f"{cost['passages']:,} requests for up to {cost['pairs']:,} pairs: at most "
        f"{cost['tokens']:,} tokens.",
        err=as_json,
    )
    if not yes:
        typer.confirm("Start?", abort=True, err=as_json)
    made = call("POST", f"/datasets/{dataset_id}/questions", body={**order, "name": name})
    _show_questions(made["id"], wait, as_json)


def stop_questions(dataset_id: DatasetId, as_json: AsJson = False) -> None:
    """Stop writing questions. The pairs that were written become the dataset."""
    call("POST", f"/datasets/{dataset_id}/questions/stop")
    _show_questions(str(dataset_id), True, as_json)


def continue_questions(
    dataset_id: DatasetId,
    most_tokens: Annotated[int | None, typer.Option(help="Another token limit.")] = None,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Continue writing questions about the passages that were not asked about."""
    call("POST", f"/datasets/{dataset_id}/questions/continue", body={"most_tokens": most_tokens})
    _show_questions(str(dataset_id), wait, as_json)


def _show_questions(dataset_id: str, wait: bool, as_json: bool) -> None:
    dataset = _settled(dataset_id, wait)
    show_dataset(dataset, as_json)
    said = dataset["questions"]
    if not as_json:
        echo(
            f"  {said['passages_done']:,} of {said['passages']:,} passages, {said['pairs_kept']:,} pairs, "
            f"{said['rejected']:,} rejected, {said['tokens']:,} tokens"
        )
        if said["end_reason"]:
            echo(f"  {said['end_reason']}")
    if dataset["status"] == "failed":
        raise typer.Exit(1)


def _settled(dataset_id: str, wait: bool) -> dict[str, Any]:
    """The dataset once nothing happens to it any more."""
    while True:
        dataset: dict[str, Any] = call("GET", f"/datasets/{dataset_id}")
        if not wait or dataset["status"] in {"ready", "failed"}:
            return dataset
        time.sleep(_LOOK_SECONDS)
