"""Offers in the terminal: a table, the reasons, what was assumed."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubloom.offers import Need, Offer, Offers, Span

_SHOWN = 10
_KINDS = {
    "on_demand": "on demand",
    "spot": "spot",
    "per_second": "per second",
    "monthly_units": "units",
    "free": "free",
}


def show(need: Need, found: Offers, *, every: bool) -> None:
    """Print them."""
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


def _asked(need: Need) -> str:
    if not need.wants_gpu:
        return "No GPU is needed; this is what one would cost."
    memory = f"{_span(need.memory_gb)} GB" + (" (assumed)" if "memory" in need.assumed else "")
    hours = f"{_span(need.hours)} hours" + (" (assumed)" if "hours" in need.assumed else "")
    count = f"{need.gpus} GPUs of " if need.gpus > 1 else ""
    return f"{count}{memory}, {hours} on {need.reference_gpu}"


def _table(offers: tuple[Offer, ...]) -> Table:
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


def _span(span: Span) -> str:
    if span.low == span.high:
        return f"{span.likely:.3g}"
    return f"{span.likely:.3g} ({span.low:.2g} to {span.high:.3g})"
