"""A chat completion from an OpenAI-compatible endpoint, or from a playground of this server.

What can heal (a full queue, a lost connection) is EndpointUnavailable and tried again by the caller; what is
about one passage is PassageRefused; everything else is EndpointFailed, with a sentence for the owner. An
answer is a stranger's: its size is bounded and its JSON is read as such.
"""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

import httpx2

from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.clients import UNPACKED, AnswerRefused, async_client, read_bounded
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.playground.proxy import NotReady, complete, new_client
from gpubloom.server.playground.service import ready_endpoint
from gpubloom.server.problems import Conflict, NotFound, Problem, TooManyRequests
from gpubloom.server.settings import Settings
from gpubloom.traincard.untrusted_json import UntrustedJsonError, parse_untrusted

_MOST_BYTES = 2 << 20
# A long answer of a slow model, not of a dead one.
_TIMEOUT = httpx2.Timeout(connect=15, read=300, write=30, pool=30)
# Of a whole answer: one that comes byte by byte would hold its place for ever.
_MOST_SECONDS = 600.0
# A model that waits for a device, and is then loaded.
_LOADING_SECONDS = 120.0
_HEALS = {408, 409, 425, 429}
_ABOUT_THE_PASSAGE = {400, 413, 422}
_LONGEST_REASON = 300
_TEMPERATURE = 0.3


class EndpointFailed(Exception):
    """The endpoint will not answer the next passage either."""


class EndpointUnavailable(Exception):
    """The endpoint may answer later; `retry_after` seconds, if it said so."""

    def __init__(self, sentence: str, retry_after: float = 0.0) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class PassageRefused(Exception):
    """The endpoint does not take this passage, for instance because it is too long."""


@dataclass(frozen=True)
class Reply:
    """What the model wrote. `tokens`: all that were used, if the endpoint counts them."""

    text: str
    tokens: int | None
    is_cut: bool


class ModelClient(ABC):
    """Asks one model."""

    # Requests at the same time.
    at_once: int

    @abstractmethod
    async def ask(self, messages: list[dict[str, str]], max_tokens: int) -> Reply: ...

    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class RemoteClient(ModelClient):
    """An endpoint that the owner chose. Every connection obeys the egress policy; redirects are refused."""

    at_once = 4

    def __init__(self, endpoint: str, model: str, key: str | None) -> None:
        self._address = f"{endpoint}/chat/completions"
        self._host = httpx2.URL(endpoint).host
        self._model = model
        headers = UNPACKED if key is None else {**UNPACKED, "Authorization": f"Bearer {key}"}
        self._client = async_client(Policy.of_operator(), timeout=_TIMEOUT, headers=headers)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def ask(self, messages: list[dict[str, str]], max_tokens: int) -> Reply:
        body = _body(self._model, messages, max_tokens)
        try:
            async with (
                asyncio.timeout(_MOST_SECONDS),
                self._client.stream("POST", self._address, json=body) as answer,
            ):
                content = await read_bounded(answer, _MOST_BYTES)
        except EgressRefused as problem:
            raise EndpointFailed(str(problem)) from problem
        except AnswerRefused as problem:
            raise EndpointFailed(f"{self._host} does not answer as it should. {problem}") from problem
        except (httpx2.HTTPError, TimeoutError) as problem:
            raise EndpointUnavailable(
                f"{self._host} does not answer ({type(problem).__name__})."
            ) from problem
        if answer.status_code == 200:
            return _read(content)
        sentence = f"{self._host} answered with status {answer.status_code}. {_reason(content)}".strip()
        if answer.status_code in _HEALS or answer.status_code >= 500:
            raise EndpointUnavailable(sentence, _seconds(answer.headers.get("retry-after")))
        if answer.status_code in _ABOUT_THE_PASSAGE:
            raise PassageRefused(sentence)
        raise EndpointFailed(sentence)


class PlaygroundClient(ModelClient):
    """A model that is loaded on this server. It answers one request at a time."""

    at_once = 1

    def __init__(self, database: Database, settings: Settings, job_id: UUID, which: str | None) -> None:
        self._database = database
        self._settings = settings
        self._job_id = job_id
        self._which = which
        self._client = new_client()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def ask(self, messages: list[dict[str, str]], max_tokens: int) -> Reply:
        run_dir = run_directory(self._settings, self._job_id)
        try:
            endpoint = await ready_endpoint(
                self._database, self._settings, self._job_id, wait_seconds=_LOADING_SECONDS
            )
            body = _body(endpoint.model_named(self._which), messages, max_tokens)
            content = await complete(self._client, endpoint, body, run_dir, most_bytes=_MOST_BYTES)
        except (NotReady, TooManyRequests) as problem:
            raise EndpointUnavailable(str(problem)) from problem
        except (Conflict, NotFound) as problem:
            raise EndpointFailed(str(problem)) from problem
        except Problem as problem:
            raise PassageRefused(str(problem)) from problem
        return _read(content)


def _body(model: str, messages: list[dict[str, str]], max_tokens: int) -> dict[str, Any]:
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": _TEMPERATURE}


def _read(content: bytes) -> Reply:
    try:
        said = parse_untrusted(content, most_bytes=_MOST_BYTES)
        choice = said["choices"][0]
        text = choice["message"]["content"]
    except (UntrustedJsonError, KeyError, TypeError, IndexError):
        raise EndpointFailed(
            "The endpoint does not answer like an OpenAI-compatible API. Check the address: it usually ends "
            "in /v1."
        ) from None
    usage = said.get("usage")
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    counted = tokens if isinstance(tokens, int) and 0 <= tokens < 1 << 40 else None
    return Reply(text if isinstance(text, str) else "", counted, choice.get("finish_reason") == "length")


def _reason(content: bytes) -> str:
    try:
        error = parse_untrusted(content, most_bytes=_MOST_BYTES)["error"]
        said = str(error["message"] if isinstance(error, dict) else error)
    except (UntrustedJsonError, KeyError, TypeError):
        return ""
    return "".join(one if one.isprintable() else " " for one in said[:_LONGEST_REASON]).strip()


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0
