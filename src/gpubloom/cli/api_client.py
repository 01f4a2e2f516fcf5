"""Calls the API of a GPU Bloom server. A failure ends the command with one sentence and exit code 1 or 2.

`call` and the functions for files use the stored API token. `signed_in` opens a session with the account's
password for actions that API tokens may not do, and closes it right after: a leaked token must not be able
to change whose account at a provider pays.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit
from uuid import uuid4

from gpubloom.cli.auth import Credentials, load_credentials
from gpubloom.cli.output import FAILED, WRONG_INPUT, fail, fail_each
from gpubloom.errors import UNKNOWN

# The HTTP client is imported where it is used, so that `bloom --help` does not wait for it.
if TYPE_CHECKING:
    import httpx2

TIMEOUT_SECONDS = 30


def _unreachable() -> tuple[type[Exception], ...]:
    import httpx2

    return httpx2.HTTPError, httpx2.InvalidURL, UnicodeError


def call(
    method: str,
    path: str,
    *,
    body: dict[str, Any] | None = None,
    query: dict[str, str | int] | None = None,
    credentials: Credentials | None = None,
) -> Any:
    """The decoded JSON of one API call, None for an empty response.

    A request whose response was lost is sent again; the Idempotency-Key keeps it from acting twice.
    """
    import httpx2

    credentials = credentials or load_credentials()
    headers = {**_headers(credentials), "Idempotency-Key": uuid4().hex}

    def send() -> httpx2.Response:
        address = f"{credentials.server}/api{path}"
        return httpx2.request(
            method, address, json=body, params=query, headers=headers, timeout=TIMEOUT_SECONDS
        )

    try:
        try:
            response = send()
        except (httpx2.ReadError, httpx2.RemoteProtocolError):
            response = send()
    except _unreachable() as error:
        _fail_unreachable(credentials, error)
    _refuse_errors(response)
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        fail("not_a_server", f"{credentials.server} is not a GPU Bloom server: the response is not JSON.")


def save_file(path: str, target: Path) -> None:
    """Download one file; it gets its final name when it is complete."""
    import httpx2

    credentials = load_credentials()
    partial = target.with_name(f"{target.name}.part")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with (
            httpx2.stream(
                "GET",
                f"{credentials.server}/api{path}",
                headers=_headers(credentials),
                timeout=TIMEOUT_SECONDS,
            ) as response,
            partial.open("wb") as file,
        ):
            if response.is_error:
                response.read()
            _refuse_errors(response)
            for piece in response.iter_bytes():
                file.write(piece)
        partial.replace(target)
    except _unreachable() as error:
        _fail_unreachable(credentials, error)
    except OSError as error:
        fail("cannot_write", f"Cannot write {target}: {error.strerror}.", status=WRONG_INPUT)


class PieceLost(Exception):
    """It is not known whether a part of an upload arrived: ask for the offset and continue there."""


def received_bytes(path: str) -> int:
    """How many bytes of an upload the server has."""
    import httpx2

    credentials = load_credentials()
    try:
        response = httpx2.head(
            f"{credentials.server}/api{path}", headers=_headers(credentials), timeout=TIMEOUT_SECONDS
        )
    except _unreachable() as error:
        _fail_unreachable(credentials, error)
    _refuse_errors(response)
    return int(response.headers["Upload-Offset"])


def send_piece(path: str, content: bytes, offset: int) -> int:
    """Send bytes at an offset; returns how many bytes the server then has."""
    import httpx2

    credentials = load_credentials()
    headers = {**_headers(credentials), "Upload-Offset": str(offset)}
    try:
        response = httpx2.patch(
            f"{credentials.server}/api{path}", content=content, headers=headers, timeout=10 * TIMEOUT_SECONDS
        )
    except _unreachable() as error:
        raise PieceLost(f"The connection to {credentials.server} was lost ({error}).") from error
    if response.status_code in {408, 409, 502, 503}:
        raise PieceLost(problems_of(response)[0][1])
    _refuse_errors(response)
    return int(response.headers["Upload-Offset"])


def token_of(credentials: Credentials) -> str:
    """The API token; without one, the command ends and says how to get it."""
    if not credentials.token:
        fail(
            "no_api_token",
            "No API token. Create one in the web app (bloom up) under Settings, then run: bloom auth login",
            status=WRONG_INPUT,
        )
    return credentials.token


def _headers(credentials: Credentials) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(credentials)}"}


def _refuse_errors(response: "httpx2.Response") -> None:
    if response.is_error:
        wrong = response.status_code in {400, 404, 409, 413, 422}
        fail_each(problems_of(response), status=WRONG_INPUT if wrong else FAILED)


def _fail_unreachable(credentials: Credentials, error: Exception) -> NoReturn:
    if isinstance(error, UnicodeError) or not _is_address(credentials.server):
        fail(
            "invalid_address",
            f"{credentials.server} is not the address of a server: it must start with http:// or https:// "
            "and name a host. Set BLOOM_SERVER, or run: bloom auth login --server ADDRESS",
            status=WRONG_INPUT,
        )
    fail(
        "unreachable",
        f"{credentials.server} does not answer ({error}). Check that the server is running. "
        "To use another server, run `bloom auth login --server ADDRESS` or set BLOOM_SERVER.",
    )


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        # ValueError: the port is none.
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def problems_of(response: "httpx2.Response") -> list[tuple[str, str]]:
    """The codes and messages of an error response, one pair for each invalid field."""
    try:
        problem = response.json()
        return [
            (item.get("code", UNKNOWN), f"{item['field']}: {item['message']}") for item in problem["errors"]
        ] or [(problem["code"], problem["detail"])]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [(UNKNOWN, f"The server returned status {response.status_code} without an error message.")]


Call = Callable[..., Any]


@contextmanager
def signed_in(password: Callable[[str], str], code: Callable[[], str]) -> Iterator[Call]:
    """Within it, the given function calls the API as the user who owns the stored token. `password` returns
    the password of an email address, `code` a code of the second factor."""
    import httpx2

    email = call("GET", "/me")["email"]
    server = load_credentials().server
    with httpx2.Client(base_url=f"{server}/api", timeout=TIMEOUT_SECONDS) as client:

        def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
            try:
                response = client.request(method, path, json=body)
            except httpx2.HTTPError as error:
                fail("unreachable", f"{server} does not answer ({error}). Check that the server is running.")
            if response.is_error:
                fail_each(problems_of(response), status=WRONG_INPUT if response.status_code < 500 else FAILED)
            return response.json() if response.content else None

        opened = ask("POST", "/auth/sign-in", {"email": email, "password": password(email)})
        if "second_factors" in opened:
            opened = ask("POST", "/auth/second-factor", {"code": code()})
        client.headers["X-CSRF-Token"] = opened["csrf_token"]
        try:
            yield ask
        finally:
            client.post("/auth/sign-out")
