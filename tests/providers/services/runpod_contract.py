"""What is used of RunPod's API, in our own words. Names of GPUs and images are documented, not recorded."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from tests.providers.services.contracts import Calls, ResponseBody, Sent, misfits
from tests.providers.services.web import Exchange


class _Sent(Sent):
    model_config = ConfigDict(alias_generator=to_camel)


class _Body(ResponseBody):
    model_config = ConfigDict(alias_generator=to_camel)


class Gpu(_Sent):
    id: str
    count: Annotated[int, Field(ge=1, le=8)]
    min_cuda_version: Literal["12.8"]


class Persistent(Sent):
    size: Annotated[int, Field(ge=10)]
    path: Literal["/bloom"]


class Mounts(Sent):
    persistent: Persistent


class Create(_Sent):
    name: Annotated[str, Field(pattern=r"^bloom-[\w-]+-a\d+$")]
    image: Annotated[str, Field(pattern=r"^runpod/pytorch:[\w.-]+-cu\d+-torch\d+-ubuntu2404$")]
    cloud: Literal["SECURE"]
    gpu: Gpu
    disk: Annotated[int, Field(ge=1)]
    mounts: Mounts
    env: dict[str, str]
    args: Annotated[str, Field(pattern="^bash -c '.*'$")]
    data_center_ids: Annotated[list[str], Field(min_length=1)] = Field(default_factory=list)
    ports: list[Literal["22/tcp"]] = Field(default_factory=list)


class Pod(_Body):
    id: str
    name: str
    status: Literal["PROVISIONING", "STARTING", "RUNNING", "EXITED", "ERROR", "TERMINATED"]
    cost: float
    data_center_id: str | None
    created_at: str


class Pods(ResponseBody):
    pods: list[Pod]


class GpuTypes(ResponseBody):
    class Item(ResponseBody):
        id: str
        name: str
        memory: int
        availability: Literal["NONE", "LOW", "MEDIUM", "HIGH"]

    gpus: list[Item]


class Bill(ResponseBody):
    class Metadata(_Body):
        record_count: int

    metadata: Metadata


class Error(ResponseBody):
    title: str
    status: int
    detail: str


_CALLS: Calls = [
    (r"GET /v2/pods", None, Pods),
    (r"POST /v2/pods", Create, Pod),
    (r"GET /v2/pods/[^/]+", None, Pod),
    (r"DELETE /v2/pods/[^/]+", None, None),
    (r"GET /v2/pods/[^/]+/logs", None, bytes),
    (r"GET /v2/catalog/gpus", None, GpuTypes),
    (r"GET /v2/billing/pods", None, Bill),
]


def runpod_misfits(exchange: Exchange) -> Iterator[str]:
    return misfits(_CALLS, Error, exchange)
