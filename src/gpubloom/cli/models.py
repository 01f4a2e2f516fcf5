"""`bloom models`: which models people start from, whether one can be trained, and fetching it from a hub."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubloom.cli.output import STOPPED, fail, fetching, refuse

if TYPE_CHECKING:
    from gpubloom.hub.checking import Report

app = typer.Typer(help="Find, check and fetch models to start from.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
_MARKS = {"error": "✗", "warning": "!", "note": "·"}


@app.command("list")
def list_models(
    fetched: Annotated[
        bool, typer.Option("--fetched", help="Those that were fetched to this machine.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the catalogue: size, licence, context, and the GPU memory that each method needs."""
    if fetched:
        _list_fetched(as_json=as_json)
        return
    from gpubloom.hub.catalogue import METHODS, USUAL_SETTING, catalogue

    families = catalogue()
    if as_json:
        typer.echo(json.dumps([asdict(family) for family in families], indent=2))
        return
    typer.echo(_line("model", "size", "context", "full", "lora", "qlora", "licence"))
    for family in families:
        for model in family.models:
            typer.echo(
                _line(
                    model.id,
                    _size(model.parameters),
                    f"{model.context_length:,}",
                    *(f"{model.memory[method] / 1e9:.0f} GB" for method in METHODS),
                    f"{model.licence}{' (accept first)' if model.gated else ''}",
                )
            )
    typer.echo(f"Memory: the least on one GPU, {USUAL_SETTING}. bloom plan says more.")


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    as_json: JsonOption = False,
) -> None:
    """Say whether a model can be trained here, and everything that is wrong with it."""
    from gpubloom.hub.checking import check_model

    report = check_model(model.expanduser())
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def pull(
    model: Annotated[str, typer.Argument(help="A hub's id, such as Qwen/Qwen3-0.6B or ORG/NAME@REVISION.")],
    to: Annotated[
        Path | None,
        typer.Option(help="A new folder for it. [default: below BLOOM_HOME, where names find it]"),
    ] = None,
) -> None:
    """Fetch a model: safetensors, configuration, tokenizer. Continues where it was stopped."""
    from gpubloom.hub.checking import check_model
    from gpubloom.hub.fetching import default_home, fetch_model, local_model
    from gpubloom.hub.problems import HubProblem

    try:
        with fetching(model) as progress:
            if to is None:
                folder = local_model(model, default_home(), progress=progress, say=_say)
            else:
                repository, _, revision = model.partition("@")
                folder = fetch_model(
                    repository, to.expanduser().absolute(), revision=revision or None, progress=progress
                ).folder
    except HubProblem as problem:
        refuse(problem)
    except KeyboardInterrupt:
        fail("stopped", "Stopped. The same command continues.", status=STOPPED)
    typer.echo(folder)
    report = check_model(folder)
    if not report.ok:
        _show(report)


def _line(*cells: str) -> str:
    """A row of the catalogue. It does not shrink: an id that is cut cannot be copied."""
    model, size, context, full, lora, qlora, licence = cells
    return f"{model:<42}{size:>7}{context:>9}{full:>9}{lora:>8}{qlora:>7}  {licence}"


def _size(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"


def _list_fetched(*, as_json: bool) -> None:
    from gpubloom.hub.fetching import default_home, describe, fetched_models

    found = [describe(folder) | {"folder": str(folder)} for folder in fetched_models(default_home())]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for model in found:
        typer.echo(f"{model['repository']}@{model['revision'][:12]}  {model['folder']}")
    if not found:
        typer.echo("None was fetched yet: bloom models pull ORG/NAME")


def _show(report: "Report") -> None:
    if report.parameters is not None:
        template = "chat template" if report.chat_template else "no chat template"
        typer.echo(
            f"{report.family}, {report.parameters / 1e6:,.1f} M parameters, {template}, "
            f"{report.bytes / 1e9:.2f} GB on disk"
        )
    for finding in report.findings:
        typer.echo(f"{_MARKS[finding.severity]} {finding.sentence}")
    if report.ok:
        typer.echo("It can be trained.")
    else:
        typer.echo("It cannot be trained as it is.")


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)
