"""`bloom jobs`: the jobs of a server, from the command line."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from gpubloom.cli.api_client import call, save_file
from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse
from gpubloom.errors import InputError
from gpubloom.json_files import read_json

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Start, watch, control and download jobs on a server.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobId = Annotated[UUID, typer.Argument(help="Job id from `bloom jobs list`.")]


def _list_item(job: dict[str, Any]) -> dict[str, Any]:
    """One job with the fields that a list shows."""
    summary = job["summary"]
    return {
        **job,
        "provider": (job["offer"] or {}).get("provider"),
        "step": summary["step"],
        "total_steps": summary["total_steps"],
        "loss": (summary["values"].get("train/loss") or {}).get("value"),
        "cost_so_far": (summary["cost"] or {}).get("so_far"),
    }


def _print_job(job: dict[str, Any], console: "Console") -> None:
    """Id, status and name; below them progress, loss, provider, cost and used rows."""
    from rich.text import Text

    from gpubloom.cli.tables import new_table, wrap_parts

    heading = new_table({"id": "id", "status": "id", "name": "text"})
    heading.show_header = False
    heading.add_row(job["id"], f"{job['status']:<12}", Text(job["name"]))
    console.print(heading)
    for line in wrap_parts(_details(job), console.width, indent="  "):
        console.print(line, soft_wrap=True)


def _details(job: dict[str, Any]) -> list[str]:
    from gpubloom.cli.chart import short

    step, total, loss, spent = (job[name] for name in ("step", "total_steps", "loss", "cost_so_far"))
    used, rows = job["rows_used"], job["rows_total"]
    found = []
    if step is not None:
        found.append(f"step {step:,}" + (f" of {total:,}" if total else ""))
    if loss is not None:
        # NaN and the infinities are texts in JSON.
        found.append(f"loss {loss}" if isinstance(loss, str) else f"loss {short(loss)}")
    found.append((job["provider"] or "local") + ("" if spent is None else f" ${spent:,.2f}"))
    if store := (job.get("offer") or {}).get("store"):
        found.append(f"files through {store['title'].lower()}")
    if used is not None and used != rows:
        found.append(f"{used:,} of {rows:,} rows used")
    return found


def _figures(summary: dict[str, Any]) -> list[str]:
    """Speed, global batch size and number of processes, if the run reports them."""
    from gpubloom.cli.chart import short

    values, facts = summary["values"], summary["facts"]
    found = []
    for name, unit in (("tokens_per_second", "tokens/s"), ("samples_per_second", "samples/s")):
        value = (values.get(f"train/{name}") or {}).get("value")
        if isinstance(value, int | float):
            found.append(f"{short(value)} {unit}")
    if (rows := facts.get("global_batch_size")) is not None:
        found.append(f"global batch size {rows}")
    if summary["world_size"] is not None:
        found.append(f"world size {summary['world_size']}")
    return found


def _show(job: dict[str, Any], as_json: bool) -> None:
    from gpubloom.cli.tables import new_console, wrap_parts

    if as_json:
        echo(json.dumps(job, indent=2))
        return
    console = new_console()
    _print_job(_list_item(job), console)
    for line in wrap_parts(_figures(job["summary"]), console.width, indent="  "):
        console.print(line, soft_wrap=True)
    if job["queue_position"]:
        echo(f"  position {job['queue_position']} in the queue")
    if job["error_message"]:
        echo(f"  {job['error_message']}")
    _show_start(job)
    for finding in job["summary"]["findings"]:
        level = {"critical": "error", "info": "note"}.get(finding["severity"], finding["severity"])
        _echo(f"{level}: {finding['sentence']} {finding['next_step']}".rstrip(), indent="  ")


_STAGES = {
    "requested": "machine requested",
    "machine": "machine up",
    "packages": "packages",
    "data": "data",
    "start": "start",
}


def _show_start(job: dict[str, Any]) -> None:
    """The stages of a rented machine's start and its last lines, until the job's first step."""
    start = job["summary"].get("start")
    if start is None or start["attempt"] != job["attempt"] or job["summary"]["step"] is not None:
        return
    if job["error_message"] is None and start["failure"]:
        echo(f"  {start['failure']}", colour="red")
    for stage in start["stages"]:
        seconds = "" if stage["seconds"] is None else f" {stage['seconds']:.0f} s"
        text = f"  {stage['text']}" if stage["text"] else ""
        echo(f"  {_STAGES.get(stage['name'], stage['name']):<18} {stage['state']}{seconds}{text}")
    for line in start["log"][-10:]:
        echo(f"  {line['seconds']:5.0f} s  {line['stage']:<9} {line['text']}")


def _echo(line: str, indent: str = "") -> None:
    """A line of a job's output; warnings and errors in colour."""
    colour = {"warning": typer.colors.YELLOW, "error": typer.colors.RED}.get(line.partition(":")[0])
    echo(f"{indent}{line}", colour=colour)


