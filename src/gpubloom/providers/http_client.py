"""A small JSON client for the HTTP APIs of cloud providers.

Every call has a time limit and keeps to the rate limit. Every failure becomes a Fault, raised outside of
the handler that caught it, so that it holds no request with its headers. Redirects are not followed: a key
goes to the host for which it was entered.
"""

import asyncio
import json
import math
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import TypeAdapter, ValidationError

import gpubloom
from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.clients import async_client
from gpubloom.providers.cloud import CloudProvider, Fault, FaultKind, remark_of, without_addresses
from gpubloom.providers.registry import ProviderSpec

TIMEOUT_SECONDS = 30.0
# A launch that is given up may still be carried out, so its answer is waited for longer.
_LAUNCH_FACTOR = 4
# The time limit is for each piece of an answer. A whole answer takes no longer than so many of them.
_WHOLE_FACTOR = 4
_LARGEST_ANSWER_BYTES = 64 << 20
# A service that says to come back later than this is asked sooner: its machines may be billed meanwhile.
_LONGEST_RETRY_AFTER = 3600.0
_EVENT_SECONDS = 1.5
_MOST_EVENTS = 5_000
_CLOCKS_AGREE_WITHIN = timedelta(seconds=5)
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}

Detected = TypeVar("Detected")

# What a service says about a failure: a kind where its own code tells more than the status, and its words.
Explain = Callable[[int, object], tuple[FaultKind | None, str]]


@dataclass
class RateLimit:
    """At least `every` seconds between calls and `launches_every` between launches of all that share it."""

    every: float
    launches_every: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _free_at: float = field(default=-math.inf, init=False)
    _launch_free_at: float = field(default=-math.inf, init=False)

    async def turn(self, *, launch: bool = False) -> None:
        while (wait := self._free_in(launch)) > 0:
            await self.sleep(wait)
        # Nothing is awaited since the last look, so nobody else has taken this turn.
        self._free_at = self.clock() + self.every
        if launch:
            self._launch_free_at = self.clock() + self.launches_every

    def _free_in(self, launch: bool) -> float:
        at = max(self._free_at, self._launch_free_at) if launch else self._free_at
        return at - self.clock()


_rate_limits: dict[tuple[str, int], RateLimit] = {}


def shared_rate_limit(address: str, key: str, every: float, launches_every: float) -> RateLimit:
    """The rate limit of an account: it holds for a key, however many connections use it. A fake service on
    this machine has no limits."""
    if urlsplit(address).hostname in _LOOPBACK:
        return RateLimit(0.0)
    return _rate_limits.setdefault((address, hash(key)), RateLimit(every, launches_every))


