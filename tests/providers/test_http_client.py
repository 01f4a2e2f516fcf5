"""The HTTP client of cloud providers: faults in our terms, rate limits, and no secret in any of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from gpubloom.providers import http_client
from gpubloom.providers.cloud import Fault, FaultKind, Launch
from gpubloom.providers.http_client import RateLimit, ServiceHttp, shared_rate_limit
from gpubloom.providers.registry import provider_spec
from tests.errors import raises
from tests.providers.launches import launch
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.paperspace_service import PaperspaceService
from tests.providers.services.replicate_service import ReplicateService
from tests.providers.services.runpod_service import RunPodService
from tests.providers.services.web import Exchange, Reply, Request, Trouble, WebService

KEY = "a-Hidden-Key"


class Plain(WebService):
    """Answers what it is told to."""

    api_key = KEY
    launch_call = "POST /launch"
    reply = Reply(200, {})

    def answer(self, request: Request) -> Reply:
        return self.reply

    def failure(self, trouble: Trouble, request: Request) -> Reply:
        return Reply(500, {})

    def check(self, exchange: Exchange) -> Iterator[str]:
        return iter(())


@pytest.fixture
def service() -> Iterator[Plain]:
    with Plain() as service:
        yield service


def explain(status: int, found: object) -> tuple[FaultKind | None, str]:
    return None, str(found)


@asynccontextmanager
async def opened(address: str, **options: object) -> AsyncIterator[ServiceHttp]:
    http = ServiceHttp("The service", address, KEY, RateLimit(0.0), explain, **options)  # type: ignore[arg-type]
    try:
        yield http
    finally:
        await http.close()


async def fault_of(address: str, method: str = "GET", **options: object) -> Fault:
    async with opened(address, **options) as http:
        with pytest.raises(Fault) as raised:
            await http.call(method, "/launch")
    return raised.value


@pytest.mark.parametrize(
    ("status", "kind", "passes"),
    [
        (302, "refused", False),
        (400, "refused", False),
        (401, "bad_credentials", False),
        (402, "inactive_account", False),
        (403, "bad_credentials", False),
        (404, "gone", False),
        (408, "timed_out", True),
        (410, "gone", False),
        (429, "rate_limited", True),
        (500, "unavailable", True),
        (504, "unavailable", True),
    ],
)
def test_a_status_becomes_a_fault_that_says_whether_waiting_helps(
    service: Plain, status: int, kind: FaultKind, passes: bool
) -> None:
    service.reply = Reply(status, {"hint": "something"}, (("Location", "http://127.0.0.1:1/elsewhere"),))
    fault = asyncio.run(fault_of(service.url))
    assert (fault.kind, fault.passes, fault.uncertain) == (kind, passes, False)
    assert "The service" in str(fault)
    assert str(fault).endswith(".")


def test_what_was_sent_is_quoted_without_keys_and_addresses(service: Plain) -> None:
    service.reply = Reply(400, {"you": f"sent {KEY} and https://bucket/start?signature=abc to us"})
    sentence = str(asyncio.run(fault_of(service.url)))
    assert KEY not in sentence
    assert "signature" not in sentence
    assert "(an address)" in sentence


def test_a_service_says_when_to_come_back_in_seconds_or_as_a_date(service: Plain) -> None:
    service.reply = Reply(429, {}, (("Retry-After", "30"),))
    assert asyncio.run(fault_of(service.url)).retry_after_seconds == 30
    # The service's clock is an hour ahead; its date still means two minutes from now.
    service.clock_ahead_seconds = 3600
    moment = datetime.fromtimestamp(service.now() + 120, UTC)
    service.reply = Reply(429, {}, (("Retry-After", format_datetime(moment, usegmt=True)),))
    after = asyncio.run(fault_of(service.url)).retry_after_seconds
    assert after is not None
    assert 100 < after < 140


def test_an_answer_that_is_no_json_is_not_believed(service: Plain) -> None:
    service.reply = Reply(200, b"<html>Log in to the hotel's network</html>")
    fault = asyncio.run(fault_of(service.url))
    assert fault.kind == "unavailable"
    assert "proxy" in str(fault)


@pytest.mark.parametrize("body", [b"[" * 200_000, b"9" * 5_000, b'{"a": "' + b"x" * 2_000 + b'"}'])
def test_an_answer_that_no_service_sends_is_a_fault(
    service: Plain, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_LARGEST_ANSWER_BYTES", 1_000 if body.endswith(b"}") else 1 << 20)
    service.reply = Reply(200, body)
    fault = asyncio.run(fault_of(service.url, "POST"))
    assert (fault.kind, fault.uncertain) == ("unavailable", True)


def test_an_answer_that_comes_byte_by_byte_is_given_up() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)

    async def asked() -> Fault:
        async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await fault_of(f"http://127.0.0.1:{port}", "POST", timeout_seconds=0.2)

    fault = asyncio.run(asked())
    assert (fault.kind, fault.uncertain) == ("timed_out", True)


def test_a_firewall_before_the_service_says_nothing_about_the_key(service: Plain) -> None:
    service.reply = Reply(403, b"<html>Sorry, you have been blocked</html>", content_type="text/html")
    fault = asyncio.run(fault_of(service.url, "POST"))
    assert (fault.kind, fault.uncertain) == ("unavailable", False)
    assert "HTTP 403" in str(fault)


@pytest.mark.parametrize(
    "value", ["999999999", "9" * 400, "\N{SUPERSCRIPT TWO}", "Fri, 31 Dec 9999 00:00:00 GMT"]
)
def test_a_service_cannot_make_us_wait_for_ever(service: Plain, value: str) -> None:
    service.reply = Reply(429, {}, (("Retry-After", value),))
    after = asyncio.run(fault_of(service.url)).retry_after_seconds
    assert after is None or after <= 3600


def test_the_answer_to_a_launch_is_waited_for_longer(service: Plain) -> None:
    service.fail_next("hang", calls="/launch")

    async def seconds() -> str:
        async with opened(service.url, timeout_seconds=0.1) as http:
            with pytest.raises(Fault) as raised:
                await http.call("POST", "/launch", launch=True)
        return str(raised.value)

    assert "within 0.4 seconds" in asyncio.run(seconds())


def test_an_answer_of_another_form_is_a_fault_that_names_the_place(service: Plain) -> None:
    service.reply = Reply(200, {"items": [{"count": "none"}]})

    async def read() -> None:
        async with opened(service.url) as http:
            await http.read("GET", "/launch", dict[str, list[dict[str, int]]])

    with raises(Fault, code="unavailable", match=r"items\.0\.count"):
        asyncio.run(read())


@pytest.mark.parametrize("trouble", ["cut", "hang"])
@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_an_answer_that_never_comes_is_uncertain_only_for_what_must_not_be_repeated(
    service: Plain, trouble: Trouble, method: str
) -> None:
    service.fail_next(trouble, calls="/launch")
    fault = asyncio.run(fault_of(service.url, method, timeout_seconds=0.5))
    assert fault.uncertain == (method == "POST")
    assert fault.kind == ("timed_out" if trouble == "hang" else "unavailable")


def test_a_service_that_is_not_there_did_nothing(service: Plain) -> None:
    fault = asyncio.run(fault_of("http://127.0.0.1:1", "POST"))
    assert (fault.kind, fault.uncertain) == ("unavailable", False)


def test_times_of_a_service_whose_clock_is_wrong_are_told_by_ours(service: Plain) -> None:
    service.clock_ahead_seconds = 3600

    async def difference(zone: timezone | None) -> timedelta:
        async with opened(service.url) as http:
            await http.call("GET", "/launch")
            said = datetime.fromtimestamp(service.now(), UTC).replace(tzinfo=zone)
            return http.by_our_clock(said) - datetime.now(UTC)

    # A moment without a time zone is in UTC.
    for zone in (UTC, None):
        assert abs(asyncio.run(difference(zone))) < timedelta(seconds=6)


class Timeline:
    """A clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def test_calls_keep_their_distance_and_launches_a_greater_one() -> None:
    time = Timeline()
    rate_limit = RateLimit(1.0, 12.0, time.clock, time.sleep)

    async def calls() -> list[float]:
        moments = []
        for is_launch in (False, False, True, False, True):
            await rate_limit.turn(launch=is_launch)
            moments.append(time.now)
        return moments

    assert asyncio.run(calls()) == [0, 1, 2, 3, 14]


