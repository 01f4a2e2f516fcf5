"""The log: one event is one line, whatever a request has sent."""

import json
from typing import Literal

import pytest
import structlog

from gpubloom.server.logs import configure_logs

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
