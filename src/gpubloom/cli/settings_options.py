"""Options that several commands have in common: how a person says what a training should be like."""

from pathlib import Path
from typing import Annotated

import typer

# The panel of `--help` under which they stand.
SETTINGS = "Settings"

OneGpu = Annotated[int | None, typer.Option(min=0, help="Use this GPU only.", rich_help_panel=SETTINGS)]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Any field of the config.", rich_help_panel=SETTINGS),
]
ConfigFile = Annotated[
    Path | None, typer.Option(help="A JSON file with a TrainConfig.", rich_help_panel=SETTINGS)
]
RunDir = Annotated[Path | None, typer.Option(help="Where the run is kept. [default: ./runs/<time>-<name>]")]
