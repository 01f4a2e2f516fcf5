"""RunPod's answers, and its names for GPUs, data centers and states, mapped to ours."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import InstanceState
from gpubloom.providers.gpu_names import our_gpu_name, runs_jobs

# What a pod of ours is called: a prefix alone could be somebody's own idea.
_OURS = re.compile(r"bloom-[\w-]+-a\d+")
# The first part of a data center's id, as parts of the world are called in offers.
_PARTS = {"US": "us", "CA": "us", "EU": "eu", "EUR": "eu", "AP": "asia", "SEA": "asia", "OC": "australia"}
# Numbers of GPUs for which stock is asked.
COUNTS = (1, 2, 4, 8)

_STATES: dict[str, tuple[InstanceState, str]] = {
    "PROVISIONING": ("starting", "RunPod is looking for a machine."),
    "STARTING": ("starting", "The container is starting."),
    "RUNNING": ("running", ""),
    # Its disk is billed all the same until it is deleted.
    "EXITED": ("lost", "The container of the pod has stopped."),
    "ERROR": ("lost", "RunPod reports that the container is in an error state."),
    "TERMINATED": ("ended", "The pod was deleted."),
}


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class ByCloud(_Answer):
    secure: float
    community: float


class Stock(_Answer):
    id: str
    availability: str


class GpuType(_Answer):
    id: str
    name: str
    manufacturer: str
    memory: int
    secure: bool
    price: ByCloud
    max_count: ByCloud
    availability: str = "NONE"
    data_centers: list[Stock] = []

    @property
    def gpu(self) -> str:
        """By our name. The id says the board, which the name may leave out."""
        return our_gpu_name(self.name, self.memory)

    @property
    def is_usable(self) -> bool:
        return self.secure and self.manufacturer.upper() == "NVIDIA" and runs_jobs(self.gpu)

    def centers(self, region: str | None = None) -> list[str]:
        """Data centers with stock, the fullest first; `region`: a data center, or a part of the world."""
        # A level that is not known here is stock all the same.
        levels = {"HIGH": 0, "MEDIUM": 1, "LOW": 2}
        found = [
            center
            for center in self.data_centers
            if center.availability != "NONE" and region in (None, center.id, part_of_the_world(center.id))
        ]
        found.sort(key=lambda center: levels.get(center.availability, len(levels)))
        return [center.id for center in found]


class GpuTypes(_Answer):
    gpus: list[GpuType]


class SshEndpoint(_Answer):
    host: str
    port: int


class Ssh(_Answer):
    # None until the pod has a public port for its port 22.
    direct: SshEndpoint | None = None


class Pod(_Answer):
    id: str
    name: str
    status: str
    # US dollars an hour; 0 when nothing runs.
    cost: float = 0.0
    data_center_id: str | None = None
    created_at: datetime | None = None
    ssh: Ssh = Ssh()

    @property
    def ours(self) -> bool:
        return _OURS.fullmatch(self.name) is not None


class Pods(_Answer):
    pods: list[Pod]


class Total(_Answer):
    total_amount: float


class BillMetadata(_Answer):
    record_count: int
    totals: Total


class Bill(_Answer):
    metadata: BillMetadata


def state_of(status: str) -> tuple[InstanceState, str]:
    """A status that is not known counts as running: it is better to look once more than to forget a bill."""
    return _STATES.get(status, ("running", f"RunPod reports the state {status!r}."))


def part_of_the_world(center: str) -> str:
    first = center.partition("-")[0]
    return _PARTS.get(first, first.lower())


def price_rows(types: Mapping[int, Iterable[GpuType]], today: date) -> Iterator[PriceRow]:
    """`types`: the catalogue for each number of GPUs. A row for everywhere, which takes the place of a
    shipped one, and one for each part of the world with stock; the cheapest of several types with one GPU."""
    rows: dict[object, PriceRow] = {}
    for gpus, found in types.items():
        for kind in found:
            if not kind.is_usable or kind.price.secure <= 0 or kind.max_count.secure < gpus:
                continue
            parts = sorted({part_of_the_world(center) for center in kind.centers()})
            for part in (None, *parts):
                row = PriceRow(
                    provider="runpod",
                    gpu=kind.gpu,
                    gpus=gpus,
                    most_gpus=kind.max_count.secure,
                    memory_gb=kind.memory,
                    region=part,
                    kind="on_demand",
                    hourly=round(kind.price.secure * gpus, 6),
                    source="RunPod's API, secure cloud",
                    read_on=today,
                    availability="unavailable" if kind.availability == "NONE" else "immediate",
                )
                if row.key not in rows or row.is_better_than(rows[row.key]):
                    rows[row.key] = row
    yield from rows.values()