class ServiceHttp:
    """A connection to one service for one person. `key` is sent as a bearer token and shown nowhere."""

    def __init__(
        self,
        title: str,
        address: str,
        key: str,
        rate_limit: RateLimit,
        explain: Explain,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.title = title
        self.address = address
        self.rate_limit = rate_limit
        self._key = key
        self._explain = explain
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._ahead = timedelta()
        # The address comes from this program or from the operator; a member chooses none.
        self._client = async_client(
            Policy.of_operator(address),
            base_url=address.rstrip("/"),
            # Services behind Cloudflare refuse the names of common HTTP libraries.
            headers={
                "Authorization": f"Bearer {key}",
                "Accept": "application/json",
                "User-Agent": f"gpubloom/{gpubloom.__version__}",
            },
            timeout=timeout_seconds,
            follow_redirects=False,
        )

    def __repr__(self) -> str:
        return f"ServiceHttp({self.title})"

    async def close(self) -> None:
        await self._client.aclose()

    def by_our_clock(self, moment: datetime) -> datetime:
        """A moment that the service named, as our clock counts: the two may differ by hours.

        It is in UTC where it names no time zone.
        """
        known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        try:
            return known - self._ahead
        except OverflowError:
            # The first or last moment that a date can name: no clock says so.
            return known

    async def read(
        self, method: str, path: str, answer: type[Detected], *, query: Mapping[str, str | int] | None = None
    ) -> Detected:
        """A call whose answer has a known form."""
        return self.understood(answer, await self.call(method, path, query=query))

    def understood(self, answer: type[Detected], found: object) -> Detected:
        try:
            return TypeAdapter(answer).validate_python(found)
        except ValidationError as problem:
            field_path = ".".join(str(part) for part in problem.errors(include_input=False)[0]["loc"])
        raise Fault(
            "unavailable",
            f"{self.title} sent a response in an unknown format (at {field_path or 'the top level'}).",
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
        launch: bool = False,
        hide: Sequence[str] = (),
    ) -> object:
        """The decoded answer, None where it is empty. `hide`: further secrets that the request holds."""
        await self.rate_limit.turn(launch=launch)
        repeatable = method != "POST"
        seconds = self._timeout_seconds * (_LAUNCH_FACTOR if launch else 1)
        try:
            async with (
                asyncio.timeout(seconds * _WHOLE_FACTOR),
                self._client.stream(method, path, json=body, params=query, timeout=seconds) as response,
            ):
                content = await _read(response)
        except EgressRefused as refused:
            fault = Fault("refused", f"{self.title} cannot be called: {refused}")
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            fault = Fault("unavailable", f"{self.title} cannot be reached from this server.")
        except (httpx2.TimeoutException, TimeoutError):
            sentence = f"{self.title} did not answer within {seconds:g} seconds."
            fault = Fault("timed_out", sentence, uncertain=not repeatable)
        except httpx2.HTTPError:
            sentence = f"The connection to {self.title} broke before the response arrived."
            fault = Fault("unavailable", sentence, uncertain=not repeatable)
        else:
            return self._answer(response, content, (self._key, *hide), repeatable, launch=launch)
        raise fault

    async def events(
        self, path: str, *, query: Mapping[str, str | int] | None = None
    ) -> list[dict[str, Any]]:
        """What a stream of server-sent events holds so far. Such a stream stays open: it is read until
        nothing new has come for `_EVENT_SECONDS`."""
        await self.rate_limit.turn()
        found: list[dict[str, Any]] = []
        headers = {"Accept": "text/event-stream"}
        timeout = httpx2.Timeout(self._timeout_seconds, read=_EVENT_SECONDS)
        fault: Fault | None = None
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._client.stream("GET", path, params=query, headers=headers, timeout=timeout) as response,
            ):
                if not response.is_success:
                    self._answer(response, await _read(response), (self._key,), repeatable=True)
                async for line in response.aiter_lines():
                    if line.startswith("data:") and len(found) < _MOST_EVENTS:
                        with suppress(ValueError):
                            event = json.loads(line.removeprefix("data:"))
                            found += [event] if isinstance(event, dict) else []
        except (httpx2.ReadTimeout, TimeoutError):
            return found
        except httpx2.HTTPError:
            fault = Fault("unavailable", f"{self.title} cannot be reached from this server.")
        if fault is not None:
            raise fault
        return found

    def _answer(
        self,
        response: httpx2.Response,
        content: bytes | None,
        secrets: Sequence[str],
        repeatable: bool,
        *,
        launch: bool = False,
    ) -> object:
        """`content`: None for one that is too long."""
        self._compare_clocks(response)
        found: object = None
        readable = content is not None
        if content:
            try:
                found = json.loads(content)
            except (ValueError, RecursionError):
                readable = False
        # A firewall before the service says 403 in words of its own: the service never saw the key.
        if not response.is_success and (readable or response.status_code != HTTPStatus.FORBIDDEN):
            raise self._fault(response, found, secrets, repeatable, launch)
        if not readable:
            sentence = (
                f"{self.title} sent a response that is not JSON (HTTP {response.status_code}). Check whether "
                f"a proxy between this server and {self.title} changes responses."
            )
            raise Fault("unavailable", sentence, uncertain=response.is_success and not repeatable)
        return found

    def _compare_clocks(self, response: httpx2.Response) -> None:
        moment = _http_date(response.headers.get("date"))
        # The header knows whole seconds and the answer took some time: less says nothing about a clock.
        if moment is not None and abs(moment - self._now() - self._ahead) > _CLOCKS_AGREE_WITHIN:
            self._ahead = moment - self._now()

    def _fault(
        self,
        response: httpx2.Response,
        found: object,
        secrets: Sequence[str],
        repeatable: bool,
        launch: bool,
    ) -> Fault:
        status = response.status_code
        kind, remark = self._explain(status, found)
        if kind is None and launch and status == HTTPStatus.FORBIDDEN:
            # The service has just accepted the key for a look: it may not start this machine.
            kind = "refused"
        kind = kind or _kind_of(status)
        remark = without_addresses(remark_of(remark, secrets)).rstrip(".") or f"HTTP {status}"
        return Fault(
            kind,
            _sentence(self.title, kind, remark),
            retry_after_seconds=self._retry_after(response),
            uncertain=status >= 500 and not repeatable,
        )

    def _retry_after(self, response: httpx2.Response) -> float | None:
        value = response.headers.get("retry-after")
        if value is None:
            return None
        if re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
            return min(float(value), _LONGEST_RETRY_AFTER)
        moment = _http_date(value)
        if moment is None:
            return None
        seconds = (self.by_our_clock(moment) - self._now()).total_seconds()
        return min(max(0.0, seconds), _LONGEST_RETRY_AFTER)


