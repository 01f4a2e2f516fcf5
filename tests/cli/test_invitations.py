"""`bloom auth invitations` against a real server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner, Result

from gpubloom.cli.app import app
from tests.errors import printed
from tests.live_server import LiveServer, live_server

Bloom = Callable[..., Result]
PASSWORD = "correct horse battery"

# Together, so that the server is started once.
pytestmark = pytest.mark.xdist_group("bloom auth invitations")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def token(server: LiveServer) -> str:
    with httpx2.Client(base_url=server.address) as client:
        account = {"name": "Grace", "email": "grace@example.com", "password": PASSWORD}
        secret = server.setup_link.partition("token=")[2]
        csrf = client.post("/api/auth/setup", json={"token": secret, **account}).json()["csrf_token"]
        created = client.post(
            "/api/me/tokens",
            json={"name": "cli", "scopes": ["read", "write", "admin"]},
            headers={"X-CSRF-Token": csrf},
        )
        return str(created.json()["token"])


@pytest.fixture
def bloom(server: LiveServer, token: str, tmp_path: Path) -> Bloom:
    def run(*arguments: str, **environment: str) -> Result:
        told = {
            "BLOOM_SERVER": server.address,
            "BLOOM_TOKEN": token,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        return CliRunner().invoke(app, ["auth", "invitations", *arguments], env={**told, **environment})

    return run


def test_a_person_is_invited_listed_and_the_invitation_revoked(server: LiveServer, bloom: Bloom) -> None:
    assert "No invitation is open" in bloom("list").stdout
    # A token alone is not enough: it might have leaked.
    guessed = bloom("create", "eve@example.com", "--admin", BLOOM_PASSWORD="guess")
    assert printed(guessed.stderr) == ["wrong_credentials"]
    made = bloom("create", "Eve@example.com", "--admin", BLOOM_PASSWORD=PASSWORD)
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
        "password": PASSWORD,
        "invitation": link.partition("=")[2],
    }
    assert httpx2.post(f"{server.address}/api/auth/sign-up", json=joining).status_code == 410