def test_an_account_has_one_pace_however_often_it_is_opened() -> None:
    one = shared_rate_limit("https://service.test", "a", 1.0, 12.0)
    assert one is shared_rate_limit("https://service.test", "a", 1.0, 12.0)
    assert one is not shared_rate_limit("https://service.test", "b", 1.0, 12.0)
    assert (one.every, one.launches_every) == (1.0, 12.0)
    assert shared_rate_limit("http://127.0.0.1:8000", "a", 1.0, 12.0).every == 0


def test_the_client_shows_its_key_to_nobody(service: Plain) -> None:
    async def shown() -> str:
        async with opened(service.url) as http:
            return repr(http)

    assert KEY not in asyncio.run(shown())


@dataclass(frozen=True)
class _Known:
    name: str
    service: WebService
    launch: Launch


@pytest.fixture(params=["lambda", "runpod", "paperspace", "replicate"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Known]:
    """Machines take long to boot: no test here needs one that runs."""
    kind, gpu = {
        "lambda": (LambdaService, "A10"),
        "runpod": (RunPodService, "RTX 4090"),
        "paperspace": (PaperspaceService, "RTX A4000"),
        "replicate": (ReplicateService, "L40S"),
    }[request.param]
    with kind(boot_seconds=3600) as service:
        monkeypatch.setenv(service.address_variable, service.url)
        yield _Known(request.param, service, launch(gpu=gpu))


@pytest.mark.parametrize(
    ("trouble", "kind", "passes"),
    [
        ("quota", "quota", False),
        ("bad_credentials", "bad_credentials", False),
        ("rate_limited", "rate_limited", True),
        ("unavailable", "unavailable", True),
        ("refused", "refused", False),
    ],
)
def test_a_launch_fails_by_its_name_and_leaves_nothing(
    known: _Known, trouble: Trouble, kind: FaultKind, passes: bool
) -> None:
    async def submit() -> None:
        rented = provider_spec(known.name).open(known.service.credentials)
        rented._pause_seconds = 0.01  # type: ignore[attr-defined]
        try:
            await rented.submit(known.launch)
        finally:
            await rented.close()

    known.service.fail_next(trouble, calls=known.service.launch_call)
    with pytest.raises(Fault) as raised:
        asyncio.run(submit())
    fault = raised.value
    if trouble == "quota" and known.name in {"runpod", "replicate"}:
        # They say that the balance is used up.
        kind = "inactive_account"
    assert (fault.kind, fault.passes) == (kind, passes)
    assert fault.retry_after_seconds == (7 if trouble == "rate_limited" else None)
    # A service may quote what it was sent.
    assert "Hidden" not in str(fault)
    assert known.service.instances == {}


def test_credentials_that_are_revoked_meanwhile_are_told(known: _Known) -> None:
    async def story() -> None:
        rented = provider_spec(known.name).open(known.service.credentials)
        identifier = (await rented.submit(known.launch)).id
        known.service.revoke()
        for ask in (rented.status(identifier), rented.list(), rented.cancel(identifier), rented.check()):
            with raises(Fault, code="bad_credentials") as raised:
                await ask
            assert raised.value.kind == "bad_credentials"
        await rented.close()

    asyncio.run(story())
