"""`bloom offers`: where a job could run, what that costs, and which to take. Nothing is started."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpubloom.cli.output import refuse
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from gpubloom.offers import Constraints, Need, Offer, Offers, Span

Region = Literal["us", "eu", "asia"]
Priority = Literal["price", "balanced", "time"]


def offers(
    file: Annotated[
        Path | None, typer.Argument(help="A script or notebook; what it needs is read from it.")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="GB of one GPU.", min=0)] = None,
    hours: Annotated[float | None, typer.Option(help="Hours on GPUs of the kind --on.", min=0)] = None,
    on: Annotated[
        str | None, typer.Option(help="The GPU that --hours are for; otherwise the smallest that fits.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs in one machine.", min=1, max=1_024)] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Somebody works in it.")] = False,
    bf16: Annotated[bool, typer.Option("--bf16", help="It computes in bfloat16.")] = False,
    data: Annotated[float, typer.Option(help="GB that it fetches first.", min=0)] = 1.0,
    provider: Annotated[list[str] | None, typer.Option(help="Only this service; may be repeated.")] = None,
    skypilot: Annotated[
        bool, typer.Option("--skypilot", help="SkyPilot is set up: count its clouds.")
    ] = False,
    region: Annotated[Region | None, typer.Option(help="Where it must run.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="The most it may cost, in dollars.", min=0)] = None,
    max_hours: Annotated[float | None, typer.Option(help="The longest it may take.", min=0)] = None,
    credit: Annotated[
        list[str] | None, typer.Option(metavar="SERVICE=DOLLARS", help="What is left there; may be repeated.")
    ] = None,
    priority: Annotated[Priority, typer.Option(help="What counts most.")] = "balanced",
    every: Annotated[bool, typer.Option("--all", help="Show all, and what was not offered and why.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say where a job could run and what it would cost. Nothing is started."""
    from gpubloom.offers import Constraints

    try:
        need = _need(file, memory, hours, on, gpus, interactive=interactive, bf16=bf16, data=data)
        constraints = Constraints(
            providers=frozenset(provider or ()),
            engines=frozenset({"skypilot"} if skypilot else ()),
            region=region,
            max_cost=max_cost,
            max_hours=max_hours,
            credits=_credits(credit or []),
            priority=priority,
        )
        found = _found(need, constraints)
    except ValueError as problem:
        refuse(problem)
    if as_json:
        typer.echo(json.dumps(_as_json(need, found), indent=2, default=str))
    else:
        _show(need, found, every=every)
    if not found.offers:
        raise typer.Exit(1)


def _need(
    file: Path | None,
    memory: float | None,
    hours: float | None,
    reference: str | None,
    gpus: int | None,
    *,
    interactive: bool,
    bf16: bool,
    data: float,
) -> "Need":
    from dataclasses import replace

    from gpubloom.offers import Need, Span
    from gpubloom.scripts import detect

    if file is None:
        if memory is None or hours is None:
            raise InputError("invalid_option", "name a script, or give --memory and --hours.")
        return Need.of(
            memory,
            hours,
            reference_gpu=reference,
            gpus=gpus or 1,
            interactive=interactive,
            bf16=bf16,
            data_gb=data,
        )
    found = Need.from_requirements(detect(file), data_gb=data)
    # What a person says counts more than what a script seems to need.
    told = {
        name for name, value in (("memory", memory), ("hours", hours), ("gpus", gpus)) if value is not None
    }
    checked = Need.of(1, 1, reference_gpu=reference or found.reference_gpu)
    return replace(
        found,
        memory_gb=found.memory_gb if memory is None else Span.of(memory),
        hours=found.hours if hours is None else Span.of(hours),
        reference_gpu=checked.reference_gpu,
        gpus=gpus or found.gpus,
        wants_gpu=gpus is not None or found.wants_gpu,
        interactive=interactive or found.interactive,
        bf16=bf16 or found.bf16,
        assumed=tuple(name for name in found.assumed if name not in told),
    )


def _credits(given: list[str]) -> dict[str, float]:
    found = {}
    for text in given:
        service, _, amount = text.partition("=")
        try:
            found[service] = float(amount)
        except ValueError:
            raise InputError("invalid_option", f"--credit {text} says no amount: write modal=30.") from None
    return found


