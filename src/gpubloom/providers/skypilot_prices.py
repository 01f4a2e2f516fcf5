"""What SkyPilot's catalogues say, as rows of the price table."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Literal

from gpubloom.offers import PriceRow
from gpubloom.providers.skypilot_task import our_name

# Clouds that the price table knows by themselves; the others are SkyPilot's, with their name in the region.
_KNOWN = {"runpod": "runpod", "vast": "vast", "do": "digitalocean"}
_SOURCE = "SkyPilot's catalogue of {cloud}"


def price_rows(found: Iterable[Mapping[str, Any]], today: date) -> list[PriceRow]:
    """The cheapest of each thing to buy."""
    cheapest: dict[object, PriceRow] = {}
    kinds: tuple[tuple[Literal["on_demand", "spot"], str], ...] = (
        ("on_demand", "hourly"),
        ("spot", "spot_hourly"),
    )
    for machine in found:
        for kind, field in kinds:
            row = _row(machine, kind, machine[field], today)
            if row is not None:
                # Regions differ in price, and SkyPilot takes the cheapest unless told otherwise.
                key = row.provider, (row.region or "").partition("/")[0], row.gpu, row.gpus, row.kind
                if key not in cheapest or row.hourly < cheapest[key].hourly:
                    cheapest[key] = row
    return list(cheapest.values())


def _row(
    machine: Mapping[str, Any], kind: Literal["on_demand", "spot"], hourly: float | None, today: date
) -> PriceRow | None:
    whole = float(machine["gpus"]).is_integer() and machine["gpus"] >= 1
    if not hourly or not whole or not machine["memory_gb"]:
        return None
    cloud = machine["cloud"].lower()
    known = _KNOWN.get(cloud)
    return PriceRow(
        provider=known or "skypilot",
        gpu=our_name(machine["gpu"]),
        gpus=int(machine["gpus"]),
        memory_gb=machine["memory_gb"],
        region=None if known else cloud,
        kind=kind,
        hourly=hourly,
        source=_SOURCE.format(cloud=machine["cloud"]),
        read_on=today,
    )
