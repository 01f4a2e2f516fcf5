"""Published descriptions of services, where this checkout has them beside it; nothing of them is kept here.

`BLOOM_SPECS` names the folder; without it, `shared/specs` beside the checkout.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from openapi_core import Config, OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse

from tests.providers.services.web import Exchange

_DEFAULT_FOLDER = Path(__file__).parents[4] / "shared" / "specs"


def specs_folder() -> Path:
    return Path(os.environ.get("BLOOM_SPECS") or _DEFAULT_FOLDER)


@cache
def published(name: str) -> OpenAPI | None:
    """None: it is not here."""
    path = specs_folder() / name
    if not path.is_file():
        return None
    read = json.loads if path.suffix == ".json" else yaml.safe_load
    found = read(path.read_text())
    for operations in found["paths"].values():
        # A method that the format does not have yet; nobody here calls it.
        operations.pop("query", None)
    readers: dict[str, Callable[[bytes], Any]] = {
        "application/problem+json": json.loads,
        "text/event-stream": bytes.decode,
    }
    return OpenAPI.from_dict(found, config=Config(extra_media_type_deserializers=readers))


def misfits(spec: OpenAPI, host: str, exchange: Exchange) -> Iterator[str]:
    """What of an exchange the published description does not allow. Answers that a proxy in between gives,
    such as "too many requests", are in none of them."""
    request = MockRequest(
        host,
        exchange.request.method,
        exchange.request.path,
        args=exchange.request.query,
        headers=exchange.request.headers,
        data=json.dumps(exchange.request.body).encode() if exchange.request.body is not None else None,
    )
    try:
        spec.validate_request(request)
    except OpenAPIError as problem:
        yield f"the request does not fit the published description: {_reason(problem)}"
    if exchange.reply.status == 429 or exchange.reply.status >= 500:
        return
    try:
        spec.validate_response(
            request,
            MockResponse(
                exchange.reply.content, exchange.reply.status, content_type=exchange.reply.content_type
            ),
        )
    except OpenAPIError as problem:
        yield f"the answer does not fit the published description: {_reason(problem)}"


def _reason(problem: BaseException) -> str:
    return f"{problem} {problem.__cause__ or ''}".strip()
