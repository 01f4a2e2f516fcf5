"""`bloom providers offers`: where a job could run and the cost, with a recommendation. Starts nothing."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpubloom.cli.api_client import call
from gpubloom.cli.output import echo, refuse
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from gpubloom.offers import Constraints, Need, Offer, Offers, Span

Region = Literal["us", "eu", "asia"]
Priority = Literal["price", "balanced", "time"]


def offers(
    file: Annotated[
        Path | None, typer.Argument(help="Script or notebook; its requirements are detected.")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="Memory of one GPU in GB.", min=0)] = None,
    hours: Annotated[
        float | None, typer.Option(help="Duration of the job in hours, on the GPU type set with --on.", min=0)
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="GPU type that --hours refers to. [default: the smallest that fits]")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="Number of GPUs in one machine.", min=1, max=1_024)] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="The job is interactive, such as a notebook.")
    ] = False,
    bf16: Annotated[bool, typer.Option("--bf16", help="The job requires bfloat16.")] = False,
    data: Annotated[float, typer.Option(help="Data to download before the start, in GB.", min=0)] = 1.0,
    provider: Annotated[
        list[str] | None, typer.Option(help="Only offers of this provider; may be repeated.")
    ] = None,
    skypilot: Annotated[
        bool, typer.Option("--skypilot", help="Include clouds that SkyPilot can reach.")
    ] = False,
    region: Annotated[Region | None, typer.Option(help="Only offers in this region.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Maximum cost in dollars.", min=0)] = None,
    max_hours: Annotated[float | None, typer.Option(help="Maximum duration in hours.", min=0)] = None,
    credit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROVIDER=DOLLARS",
            help="Remaining credit at a provider, such as modal=30; may be repeated.",
        ),
    ] = None,
    stated_credits: Annotated[
        bool,
        typer.Option(
            "--stated-credits",
            help="Also use the credits that you stated on the server with `bloom providers set-credit`.",
        ),
    ] = False,
    priority: Annotated[
        Priority, typer.Option(help="What matters most for the recommendation.")
    ] = "balanced",
    every: Annotated[
        bool, typer.Option("--all", help="Show all offers, and why other offers are excluded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List GPU offers for a job with their cost, and recommend one.

    Rents nothing.
    """
    from gpubloom.offers import Constraints

    try:
        need = _need(file, memory, hours, on, gpus, interactive=interactive, bf16=bf16, data=data)
        constraints = Constraints(
            providers=frozenset(provider or ()),
            engines=frozenset({"skypilot"} if skypilot else ()),
            region=region,
            max_cost=max_cost,
            max_hours=max_hours,
            credits={**(_stated_credits() if stated_credits else {}), **_credits(credit or [])},
            priority=priority,
        )
        found = _found(need, constraints)
    except ValueError as problem:
        refuse(problem)
    if as_json:
        echo(json.dumps(_as_json(need, found), indent=2, default=str))
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
            raise InputError("invalid_option", "Name a script, or set --memory and --hours.")
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
    # Options override the detected requirements.
    told = {
        name for name, value in (("memory", memory), ("hours", hours), ("gpus", gpus)) if value is not None
    }
    checked = Need.of(1, 1, reference_gpu=reference or found.reference_gpu)
    return replace(
        found,
        memory_gb=found.memory_gb if memory is None else Span.of(memory),
        hours=found.hours if hours is None else Span.of(hours),
        hours_of_any_gpu=found.hours_of_any_gpu and hours is None and reference is None,
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
            raise InputError(
                "invalid_option", f"--credit {text} has no amount: write, for example, --credit modal=30."
            ) from None
    return found


def _stated_credits() -> dict[str, float]:
    return {item["provider"]: item["remaining"] for item in call("GET", "/credits")["items"]}


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
        raise InputError("unknown_provider", f"Unknown provider {unknown[0]!r}. Known providers: {names}.")
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
_BILLING = {
    "on_demand": "on demand",
    "spot": "spot",
    "per_second": "per sec.",
    "monthly_units": "units",
    "free": "free",
}


def _show(need: "Need", found: "Offers", *, every: bool) -> None:
    """Print the offers, the recommendation with its reasons, and the excluded offers."""
    from rich.text import Text

    from gpubloom.cli.tables import new_console

    console = new_console()
    console.print(Text(_asked(need)))
    if not found.offers:
        console.print(Text("\nNo known offer can run this job. For the reasons, see below."))
    else:
        shown = found.offers if every else found.offers[:_SHOWN]
        console.print(_table(shown))
        if len(found.offers) > len(shown):
            console.print(Text(f"{len(found.offers) - len(shown)} more offers: add --all.", style="dim"))
    if found.choice is not None:
        console.print(Text(f"\nRecommended: {found.choice.offer.name}.", style="bold"))
        for sentence in (*found.choice.reasons, *found.choice.offer.cautions):
            console.print(Text(f"  {sentence}"))
    elif not need.wants_gpu:
        console.print(Text("\nThe job needs no GPU. It can run on this machine.", style="bold"))
    elif found.offers:
        console.print(
            Text("\nNo offer is recommended: each offer requires a person who keeps a browser page open.")
        )
    if found.excluded and (every or not found.offers):
        console.print(Text("\nExcluded offers"))
        for each in found.excluded:
            console.print(Text(f"  {each.title} {each.gpu}: {each.reason}"))
    console.print(
        Text(
            "\n→ recommended  * assumed price  † price older than 30 days  – start time unknown", style="dim"
        )
    )


def _asked(need: "Need") -> str:
    if not need.wants_gpu:
        return "The job needs no GPU. These are the offers with a GPU."
    memory = f"{_span(need.memory_gb)} GB" + (" (assumed)" if "memory" in need.assumed else "")
    span = _span(need.hours)
    hours = f"{span} {'hour' if span == '1' else 'hours'}" + (" (assumed)" if "hours" in need.assumed else "")
    count = f"{need.gpus} GPUs with " if need.gpus > 1 else ""
    where = "as the script states" if need.hours_of_any_gpu else f"on {need.reference_gpu}"
    return f"{count}{memory}, {hours} {where}"


def _table(offers: "tuple[Offer, ...]") -> "Table":
    from gpubloom.cli.tables import new_table

    # One column more only for those who have credits.
    has_credit = any(offer.credit is not None for offer in offers)
    table = new_table(
        {
            "provider": "text",
            "GPU": "text",
            "billing": "text",
            "$/hour": "number",
            "hours": "number",
            "cost $": "number",
            **({"you pay $": "number"} if has_credit else {}),
            "range $": "number",
            "starts": "text",
        },
        gap=1,
    )
    for offer in offers:
        mark = "*" if "price" in offer.assumed else "†" if offer.stale else ""
        total = offer.cost.total
        table.add_row(
            f"→ {offer.title}" if offer.recommended else offer.title,
            f"{offer.gpus}× {offer.gpu}" if offer.gpus > 1 else offer.gpu,
            _BILLING[offer.kind],
            f"{offer.hourly.likely:.2f}{mark}",
            f"{offer.hours.likely:,.{1 if offer.hours.likely >= 1 else 2}f}",
            _dollars(total.likely),
            *([_dollars(total.likely if offer.credit is None else offer.credit.to_pay.likely)] * has_credit),
            f"{_dollars(total.low)}–{_dollars(total.high)}",
            {"immediate": "now", "queued": "queued"}.get(offer.availability, "–"),
            style="bold" if offer.recommended else "" if offer.unattended else "dim",
        )
    return table


def _dollars(amount: float) -> str:
    """With cents below 1,000 dollars: above, an estimate is not that exact."""
    return f"{amount:.2f}" if amount < 1_000 else f"{amount:,.0f}"


def _span(span: "Span") -> str:
    if span.low == span.high:
        return f"{span.likely:.3g}"
    return f"{span.likely:.3g} ({span.low:.2g} to {span.high:.3g})"
