"""`bloom jobs`: the training jobs of a server, from the command line."""

import json
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from gpubloom.cli.output import WRONG_INPUT, fail

app = typer.Typer(no_args_is_help=True, help="Start, list, steer and download training jobs on a server.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
JobId = Annotated[UUID, typer.Argument(help="The job's id, as `bloom jobs list` prints it.")]


def _call(method: str, path: str, **arguments: Any) -> Any:
    # Loaded here, so that `bloom --help` does not wait for an HTTP client.
    from gpubloom.cli.api_client import call

    return call(method, path, **arguments)


def _list_item(job: dict[str, Any]) -> dict[str, Any]:
    """One job with what a list shows of it."""
    summary = job["summary"]
    return {
        **job,
        "provider": (job["offer"] or {}).get("provider"),
        "step": summary["step"],
        "total_steps": summary["total_steps"],
        "loss": (summary["values"].get("train/loss") or {}).get("value"),
        "cost_so_far": (summary["cost"] or {}).get("so_far"),
    }


def _line(job: dict[str, Any]) -> str:
    step, total, loss, spent = (job[name] for name in ("step", "total_steps", "loss", "cost_so_far"))
    progress = "" if step is None else f"step {step:,}" + (f" of {total:,}" if total else "")
    # NaN and the infinities are texts in JSON.
    seen = "" if loss is None else f"loss {loss}" if isinstance(loss, str) else f"loss {loss:.3f}"
    rows = _rows(job)
    where = (job["provider"] or "local") + ("" if spent is None else f" ${spent:.2f}")
    line = f"{job['id']}  {job['status']:<12} {progress:<22} {seen:<11} {where:<16} {job['name']}"
    return f"{line.rstrip()}{rows}"


def _rows(job: dict[str, Any]) -> str:
    """Of a run that uses only some rows of its data: how many."""
    used, total = job["rows_used"], job["rows_total"]
    return "" if used is None or used == total else f"  {used:,} of {total:,} rows used"


def _show(job: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(job, indent=2))
        return
    typer.echo(_line(_list_item(job)))
    if job["queue_position"]:
        typer.echo(f"  number {job['queue_position']} in the queue")
    if job["error_message"]:
        typer.echo(f"  {job['error_message']}")
    for warning in job["warnings"]:
        _echo(f"{warning['level']}: {warning['line']}", indent="  ")


def _echo(line: str, indent: str = "") -> None:
    """A line of a run's output, with warnings and errors in colour where there is one."""
    colour = {"warning": typer.colors.YELLOW, "error": typer.colors.RED}.get(line.partition(":")[0])
    typer.secho(f"{indent}{line}", fg=colour)


@app.command("list")
def list_jobs(
    project: Annotated[UUID | None, typer.Option(help="Only those of this project.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="train, script, find_learning_rate, evaluate, export or serve; else the first two."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List your jobs, newest first."""
    query: dict[str, str | int] = {"limit": 200}
    if kind is not None:
        query["kind"] = kind
    if project is not None:
        query["project_id"] = str(project)
    page = _call("GET", "/jobs", query=query)
    if as_json:
        typer.echo(json.dumps(page["items"], indent=2))
        return
    for job in page["items"]:
        typer.echo(_line(job))
    if not page["items"] and kind is None:
        typer.echo("No training jobs yet. Start one: bloom jobs start PROJECT --config config.json")


@app.command()
def start(
    project: Annotated[UUID, typer.Argument(help="The project's id, as `bloom projects list` prints it.")],
    config: Annotated[
        Path | None, typer.Option(help="A TrainConfig as JSON.", exists=True, dir_okay=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="The job's name.")] = None,
    gpu: Annotated[str | None, typer.Option(help="A GPU by name, such as H200.")] = None,
    dataset: Annotated[UUID | None, typer.Option(help="A dataset of yours, by its id.")] = None,
    model: Annotated[UUID | None, typer.Option(help="A model of yours, by its id.")] = None,
    as_json: AsJson = False,
) -> None:
    """Queue a training job."""
    fields: Any = {}
    if config is not None:
        try:
            fields = json.loads(config.read_text(encoding="utf-8"))
        except ValueError as problem:
            fail("not_json", f"{config} is not JSON: {problem}", status=WRONG_INPUT)
    body = {
        "project_id": str(project),
        "config": fields,
        "name": name,
        "gpu_type": gpu,
        "dataset_id": None if dataset is None else str(dataset),
        "model_id": None if model is None else str(model),
    }
    _show(_call("POST", "/jobs", body=body), as_json)


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show one job."""
    _show(_call("GET", f"/jobs/{job_id}"), as_json)


@app.command()
def pause(job_id: JobId) -> None:
    """Save a checkpoint, stop, and free the device."""
    _show(_call("POST", f"/jobs/{job_id}/pause"), as_json=False)


@app.command()
def resume(job_id: JobId) -> None:
    """Go on from the newest checkpoint."""
    _show(_call("POST", f"/jobs/{job_id}/resume"), as_json=False)


@app.command()
def cancel(job_id: JobId) -> None:
    """Stop for good; checkpoints stay."""
    _show(_call("POST", f"/jobs/{job_id}/cancel"), as_json=False)


@app.command()
def logs(
    job_id: JobId, lines: Annotated[int, typer.Option(help="How many lines.", min=1, max=2000)] = 100
) -> None:
    """Print the end of a job's output."""
    for line in _call("GET", f"/jobs/{job_id}/logs", query={"limit": lines})["lines"]:
        _echo(line)


@app.command()
def download(
    job_id: JobId,
    into: Annotated[Path, typer.Argument(help="Folder for the files.", file_okay=False)],
) -> None:
    """Download the finished model, in Hugging Face layout, or the files that a script made."""
    from gpubloom.cli.api_client import save_file

    kind = _call("GET", f"/jobs/{job_id}")["kind"]
    source = f"/jobs/{job_id}/{'artifacts' if kind == 'script' else 'model'}"
    for file in _call("GET", source)["items"]:
        target = into / file["path"]
        save_file(f"{source}/files/{file['path']}", target)
        typer.echo(f"{target}  {file['size']:,} bytes")
