"""Lambda's names for machine types and states, mapped to ours."""

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Generic, TypeVar

from pydantic import BaseModel

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import InstanceState
from gpubloom.providers.gpu_names import our_gpu_name, runs_jobs

Content = TypeVar("Content")

_GPU = re.compile(r"(?P<model>[^(]+?)\s*\((?P<memory>\d+)\s*GB(?P<board>[^)]*)\)")
# The first word of a region, as parts of the world are called in offers.
_PARTS = {"us": "us", "europe": "eu", "asia": "asia", "australia": "australia", "me": "me"}

_STATES: dict[str, tuple[InstanceState, str]] = {
    "booting": ("starting", "The machine is booting."),
    "active": ("running", ""),
    # It is billed all the same until it is ended.
    "unhealthy": ("lost", "Lambda reports that the machine is unhealthy."),
    "terminating": ("ended", "The machine is being terminated."),
    "terminated": ("ended", "The machine was terminated."),
    "preempted": ("lost", "Lambda preempted the machine."),
}
# In every other state, also in one that is not known here, a machine is billed.
NOT_BILLED = {"terminating", "terminated", "preempted"}


class Answer(BaseModel, Generic[Content]):
    """Every good answer has this form."""

    data: Content


class Region(BaseModel):
    name: str


class Specs(BaseModel):
    gpus: int


class InstanceType(BaseModel):
    name: str
    gpu_description: str
    price_cents_per_hour: int
    specs: Specs

    @property
    def hourly(self) -> float:
        return self.price_cents_per_hour / 100

    @property
    def gpu(self) -> tuple[str, float] | None:
        """Our name of its GPU and the memory of one in GB; None: there is none, or none that is known."""
        found = _GPU.match(self.gpu_description)
        if found is None or self.specs.gpus < 1:
            return None
        memory = float(found["memory"])
        return our_gpu_name(f"{found['model']} {found['board']}", memory), memory

    @property
    def runs_jobs(self) -> bool:
        """Whether our jobs run there: a known GPU, new enough, beside an x86-64 processor."""
        return self.gpu is not None and runs_jobs(self.gpu[0])


class TypeOnOffer(BaseModel):
    instance_type: InstanceType
    regions_with_capacity_available: list[Region]

    @property
    def regions(self) -> list[str]:
        return [region.name for region in self.regions_with_capacity_available]


class Tag(BaseModel):
    key: str
    value: str


class Machine(BaseModel):
    id: str
    name: str = ""
    status: str
    region: Region
    instance_type: InstanceType
    tags: list[Tag] = []
    # Its public address; missing while it boots.
    ip: str | None = None


class SshKey(BaseModel):
    name: str


class Launched(BaseModel):
    instance_ids: list[str]


def state_of(status: str) -> tuple[InstanceState, str]:
    """A status that is not known counts as running: it is better to look once more than to forget a bill."""
    return _STATES.get(status, ("running", f"Lambda reports the state {status!r}."))


def part_of_the_world(region: str) -> str:
    first = region.partition("-")[0]
    return _PARTS.get(first, first)


def lies_in(region: str, wanted: str | None) -> bool:
    """`wanted`: a region by Lambda's name, or a part of the world."""
    return wanted is None or wanted in (region, part_of_the_world(region))


def fitting(types: Iterable[TypeOnOffer], gpu: str, gpus: int) -> list[TypeOnOffer]:
    """Machines with exactly these GPUs, the cheapest first."""
    found = [
        offered
        for offered in types
        if (kind := offered.instance_type.gpu) is not None
        and offered.instance_type.runs_jobs
        and kind[0] == gpu
        and offered.instance_type.specs.gpus == gpus
    ]
    return sorted(found, key=lambda offered: offered.instance_type.price_cents_per_hour)


def price_rows(types: Iterable[TypeOnOffer], today: date) -> Iterator[PriceRow]:
    """A row for everywhere, which takes the place of a shipped one, and one for each part of the world that
    has machines free. Of several types with the same GPUs the cheapest, one that is free before others."""
    rows: dict[object, PriceRow] = {}
    for offered in types:
        if (kind := offered.instance_type.gpu) is None or not offered.instance_type.runs_jobs:
            continue
        parts = sorted({part_of_the_world(region) for region in offered.regions})
        for part in (None, *parts):
            row = PriceRow(
                provider="lambda",
                gpu=kind[0],
                gpus=offered.instance_type.specs.gpus,
                memory_gb=kind[1],
                region=part,
                kind="on_demand",
                hourly=offered.instance_type.hourly,
                source="Lambda's API",
                read_on=today,
                availability="immediate" if parts else "unavailable",
            )
            if row.key not in rows or row.is_better_than(rows[row.key]):
                rows[row.key] = row
    yield from rows.values()
