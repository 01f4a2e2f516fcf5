"""`bloom` for people with a second factor, against a real server: signing in with a code, and losing it."""

import json
from pathlib import Path

import httpx2
import pyotp
import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner, Result

from gpubloom.cli.app import app
from tests.errors import printed
from tests.live_server import LiveServer

PASSWORD = "correct horse battery"
ADA = {"email": "ada@example.com", "password": PASSWORD}


def bloom(*arguments: str, typed: str = "", **environment: str) -> Result:
    return CliRunner().invoke(app, list(arguments), input=typed, env=environment)


@pytest.mark.long
def test_a_second_factor_is_asked_for_and_can_be_reset(server: LiveServer, tmp_path: Path) -> None:
    with httpx2.Client(base_url=f"{server.address}/api") as client:
        secret = server.setup_link.partition("token=")[2]
        opened = client.post("/auth/setup", json={"token": secret, "name": "Ada", **ADA}).json()
        client.headers["X-CSRF-Token"] = opened["csrf_token"]
        made = client.post("/me/tokens", json={"name": "cli", "scopes": ["read", "write"]}).json()
        totp = pyotp.TOTP(client.post("/me/totp").json()["secret"])
        [paper, *_] = client.post("/me/totp/enable", json={"code": totp.now()}).json()["recovery_codes"]

        there = {"BLOOM_SERVER": server.address, "BLOOM_TOKEN": made["token"]}
        file = tmp_path / "credentials.json"
        file.write_text(json.dumps({"no_such_field": "x"}))
        connect = ("providers", "connect", "modal", "--file", str(file))
        refused = bloom(*connect, typed=f"{PASSWORD}\n000000\n", **there)
        assert "wrong_code" in printed(refused.output)
        # Signed in: what is refused now are the credentials.
        accepted = bloom(*connect, typed=f"{PASSWORD}\n{paper}\n", **there)
        assert accepted.exit_code == 2
        assert "wrong_code" not in printed(accepted.output)
        assert "wrong_credentials" not in printed(accepted.output)

        home = {"BLOOM_HOME": str(server.home)}
        unknown = bloom("server", "reset-factors", "nobody@example.com", "--yes", **home)
        assert (unknown.exit_code, "account_not_found" in printed(unknown.output)) == (2, True)
        declined = bloom("server", "reset-factors", ADA["email"], typed="n\n", **home)
        assert declined.exit_code == 1
        assert "second_factors" in client.post("/auth/sign-in", json=ADA).json()
        reset = bloom("server", "reset-factors", "Ada@example.com", "--yes", **home)
        assert reset.exit_code == 0, printed(reset.output)
        assert client.get("/me").status_code == 401, "every browser is signed out"
        assert client.post("/auth/sign-in", json=ADA).json()["user"]["email"] == ADA["email"]
    engine = create_engine(f"sqlite:///{server.home / 'bloom.db'}")
    with engine.connect() as connection:
        actions = set(connection.execute(text("SELECT action FROM audit_events")).scalars())
    engine.dispose()
    assert "user.factors_reset" in actions
    assert any("second factors" in path.read_text() for path in server.sent_emails)
