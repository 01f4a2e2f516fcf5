"""`bloom models list`, `check` and `pull`: find, check and download base models."""

import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubloom.cli.output import STOPPED, echo, fail, fetching, refuse, size_text

if TYPE_CHECKING:
    from gpubloom.hub.catalogue import CatalogueModel
    from gpubloom.hub.checking import Report

app = typer.Typer(help="Find, download, test, evaluate and export models.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_MARKS = {"error": "✗", "warning": "!", "note": "·"}


@app.command("list")
def list_models(
    fetched: Annotated[
        bool, typer.Option("--fetched", help="List the models that were downloaded to this machine.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List well-known base models: size, licence, context length, and GPU memory by method."""
    if fetched:
        _list_fetched(as_json=as_json)
        return
    from gpubloom.cli.tables import new_console
    from gpubloom.hub.catalogue import METHODS, USUAL_SETTING, catalogue

    families = catalogue()
    if as_json:
        echo(json.dumps([asdict(family) for family in families], indent=2))
        return
    echo(_line("model", "size", "context", *METHODS))
    for family in families:
        # The licence stands above the models: beside them there is no room for it in 80 columns.
        for licence, models in groupby(sorted(family.models, key=_licence), key=_licence):
            echo(f"{family.name}, licence {licence}")
            for model in models:
                memory = (f"{model.memory[method] / 1e9:,.0f}" for method in METHODS)
                echo(_line(model.id, _size(model.parameters), f"{model.context_length:,}", *memory))
    new_console().print(f"full, lora, qlora: minimum GPU memory in GB with {USUAL_SETTING}.")
    echo("For other settings, run: bloom plan")


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="Model folder, or run directory with a final model.")],
    as_json: JsonOption = False,
) -> None:
    """Check whether a model folder can be trained, and list its problems."""
    from gpubloom.hub.checking import check_model

    folder = model.expanduser()
    report = check_model(folder / "model" if (folder / "train.py").is_file() else folder)
    if as_json:
        echo(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def pull(
    model: Annotated[
        str, typer.Argument(help="ORG/NAME or ORG/NAME@REVISION on Hugging Face, such as Qwen/Qwen3-0.6B.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="New folder for the model. [default: a folder in BLOOM_HOME, where other commands find the "
            "model by ORG/NAME]"
        ),
    ] = None,
) -> None:
    """Download a model from Hugging Face.

    Run the same command again to continue a stopped download.
    """
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
        fail("stopped", "Stopped. Run the same command again to continue the download.", status=STOPPED)
    echo(folder)
    report = check_model(folder)
    if not report.ok:
        _show(report)


def _licence(model: "CatalogueModel") -> str:
    return f"{model.licence}{' (accept the licence on Hugging Face first)' if model.gated else ''}"


def _line(*cells: str) -> str:
    """A row of the catalogue. It does not shrink: a model id must be complete to be copied."""
    model, size, context, full, lora, qlora = cells
    return f"  {model:<41}{size:>8}{context:>9}{full:>7}{lora:>6}{qlora:>7}"


def _size(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"


def _list_fetched(*, as_json: bool) -> None:
    from gpubloom.hub.fetching import default_home, describe, fetched_models

    found = [describe(folder) | {"folder": str(folder)} for folder in fetched_models(default_home())]
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    for model in found:
        echo(f"{model['repository']}@{model['revision'][:12]}\n  {model['folder']}")
    if not found:
        echo("No downloaded models. Download a model: bloom models pull ORG/NAME")


def _show(report: "Report") -> None:
    if report.parameters is not None:
        template = "chat template" if report.chat_template else "no chat template"
        echo(
            f"{report.family}, {report.parameters / 1e6:,.1f} M parameters, {template}, "
            f"{size_text(report.bytes)} on disk"
        )
    for finding in report.findings:
        echo(f"{_MARKS[finding.severity]} {finding.sentence}")
    if report.ok:
        echo("The model can be trained.")
    else:
        echo("The model cannot be trained.")


def _say(sentence: str) -> None:
    echo(sentence, err=True)