@app.command("list")
def list_jobs(
    project: Annotated[UUID | None, typer.Option(help="Only list jobs of the project with this id.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Only list jobs of this kind: train, script, find_learning_rate, evaluate, export or serve. "
            "[default: train and script]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List your jobs on the server, newest first."""
    from gpubloom.cli.tables import new_console

    query: dict[str, str | int] = {"limit": 200}
    if kind is not None:
        query["kind"] = kind
    if project is not None:
        query["project_id"] = str(project)
    page = call("GET", "/jobs", query=query)
    if as_json:
        echo(json.dumps(page["items"], indent=2))
        return
    console = new_console()
    for job in page["items"]:
        _print_job(job, console)
    if not page["items"]:
        echo("No jobs found. Start a job: bloom jobs start PROJECT --config config.json")


@app.command()
def start(
    project: Annotated[UUID, typer.Argument(help="Project id from `bloom projects list`.")],
    config: Annotated[
        Path | None,
        typer.Option(
            help="Config file (JSON). For all fields, run: bloom runs config-schema",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU type, such as H200.")] = None,
    dataset: Annotated[UUID | None, typer.Option(help="Dataset id from `bloom datasets list`.")] = None,
    model: Annotated[UUID | None, typer.Option(help="Model id from the web app.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start a training job: add it to the queue."""
    fields: Any = {}
    if config is not None:
        try:
            fields = read_json(config)
        except InputError as problem:
            refuse(problem)
    body = {
        "project_id": str(project),
        "config": fields,
        "name": name,
        "gpu_type": gpu,
        "dataset_id": None if dataset is None else str(dataset),
        "model_id": None if model is None else str(model),
    }
    _show(call("POST", "/jobs", body=body), as_json)


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show one job."""
    job = call("GET", f"/jobs/{job_id}")
    _show(job, as_json)
    if not as_json and job["kind"] in {"train", "script"}:
        improvement = call("GET", f"/jobs/{job_id}/improvement")["improvement"]
        if improvement is not None:
            _echo(improvement["line"], indent="  ")


@app.command()
def checkpoints(job_id: JobId, as_json: AsJson = False) -> None:
    """List the checkpoints of a job: training time, trained parameters and optimizations of each."""
    from gpubloom.cli.checkpoints import print_checkpoints

    found = call("GET", f"/jobs/{job_id}/checkpoints")["items"]
    print_checkpoints(found, details="details", as_json=as_json)


@app.command()
def machines(job_id: JobId, as_json: AsJson = False) -> None:
    """List the rented machines of a job in the order of its attempts, and what each cost."""
    from gpubloom.cli.tables import print_table

    found = call("GET", "/rentals", query={"job_id": str(job_id), "limit": 100})["items"][::-1]
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if not found:
        echo("No machine was rented for this job.")
        return
    print_table(
        {
            "attempt": "number",
            "machine": "text",
            "state": "text",
            "metered $": "number",
            "billed $": "number",
        },
        [
            (
                item["attempt"],
                f"{item['provider']} {item['gpus']}x {item['gpu']}",
                item["state"],
                f"{item['cost']:.2f}",
                "" if item["bill"] is None else f"{item['bill']:.2f}",
            )
            for item in found
        ],
    )
    for item in found:
        if item["detail"]:
            echo(f"{item['attempt']}: {item['detail']}")


@app.command()
def pause(job_id: JobId) -> None:
    """Pause a job: save a checkpoint, stop and free the GPU."""
    _show(call("POST", f"/jobs/{job_id}/pause"), as_json=False)


Step = Annotated[int, typer.Argument(help="Step of the checkpoint, from `bloom jobs checkpoints`.")]


def _checkpoint(job_id: object, step: int) -> str:
    """The address of the checkpoint of a step."""
    found = call("GET", f"/jobs/{job_id}/checkpoints")["items"]
    chosen = next((checkpoint for checkpoint in found if checkpoint["step"] == step), None)
    if chosen is not None:
        return f"/jobs/{job_id}/checkpoints/{chosen['id']}"
    steps = ", ".join(str(checkpoint["step"]) for checkpoint in found) or "none"
    sentence = f"The job has no checkpoint of step {step}. It has: {steps}."
    return fail("checkpoint_not_found", sentence, status=WRONG_INPUT)


@app.command()
def resume(
    job_id: JobId,
    step: Annotated[
        int | None, typer.Option(help="Go back to the checkpoint of this step; later ones are deleted.")
    ] = None,
) -> None:
    """Resume a job from its newest checkpoint, or from an older one."""
    address = f"/jobs/{job_id}" if step is None else _checkpoint(job_id, step)
    _show(call("POST", f"{address}/resume"), as_json=False)


@app.command()
def branch(
    job_id: JobId,
    step: Step,
    name: Annotated[str | None, typer.Option(help="Name of the new job.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate of the new job.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay of the new job.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Total number of epochs.", min=1)] = None,
    max_steps: Annotated[int | None, typer.Option(help="Total number of steps.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Start a new job from a checkpoint, with changed settings. The first job stays as it is."""
    asked = {
        "name": name,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "epochs": epochs,
        "max_steps": max_steps,
    }
    body = {field: value for field, value in asked.items() if value is not None}
    _show(call("POST", f"{_checkpoint(job_id, step)}/branch", body=body), as_json)


@app.command("delete-checkpoint")
def delete_checkpoint(job_id: JobId, step: Step) -> None:
    """Delete one checkpoint of a job that does not run."""
    call("DELETE", _checkpoint(job_id, step))
    echo(f"Deleted the checkpoint of step {step}.")


@app.command("download-checkpoint")
def download_checkpoint(
    job_id: JobId,
    step: Step,
    into: Annotated[Path, typer.Argument(help="Archive to write, such as step-100.tar.", dir_okay=False)],
) -> None:
    """Download one checkpoint as a tar archive."""
    save_file(f"{_checkpoint(job_id, step)}/archive", into)
    echo(str(into))


@app.command()
def cancel(job_id: JobId) -> None:
    """Cancel a job. Its checkpoints are kept."""
    _show(call("POST", f"/jobs/{job_id}/cancel"), as_json=False)


@app.command()
def logs(
    job_id: JobId, lines: Annotated[int, typer.Option(help="Number of lines.", min=1, max=2000)] = 100
) -> None:
    """Print the last lines of a job's output."""
    for line in call("GET", f"/jobs/{job_id}/logs", query={"limit": lines})["lines"]:
        _echo(line)


@app.command("what-ran")
def what_ran(job_id: JobId, as_json: AsJson = False) -> None:
    """Show what ran: commit and changes, command line, packages, machine, configs and datasets."""
    from gpubloom.cli.what_ran import print_what_ran

    print_what_ran(call("GET", f"/jobs/{job_id}/what-ran"), as_json=as_json)


@app.command()
def samples(job_id: JobId, as_json: AsJson = False) -> None:
    """Show what the model answers to the sample prompts of its run, step by step."""
    from gpubloom.cli.samples import print_samples

    print_samples(call("GET", f"/jobs/{job_id}/samples")["items"], as_json=as_json)


@app.command()
def download(
    job_id: JobId,
    into: Annotated[Path, typer.Argument(help="Folder to write to.", file_okay=False)],
) -> None:
    """Download the model of a job, in Hugging Face format, or the files that a script wrote."""
    kind = call("GET", f"/jobs/{job_id}")["kind"]
    source = f"/jobs/{job_id}/{'artifacts' if kind == 'script' else 'model'}"
    files = call("GET", source)["items"]
    if not files:
        echo("The job has written no files.", err=True)
    for file in files:
        target = into / file["path"]
        save_file(f"{source}/files/{file['path']}", target)
        echo(f"{target}  {file['size']:,} bytes")


@app.command()
def stored(job_id: JobId, as_json: AsJson = False) -> None:
    """List the files of a rented job that are kept in the bucket, and until when."""
    items = call("GET", f"/jobs/{job_id}/stored-artifacts")["items"]
    if as_json:
        echo(json.dumps(items, indent=2))
        return
    if not items:
        echo("No files of this job are kept in the bucket.")
        return
    from gpubloom.cli.tables import print_table

    print_table(
        {"file": "text", "bytes": "number", "kept until": "text"},
        [(item["path"], f"{item['size']:,}", item["kept_until"][:10]) for item in items],
    )


@app.command()
def link(
    job_id: JobId,
    path: Annotated[str, typer.Argument(help="File from `bloom jobs stored`.")],
    hours: Annotated[float, typer.Option(help="How long the address works.", min=1 / 60, max=168)] = 1.0,
) -> None:
    """Print an address of a stored file that works without signing in until it expires."""
    items = call("GET", f"/jobs/{job_id}/stored-artifacts")["items"]
    found = next((item for item in items if item["path"] == path), None)
    if found is None:
        fail("file_not_found", f"No file {path} of this job is kept in the bucket.", status=WRONG_INPUT)
    created = call(
        "POST",
        f"/jobs/{job_id}/stored-artifacts/{found['id']}/address",
        body={"life_seconds": round(hours * 3600)},
    )
    echo(created["address"])
    echo(f"Expires at {created['expires_at']}.", err=True)
