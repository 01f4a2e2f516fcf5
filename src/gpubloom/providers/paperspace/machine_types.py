"""Paperspace's names for machine types and states, mapped to ours."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from gpubloom.providers.cloud import InstanceState

Item = TypeVar("Item")


_NY2, _CA1, _AMS1 = "East Coast (NY2)", "West Coast (CA1)", "Europe (AMS1)"
_PARTS = {_NY2: "us", _CA1: "us", _AMS1: "eu"}
# Our names of GPUs: theirs, and where they have them.
_GPUS: dict[str, tuple[str, Sequence[str]]] = {
    "RTX A4000": ("A4000", (_NY2, _CA1, _AMS1)),
    "RTX A5000": ("A5000", (_NY2, _CA1)),
    "RTX A6000": ("A6000", (_NY2, _CA1)),
    "V100": ("V100", (_NY2, _AMS1)),
    "A100 40GB": ("A100", (_NY2,)),
    "A100 80GB": ("A100-80G", (_NY2,)),
    "H100": ("H100", (_NY2,)),
}
# Disks come in these sizes, in gigabytes.
_DISKS = (50, 100, 250, 500, 1000, 2000)
# What a machine of ours is called: a prefix alone could be somebody's own idea.
_OURS = re.compile(r"bloom-[\w-]+-a\d+")
_VERSION = re.compile(r"(\d+)\.(\d+)")
# A machine that was just made may be off before it starts.
_STARTS_WITHIN = timedelta(minutes=10)

_STATES: dict[str, tuple[InstanceState, str]] = {
    "provisioning": ("starting", "The machine is being created."),
    "starting": ("starting", "The machine is booting."),
}


class _ResponseBody(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class Page(_ResponseBody, Generic[Item]):
    items: list[Item]
    has_more: bool = False
    next_page: str | None = None


class Machine(_ResponseBody):
    id: str
    name: str
    state: str
    region: str
    # US dollars an hour, of the machine without its disk.
    usage_rate: float | None = None
    dt_created: datetime
    dt_deleted: datetime | None = None

    @property
    def ours(self) -> bool:
        return is_ours(self.name)


class Event(_ResponseBody):
    """Something that was to be done to a machine, and what became of it."""

    name: str
    state: str
    error: str | None = None

    @property
    def start_failed(self) -> bool:
        return self.name in ("create", "start") and self.state in ("error", "cancelled")


class Changed(_ResponseBody):
    data: Machine


class Script(_ResponseBody):
    id: str
    name: str
    dt_created: datetime

    @property
    def ours(self) -> bool:
        return is_ours(self.name)


class Fits(_ResponseBody):
    is_available: bool
    machine_type_label: str


class Template(_ResponseBody):
    id: str
    name: str
    operating_system_label: str
    default_size_gb: int | None = None
    available_machine_types: list[Fits] = []

    def fits(self, machine_type: str) -> bool:
        return any(
            fits.is_available and fits.machine_type_label == machine_type
            for fits in self.available_machine_types
        )

    @property
    def rank(self) -> tuple[bool, tuple[int, int]]:
        """Those with drivers and libraries for machine learning first, then the newest."""
        version = _VERSION.search(f"{self.operating_system_label} {self.name}")
        return "ML" in self.name, (int(version[1]), int(version[2])) if version else (0, 0)


class Team(_ResponseBody):
    namespace: str


class User(_ResponseBody):
    email: str


class Session(_ResponseBody):
    team: Team
    user: User


def is_ours(name: str) -> bool:
    return _OURS.fullmatch(name) is not None


def state_of(machine: Machine, age: timedelta) -> tuple[InstanceState, str]:
    """What is not known counts as running: it is better to look once more than to forget a bill."""
    if machine.dt_deleted is not None:
        return "ended", "The machine was deleted."
    if machine.state == "off":
        if age < _STARTS_WITHIN:
            return "starting", "The machine was created but is not running yet."
        return "lost", "The machine is switched off. Its disk is billed until the machine is deleted."
    return _STATES.get(machine.state, ("running", ""))


def type_of(gpu: str, gpus: int) -> str | None:
    """Paperspace's name of a machine with these GPUs; None: it has none with such a GPU."""
    if gpu not in _GPUS:
        return None
    label = _GPUS[gpu][0]
    return label if gpus == 1 else f"{label}x{gpus}"


def regions_of(gpu: str, wanted: str | None) -> list[str]:
    """`wanted`: a region by its name or the short form of it, or a part of the world."""
    return [
        region
        for region in _GPUS[gpu][1]
        if wanted is None or wanted in (region, _PARTS[region]) or f"({wanted.upper()})" in region
    ]


def best_template(templates: Iterable[Template], machine_type: str) -> Template | None:
    fitting = [
        template
        for template in templates
        if template.fits(machine_type) and "Ubuntu" in f"{template.operating_system_label} {template.name}"
    ]
    return max(fitting, key=lambda template: template.rank, default=None)


def disk_size(wanted_gb: int, template: Template | None) -> int:
    least = max(wanted_gb, (template and template.default_size_gb) or 0)
    return next((size for size in _DISKS if size >= least), _DISKS[-1])
