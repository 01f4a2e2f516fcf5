"""`bloom runs samples RUN`: what the model answers to the sample prompts of its run, step by step."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubloom.cli.output import echo, refuse


def samples(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what the model answers to the sample prompts of its run, step by step."""
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard.samples import load_samples

    try:
        found = load_samples(must_be_run(run))
    except ValueError as problem:
        refuse(problem)
    print_samples(found, as_json=as_json)


def print_samples(found: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print them for a person, or as JSON."""
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if not found:
        echo("This run has no samples. Set eval.prompts, or bloom finetune --sample-prompt TEXT.")
        return
    for number, each in enumerate(found):
        echo(("\n" if number else "") + f"Prompt: {each['prompt']}")
        for answer in each["answers"]:
            text = str(answer["text"]).strip().replace("\n", "\n            ") or "(empty answer)"
            echo(f"{'step ' + format(answer['step'], ','):>10}  {text}")
