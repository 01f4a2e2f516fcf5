"""The log: one event is one line, whatever a request has sent."""

import json
from typing import Literal

import pytest
import structlog

from gpubloom.server.accounts.tables import User
from gpubloom.server.logs import configure_logs
from tests.server.bringing import on_sqlite
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_project

HOSTILE = ["/a\n2026-01-01 [info] signed in", "/a\x1b[2J", "/a\rb", "/\u2028", "/\x00", "/\x9b2J"]


@pytest.mark.parametrize("sent", HOSTILE)
@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_request_sent_stays_in_its_line(
    form: Literal["text", "json"], sent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(form)
    structlog.get_logger("bloom").info("request failed", path=sent)
    configure_logs("text")
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 1
    assert written.rstrip("\n").isprintable()
    if form == "json":
        assert json.loads(written)["path"] == sent


@on_sqlite
def test_refused_access_is_logged_with_who_asked_for_what(
    server: Server, installation: Installation, member: User, capsys: pytest.CaptureFixture[str]
) -> None:
    eve = installation.add_user("Eve")
    address = f"/api/projects/{add_project(installation, member).id}"
    browser = server.signed_in(eve)
    for path in (address, "/api/users"):
        capsys.readouterr()
        refused = browser.get(path)
        assert refused.status_code in {403, 404}
        written = capsys.readouterr().err
        for said in ("request refused", f"code={refused.json()['code']}", f"path={path}", str(eve.id)):
            assert said in written
    capsys.readouterr()
    assert server.signed_in(member).get(address).status_code == 200
    assert server.browser().get(address).status_code == 401
    assert "refused" not in capsys.readouterr().err