@dataclass(frozen=True)
class HttpProviderSpec(ProviderSpec):
    """A provider with an HTTP API that takes a key. BLOOM_<NAME>_URL selects another address.

    `connect` makes the provider from a connection and the credentials of a person.
    """

    address: str
    explain: Explain
    calls_every: float
    launches_every: float
    connect: Callable[[ServiceHttp, Mapping[str, str]], CloudProvider]

    def open(self, credentials: Mapping[str, str]) -> CloudProvider:
        given = {name: value.strip() for name, value in credentials.items()}
        if not (key := given.get("api_key")):
            key_title = next(field.title for field in self.fields if field.name == "api_key")
            raise Fault("bad_credentials", f"{self.title} needs an {key_title}. Enter it under Providers.")
        address = os.environ.get(f"BLOOM_{self.name.upper()}_URL") or self.address
        rate_limit = shared_rate_limit(address, key, self.calls_every, self.launches_every)
        return self.connect(ServiceHttp(self.title, address, key, rate_limit, self.explain), given)


async def _read(response: httpx2.Response) -> bytes | None:
    """The whole answer; None when it is longer than any answer of a service."""
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > _LARGEST_ANSWER_BYTES:
            return None
    return bytes(content)


def _http_date(value: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value) if value else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _kind_of(status: int) -> FaultKind:
    kinds: dict[int, FaultKind] = {
        401: "bad_credentials",
        402: "inactive_account",
        403: "bad_credentials",
        404: "gone",
        408: "timed_out",
        410: "gone",
        429: "rate_limited",
    }
    return kinds.get(status, "unavailable" if status >= 500 else "refused")


def _sentence(title: str, kind: FaultKind, remark: str) -> str:
    match kind:
        case "bad_credentials":
            return (
                f"{title} does not accept the credentials: {remark}. Enter valid credentials under Providers."
            )
        case "inactive_account":
            return (
                f"Your account at {title} cannot rent machines now: {remark}. Complete its payment details "
                f"or add credit at {title}, then resume the job."
            )
        case "no_capacity":
            return f"{title} has no free machine of this type: {remark}. Wait, or choose another offer."
        case "quota":
            return f"A limit of your account at {title} is reached: {remark}. Ask {title} to raise the limit."
        case "rate_limited":
            return f"Too many requests to {title}: {remark}. The request is retried later."
        case "unavailable" | "timed_out":
            return f"{title} is not available at the moment: {remark}."
        case "gone":
            return f"{title} does not have the requested resource: {remark}."
        case "refused":
            return f"{title} refused the request: {remark}."
