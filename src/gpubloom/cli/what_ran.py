"""`bloom runs what-ran RUN`: the commit, command line, packages, machine, configs and datasets of a run."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubloom.cli.output import echo, refuse

_SHORT_CONFIG = 60


def what_ran(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with all packages and configs.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print the changes since the commit as a patch.")
    ] = False,
) -> None:
    """Show what ran: commit and changes, command line, packages, machine, configs and datasets."""
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard.what_ran import load_what_ran

    try:
        found = load_what_ran(must_be_run(run))
    except ValueError as problem:
        refuse(problem)
    if diff:
        patch = (found.get("git") or {}).get("diff", "")
        # A file gets the patch as it is, to be applied.
        (echo if sys.stdout.isatty() else typer.echo)(patch, nl=False)
        return
    print_what_ran(found, as_json=as_json)


def print_what_ran(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print it for a person, or whole as JSON."""
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    lines = list(_lines(found))
    echo("\n".join(lines) if lines else "This run did not record what ran.")


def _lines(found: Mapping[str, Any]) -> list[str]:
    lines = []
    if command := found.get("command"):
        lines += [f"Command   {' '.join(command)}", f"Folder    {found.get('folder', '')}"]
    if git := found.get("git"):
        changed = " with changes (--diff prints them)" if git.get("diff") else ""
        lines.append(f"Commit    {git['commit']} on {git.get('branch') or 'no branch'}{changed}")
        if git.get("remote"):
            lines.append(f"Remote    {git['remote']}")
    if machine := found.get("machine"):
        lines.append("Machine   " + ", ".join(f"{name} {value}" for name, value in machine.items()))
    for entry in found.get("datasets") or []:
        rest = ", ".join(
            f"{name} {value}" for name, value in entry.items() if name != "name" and value is not None
        )
        lines.append(f"Dataset   {entry['name']}: {rest}")
    for name, config in (found.get("configs") or {}).items():
        lines.append(f"Config    {name}")
        if isinstance(config, Mapping):
            shown = list(config.items())[:_SHORT_CONFIG]
            lines += [f"          {key} = {json.dumps(value)}" for key, value in shown]
            if len(config) > len(shown):
                lines.append(f"          … {len(config) - len(shown)} more (--json prints all)")
    if packages := found.get("packages"):
        lines.append(f"Packages  {len(packages)} (--json prints all)")
    return lines
