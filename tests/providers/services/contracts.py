"""Contracts with services in our own words: always here, also where no published description is.

Requests may hold nothing but what is named; answers hold at least that.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tests.providers.services.web import Exchange

# Method and path, what is sent (None: nothing), what is said.
Calls = Sequence[tuple[str, Any, Any]]


class Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ResponseBody(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


def misfits(contract: Calls, error: Any, exchange: Exchange) -> Iterator[str]:
    request, reply = exchange.request, exchange.reply
    call = f"{request.method} {request.path}"
    parts = next((rest for pattern, *rest in contract if re.fullmatch(pattern, call)), None)
    if parts is None:
        yield f"{call} is no call of the contract"
        return
    sent, said = parts
    if sent is None:
        if request.body is not None:
            yield "the request has a body"
    else:
        yield from _problems("the request", sent, request.body)
    yield from _problems("the answer", said if reply.status < 400 else error, reply.body)


def _problems(what: str, form: Any, content: object) -> Iterator[str]:
    try:
        TypeAdapter(form).validate_python(content)
    except ValidationError as problem:
        yield f"{what}: {problem}"
