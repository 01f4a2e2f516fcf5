"""A session for what API tokens may not do: opened with the account's password, closed right after.

A token that leaked must not be able to change whose money is spent, so the server asks for a person here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from gpubloom.cli.api_client import TIMEOUT_SECONDS, call, detail_of, fail
from gpubloom.cli.credentials import load_credentials

Call = Callable[..., Any]


@contextmanager
def signed_in(password: Callable[[str], str]) -> Iterator[Call]:
    """Within it, the given function calls the API as the person whose token is stored; `password` asks for
    theirs, given their email address."""
    email = call("GET", "/me")["email"]
    server = load_credentials().server
    with httpx2.Client(base_url=f"{server}/api", timeout=TIMEOUT_SECONDS) as client:

        def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
            try:
                response = client.request(method, path, json=body)
            except httpx2.HTTPError as error:
                fail(f"{server} does not answer ({error}).")
            if response.is_error:
                fail(detail_of(response), code=2 if response.status_code < 500 else 1)
            return response.json() if response.content else None

        opened = ask("POST", "/auth/sign-in", {"email": email, "password": password(email)})
        client.headers["X-CSRF-Token"] = opened["csrfToken"]
        try:
            yield ask
        finally:
            client.post("/auth/sign-out")
