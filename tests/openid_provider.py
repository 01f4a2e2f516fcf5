"""An OpenID provider as a process of its own, on the loopback address."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.ports import free_port
from tests.waiting import wait_until


@contextmanager
def openid_provider(*people: dict[str, Any], require_nonce: bool = False) -> Iterator[str]:
    """The issuer's address. `people` are the claims of whoever has an account there."""
    port = free_port()
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)]
    if require_nonce:
        command += ["--require-nonce", "true"]
    for person in people:
        command += ["--user-claims", json.dumps(person)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(f"{address}/.well-known/openid-configuration"), "the OpenID provider")
        yield address
    finally:
        process.terminate()
        process.wait()


def _answers(address: str) -> bool:
    try:
        return httpx2.get(address).status_code == 200
    except httpx2.HTTPError:
        return False
