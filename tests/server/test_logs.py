"""The log: one event is one line, whatever a request has sent."""

import json

import pytest
import structlog

from gpubloom.server.logs import configure_logs

HOSTILE = "/a\n2026-01-01 [info] signed in\r\x1b[2J\u2028\x00"


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_request_sent_stays_in_its_line(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("text" if form == "text" else "json")
    structlog.get_logger("bloom").info("request failed", path=HOSTILE)
    configure_logs("text")
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 1
    assert written.rstrip("\n").isprintable()
    if form == "json":
        assert json.loads(written)["path"] == HOSTILE
