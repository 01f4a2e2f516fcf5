"""`bloom scripts run`: sends a folder, script or notebook to a server, which runs it as a job."""

import base64
import json
import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gpubloom.cli.api_client import call
from gpubloom.cli.output import STOPPED, WRONG_INPUT, echo, fail, refuse
from gpubloom.errors import InputError

_LARGEST_BYTES = 22 << 20
_MOST_FILES = 2_000
_LEFT_OUT = {"__pycache__", "node_modules", "venv", "wandb", "lightning_logs", "mlruns"}
_LOOK_SECONDS = 1.0
_ENDED = {"completed", "failed", "cancelled", "paused"}


def run_script(
    path: Annotated[Path, typer.Argument(help="Folder, script or notebook.", exists=True)],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script, after --.", show_default=False)
    ] = None,
    entry: Annotated[
        str | None, typer.Option(help="File to run. [default: train.py, or the only script]")
    ] = None,
    provider: Annotated[
        str,
        typer.Option(
            help="Provider name, `local` for the machine of the server, or `auto`: the machine of the server "
            "if it can run the job or no provider is connected, otherwise the best offer."
        ),
    ] = "auto",
    gpu: Annotated[str | None, typer.Option(help="GPU type, such as A10.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Budget: maximum cost in dollars. [default: twice the estimate]", min=0),
    ] = None,
    max_hours: Annotated[
        float | None, typer.Option(help="Maximum duration in hours. [default: twice the estimate]", min=0)
    ] = None,
    failover: Annotated[
        bool,
        typer.Option(
            help="If the provider has no machine, use the same GPU at another connected provider, within the "
            "same budget."
        ),
    ] = True,
    failover_by: Annotated[
        Literal["cost", "time"],
        typer.Option(help="Which offer comes next: the cheapest, or the one that usually starts soonest."),
    ] = "cost",
    failover_provider: Annotated[
        list[str] | None,
        typer.Option(help="Provider to fail over to; may be repeated. [default: any that is connected]"),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a secret that the script gets; may be repeated. [default: all of your secrets]"
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None,
    project: Annotated[
        str | None, typer.Option(help="Project id from `bloom projects list`. [default: the project Scripts]")
    ] = None,
    package: Annotated[
        list[str] | None,
        typer.Option(
            help="Python package to install on a rented instance, instead of the detected packages; "
            "may be repeated."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Well-known dataset, or https://, hf://, s3:// or gs:// address, copied to data/NAME; "
            "may be repeated."
        ),
    ] = None,
    network: Annotated[
        bool,
        typer.Option("--network", help="Allow network access on the machine of the server (only admins)."),
    ] = False,
    confirm: Annotated[
        bool,
        typer.Option(
            "--without-sandbox", help="Run without a sandbox if the machine cannot create one (only admins)."
        ),
    ] = False,
    notebook: Annotated[
        Path | None,
        typer.Option(
            help="With --provider colab: write a Colab notebook to this file instead of sending a job."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print the output of the job until it ends.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation of the cost.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run your own script as a job.

    The job runs on the machine of the server or on a rented GPU.
    """
    try:
        files, left_out, found_entry = collect(path, entry)
    except ValueError as problem:
        refuse(problem)
    if notebook is not None:
        _write_notebook(files, found_entry, arguments or [], package, notebook, name or path.stem)
        return
    body = {
        "files": [_file(name, content) for name, content in files.items()],
        "entry": found_entry,
        "arguments": arguments or [],
        "name": name or (path.resolve().name if path.is_dir() else path.name),
        "project_id": project,
        "provider": None if provider == "auto" else provider,
        "constraints": {"gpus": [] if gpu is None else [gpu]},
        "packages": package,
        "datasets": dataset or [],
        "budget": budget,
        "max_hours": max_hours,
        "failover": None if failover else [],
        "failover_by": {"order": failover_by, "providers": failover_provider or []},
        "secrets": secret,
        "network": network,
        "confirmed": confirm,
    }
    if left_out and not as_json:
        echo(f"Not uploaded: {', '.join(left_out)}", err=True)
    if not yes:
        quote = call("POST", "/ml-jobs/quote", body=body)
        _show_quote(quote)
        cost = quote["estimated_cost"]
        if cost["high"] > 0 and not typer.confirm("Rent this instance?", err=True):
            raise typer.Exit(1)
        # Exactly the confirmed offer, even if prices have changed since.
        body["offer"] = quote["offer"]
    started = call("POST", "/ml-jobs", body=body)
    if as_json:
        echo(json.dumps(started, indent=2))
    else:
        if yes:
            _show_quote(started)
        echo(f"{started['job_id']}  {started['provider']}  {body['name']}")
    if watch:
        try:
            _watch(started["job_id"])
        except KeyboardInterrupt:
            job_id = started["job_id"]
            echo(f"\nThe job continues. Its output: bloom jobs logs {job_id}", err=True)
            echo(f"Stop it: bloom jobs cancel {job_id}", err=True)
            raise typer.Exit(STOPPED) from None


def collect(path: Path, entry: str | None) -> tuple[dict[str, bytes], list[str], str | None]:
    """The files to send, the files to leave out, and the file to run. InputError if there are too many."""
    if path.is_file():
        if path.suffix not in {".py", ".ipynb"}:
            raise InputError(
                "not_python", f"{path} is neither a Python script (.py) nor a notebook (.ipynb)."
            )
        return {path.name: path.read_bytes()}, [], entry or path.name
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    size = 0
    for directory, folders, names in os.walk(path):
        here = Path(directory).relative_to(path)
        for folder in sorted(folders):
            if folder.startswith(".") or folder in _LEFT_OUT or Path(directory, folder).is_symlink():
                left_out.append((here / folder).as_posix() + "/")
                folders.remove(folder)
        folders.sort()
        for name in sorted(names):
            file = Path(directory, name)
            if name.startswith(".") or file.is_symlink() or not file.is_file():
                left_out.append((here / name).as_posix())
                continue
            size += file.stat().st_size
            if size > _LARGEST_BYTES or len(files) == _MOST_FILES:
                raise InputError(
                    "files_too_large",
                    f"{path} has more than {_LARGEST_BYTES >> 20} MB or {_MOST_FILES:,} files. Remove data "
                    "from the folder: name a dataset with --dataset, or let the script download the data.",
                )
            files[(here / name).as_posix()] = file.read_bytes()
    if not files:
        raise InputError("data_empty", f"The folder {path} has no files to send.")
    return files, left_out, entry


def _file(name: str, content: bytes) -> dict[str, str]:
    try:
        return {"path": name, "text": content.decode()}
    except UnicodeDecodeError:
        return {"path": name, "base64": base64.b64encode(content).decode()}


def _show_quote(quote: dict[str, Any]) -> None:
    cost = quote["estimated_cost"]
    offer = quote.get("offer")
    machine = f" ({offer['gpus']}× {offer['gpu']})" if offer else ""
    if quote["provider"] == "local":
        echo("Runs on the machine of the server.", err=True)
    else:
        echo(
            f"Runs at {quote['provider']}{machine}. Estimated cost: ${cost['likely']:.2f} "
            f"(${cost['low']:.2f} to ${cost['high']:.2f}).",
            err=True,
        )
    if limits := quote.get("limits"):
        budget = "" if limits["budget"] is None else f"at ${limits['budget']:.2f} or "
        echo(f"The job pauses {budget}after {limits['max_hours']:g} hours.", err=True)
    switch_off = quote.get("switch_off")
    if switch_off and not switch_off["can"]:
        echo(f"Warning: {switch_off['reason']}", err=True, colour="red")
    for reason in quote["reasons"]:
        echo(f"  {reason}", err=True)
    if store := quote.get("store"):
        echo(f"  Files go through: {store['title']}. {store['note']}", err=True)
    if problem := quote.get("problem"):
        echo(f"  {problem}", err=True)


def _write_notebook(
    files: dict[str, bytes],
    entry: str | None,
    arguments: list[str],
    packages: list[str] | None,
    target: Path,
    name: str,
) -> None:
    from gpubloom.providers.colab.notebook import colab_notebook
    from gpubloom.scripts import ScriptProblem

    texts: dict[str, str | bytes] = {}
    for path, content in files.items():
        try:
            texts[path] = content.decode()
        except UnicodeDecodeError:
            texts[path] = content
    try:
        made = colab_notebook(texts, entry or "train.py", arguments, packages, name=name)
        target.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    except (ScriptProblem, KeyError) as problem:
        refuse(problem)
    except OSError as problem:
        fail("cannot_write", f"Cannot write {target}: {problem.strerror}.", status=WRONG_INPUT)
    echo(f"Wrote {target}. In Colab, open it with File > Upload notebook, choose a GPU, and run all cells.")


def _watch(job_id: str) -> None:
    position: int | None = None
    told = ""
    while True:
        status = call("GET", f"/ml-jobs/{job_id}/status")
        query: dict[str, str | int] = {"lines": 2_000}
        if position is not None:
            query["after"] = position
        page = call("GET", f"/jobs/{job_id}/logs", query=query)
        position = page["end"]
        for line in page["lines"]:
            echo(line)
        cost = f", ${status['cost_so_far']:.2f} so far" if status["cost_so_far"] else ""
        news = f"[{status['status']}{cost}]"
        if news != told:
            told = news
            echo(news, err=True)
        if status["status"] in _ENDED:
            break
        time.sleep(_LOOK_SECONDS)
    if status["error"]:
        fail("job_failed", status["error"])
    if status["status"] != "completed":
        raise typer.Exit(1)