def _found(need: "Need", constraints: "Constraints") -> "Offers":
    from datetime import UTC, datetime

    from gpubloom.offers import load_prices, local_rows
    from gpubloom.offers import offers as make_offers
    from gpubloom.plan import detect_hardware

    now = datetime.now(UTC)
    own = os.environ.get("BLOOM_PRICES")
    prices = load_prices(Path(own) if own else None).with_rows(local_rows(detect_hardware(), now))
    unknown = sorted((constraints.providers | constraints.credits.keys()) - prices.providers.keys())
    if unknown:
        names = ", ".join(sorted(prices.providers))
        raise InputError(
            "unknown_provider", f"{unknown[0]} is no service that is known here. Known are {names}."
        )
    return make_offers(need, prices=prices, now=now, constraints=constraints)


def _as_json(need: "Need", found: "Offers") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "need": asdict(need),
        "offers": [
            {**asdict(offer), "cost": {**asdict(offer.cost), "total": asdict(offer.cost.total)}}
            for offer in found.offers
        ],
        "excluded": [asdict(each) for each in found.excluded],
        "archetype": found.choice.archetype if found.choice else None,
        "usual": found.choice.usual if found.choice else None,
    }


_SHOWN = 10
_KINDS = {
    "on_demand": "on demand",
    "spot": "spot",
    "per_second": "per second",
    "monthly_units": "units",
    "free": "free",
}


def _show(need: "Need", found: "Offers", *, every: bool) -> None:
    """Print a table, the reasons of the choice, and what was not offered."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False)
    console.print(Text(_asked(need)))
    if not found.offers:
        console.print(Text("\nNothing that is known here can run this job."))
    else:
        shown = found.offers if every else found.offers[:_SHOWN]
        console.print(_table(shown))
        if len(found.offers) > len(shown):
            console.print(Text(f"{len(found.offers) - len(shown)} more with --all.", style="dim"))
    if found.choice is not None:
        console.print(Text(f"\nTake {found.choice.offer.name}.", style="bold"))
        for sentence in (*found.choice.reasons, *found.choice.offer.cautions):
            console.print(Text(f"  {sentence}"))
    elif not need.wants_gpu:
        console.print(
            Text("\nIt needs no GPU, so nothing has to be rented: it runs on this machine.", style="bold")
        )
    elif found.offers:
        console.print(Text("\nNone is recommended: each of them needs somebody at a browser."))
    if found.excluded and (every or not found.offers):
        console.print(Text("\nNot offered"))
        for each in found.excluded:
            console.print(Text(f"  {each.title} {each.gpu}: {each.reason}"))
    console.print(Text("\n* assumed: nobody read this price.  † read more than 30 days ago.", style="dim"))


def _asked(need: "Need") -> str:
    if not need.wants_gpu:
        return "No GPU is needed; this is what one would cost."
    memory = f"{_span(need.memory_gb)} GB" + (" (assumed)" if "memory" in need.assumed else "")
    hours = f"{_span(need.hours)} hours" + (" (assumed)" if "hours" in need.assumed else "")
    count = f"{need.gpus} GPUs of " if need.gpus > 1 else ""
    return f"{count}{memory}, {hours} on {need.reference_gpu}"


def _table(offers: "tuple[Offer, ...]") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "service", "GPU", "kind"):
        table.add_column(heading)
    for heading in ("$/hour", "hours", "cost", "from – to"):
        table.add_column(heading, justify="right")
    table.add_column("free now")
    for offer in offers:
        mark = "*" if "price" in offer.assumed else "†" if offer.stale else ""
        gpu = f"{offer.gpus}× {offer.gpu}" if offer.gpus > 1 else offer.gpu
        total = offer.cost.total
        table.add_row(
            "→" if offer.recommended else "",
            offer.title,
            gpu,
            _KINDS[offer.kind],
            f"{offer.hourly.likely:.2f}{mark}",
            f"{offer.hours.likely:.1f}",
            f"{total.likely:.2f}",
            f"{total.low:.2f} – {total.high:.2f}",
            {"immediate": "yes", "queued": "after a queue"}.get(offer.availability, "not known"),
            style="bold" if offer.recommended else "" if offer.unattended else "dim",
        )
    return table


def _span(span: "Span") -> str:
    if span.low == span.high:
        return f"{span.likely:.3g}"
    return f"{span.likely:.3g} ({span.low:.2g} to {span.high:.3g})"
