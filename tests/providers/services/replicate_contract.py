"""What is used of Replicate's API, from the types of its official client; its own description is silent."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tests.providers.services.contracts import Calls, ResponseBody, Sent, misfits
from tests.providers.services.web import Exchange

Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]


class Input(Sent):
    """What our own train() takes."""

    key: Annotated[str, Field(pattern="^bloom-")]
    command: str
    start: str
    packages: str
    longest_seconds: int


class NewTraining(Sent):
    destination: Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")]
    input: Input


class Metrics(ResponseBody):
    predict_time: float | None = None


class Output(ResponseBody):
    version: str | None = None
    weights: str | None = None


class Urls(ResponseBody):
    get: str
    cancel: str


class Listed(ResponseBody):
    id: str
    model: str
    version: str
    status: Literal["starting", "processing", "succeeded", "failed", "canceled"]
    source: Literal["web", "api"]
    input: dict[str, object]
    output: Output | None
    error: str | None
    metrics: Metrics | None
    created_at: Moment
    started_at: Moment | None
    completed_at: Moment | None
    urls: Urls


class Training(Listed):
    logs: str


class Page(ResponseBody):
    next: str | None
    previous: str | None
    results: list[Listed]


class Account(ResponseBody):
    type: Literal["user", "organization"]
    username: str
    name: str


class Version(ResponseBody):
    id: str
    created_at: Moment


class Model(ResponseBody):
    owner: str
    name: str
    url: str


class Error(BaseModel):
    model_config = ConfigDict(extra="ignore")

    detail: str


_CALLS: Calls = [
    (r"GET /v1/account", None, Account),
    (r"GET /v1/models/[^/]+/[^/]+", None, Model),
    (r"GET /v1/models/[^/]+/[^/]+/versions/[^/]+", None, Version),
    (r"POST /v1/models/[^/]+/[^/]+/versions/[^/]+/trainings", NewTraining, Training),
    (r"GET /v1/trainings", None, Page),
    (r"GET /v1/trainings/[^/]+", None, Training),
    (r"POST /v1/trainings/[^/]+/cancel", None, Training),
]


def replicate_misfits(exchange: Exchange) -> Iterator[str]:
    return misfits(_CALLS, Error, exchange)
