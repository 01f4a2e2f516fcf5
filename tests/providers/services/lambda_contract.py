"""What is used of Lambda's API."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from tests.providers.services.contracts import Calls, ResponseBody, Sent, misfits
from tests.providers.services.web import Exchange


class Tag(Sent):
    key: Annotated[str, Field(pattern=r"^[a-z][a-z0-9:-]+$", max_length=55)]
    value: Annotated[str, Field(max_length=128)]


class ImageFamily(Sent):
    """Documented, not recorded: the schema names no families."""

    family: Literal["lambda-stack-24-04"]


class Launch(Sent):
    region_name: str
    instance_type_name: str
    image: ImageFamily
    ssh_key_names: Annotated[list[str], Field(min_length=1, max_length=1)]
    name: Annotated[str, Field(max_length=64)]
    user_data: Annotated[str, Field(max_length=1_000_000)]
    tags: list[Tag]


class Terminate(Sent):
    instance_ids: Annotated[list[str], Field(min_length=1)]


class NewKey(Sent):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    public_key: Annotated[str, Field(pattern="^ssh-ed25519 ", max_length=4096)]


class Region(ResponseBody):
    name: str
    description: str


class Specs(ResponseBody):
    vcpus: int
    memory_gib: int
    storage_gib: int
    gpus: int


class Type(ResponseBody):
    name: str
    description: str
    gpu_description: str
    price_cents_per_hour: int
    specs: Specs


class Instance(ResponseBody):
    id: str
    status: Literal["booting", "active", "unhealthy", "terminated", "terminating", "preempted"]
    region: Region
    instance_type: Type
    ssh_key_names: list[str]


class Types(ResponseBody):
    class Item(ResponseBody):
        instance_type: Type
        regions_with_capacity_available: list[Region]

    data: dict[str, Item]


class Instances(ResponseBody):
    data: list[Instance]


class One(ResponseBody):
    data: Instance


class Launched(ResponseBody):
    class Data(ResponseBody):
        instance_ids: list[str]

    data: Data


class Terminated(ResponseBody):
    class Data(ResponseBody):
        terminated_instances: list[Instance]

    data: Data


class Key(ResponseBody):
    id: str
    name: str
    public_key: str


class Keys(ResponseBody):
    data: list[Key]


class MadeKey(ResponseBody):
    data: Key


class Error(ResponseBody):
    class Error(ResponseBody):
        code: str
        message: str

    error: Error


_CALLS: Calls = [
    (r"GET /api/v1/instances", None, Instances),
    (r"GET /api/v1/instances/[^/]+", None, One),
    (r"GET /api/v1/instance-types", None, Types),
    (r"GET /api/v1/ssh-keys", None, Keys),
    (r"POST /api/v1/ssh-keys", NewKey, MadeKey),
    (r"POST /api/v1/instance-operations/launch", Launch, Launched),
    (r"POST /api/v1/instance-operations/terminate", Terminate, Terminated),
]


def lambda_misfits(exchange: Exchange) -> Iterator[str]:
    return misfits(_CALLS, Error, exchange)
