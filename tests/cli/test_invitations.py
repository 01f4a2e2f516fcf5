"""`bloom auth invitations` against a real server."""

import json
from functools import partial

import httpx2
import pytest

from tests.cli.conftest import Bloom
from tests.errors import printed
from tests.live_server import FIRST_PASSWORD, LiveServer

# Together, so that the server is started once.
pytestmark = pytest.mark.xdist_group("bloom auth invitations")


@pytest.fixture(scope="module")
def token(server: LiveServer) -> str:
    return server.first_token("read", "write", "admin")


@pytest.fixture
def bloom(bloom: Bloom) -> Bloom:
    return partial(bloom, "auth", "invitations")


@pytest.mark.long
def test_a_person_is_invited_listed_and_the_invitation_revoked(server: LiveServer, bloom: Bloom) -> None:
    assert "No invitation is open" in bloom("list").stdout
    # A token alone is not enough: it might have leaked.
    guessed = bloom("create", "eve@example.com", "--admin", BLOOM_PASSWORD="guess")
    assert printed(guessed.stderr) == ["wrong_credentials"]
    made = bloom("create", "Eve@example.com", "--admin", BLOOM_PASSWORD=FIRST_PASSWORD)
    assert made.exit_code == 0, made.stderr
    link = made.stdout.splitlines()[-1]
    assert link.startswith(f"{server.address}/auth#invite=")
    [item] = json.loads(bloom("list", "--json").stdout)
    assert (item["email"], item["role"]) == ("eve@example.com", "admin")
    listed = bloom("list").stdout
    assert "eve@example.com" in listed
    assert link.partition("=")[2] not in listed
    assert bloom("revoke", "eve@example.com").exit_code == 0
    again = bloom("revoke", "eve@example.com")
    assert again.exit_code == 2
    assert printed(again.stderr) == ["invitation_not_found"]
    joining = {
        "name": "Eve",
        "email": "eve@example.com",
        "password": FIRST_PASSWORD,
        "invitation": link.partition("=")[2],
    }
    assert httpx2.post(f"{server.address}/api/auth/sign-up", json=joining).status_code == 410
