"""`bloom runs alerts` against a real server: a sent run that fails reaches a webhook of its owner."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Bloom
from tests.errors import printed
from tests.live_server import FIRST_PASSWORD, LiveServer
from tests.waiting import wait_until
from tests.webhook import Webhook

SCRIPT = """
from gpubloom.traincard import Reporter
reporter = Reporter("run", project="Sweep", telemetry_seconds=0)
reporter.alert("Half way", "50 %", level="info")
raise ValueError("no data")
"""


@pytest.mark.long
def test_a_channel_is_added_tested_told_changed_and_removed(
    bloom: Bloom, server: LiveServer, token: str, tmp_path: Path
) -> None:
    hook = Webhook()
    add = ("runs", "alerts", "add", "webhook", "--on", "failed", "--on", "alert")
    made = bloom(*add, "--name", "Ops", stdin=f"{hook.address}\n", BLOOM_PASSWORD=FIRST_PASSWORD)
    assert made.exit_code == 0, made.output
    secret = made.output.strip().rpartition(" ")[2]
    (listed,) = json.loads(bloom("runs", "alerts", "list", "--json").output)
    assert (listed["name"], listed["rules"], listed["host"]) == ("Ops", ["failed", "alert"], "127.0.0.1")
    assert "Ops" in bloom("runs", "alerts", "list").output
    assert "overfitting" in bloom("runs", "alerts", "list", "--rules").output
    tested = bloom("runs", "alerts", "test", listed["id"])
    assert (tested.exit_code, hook.signed_with(secret)) == (0, [True])

    environment = {**os.environ, "BLOOM_SERVER": server.address, "BLOOM_TOKEN": token}
    subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    wait_until(lambda: len(hook.messages) == 3)
    told = {message["rule"]: message for message in hook.messages[1:]}
    assert told["alert"]["details"] == "50 %"
    assert told["failed"]["details"] == "ValueError: no data"
    assert (told["failed"]["project"], all(hook.signed_with(secret))) == ("Sweep", True)

    changed = bloom("runs", "alerts", "change", listed["id"], "--on", "ended", "--disable")
    assert changed.output == "Ops is off. Rules: ended\n"
    hook.answers = [500]
    refused = bloom("runs", "alerts", "test", listed["id"])
    assert (refused.exit_code, printed(refused.output)) == (1, ["alert_not_sent"])
    assert bloom("runs", "alerts", "remove", listed["id"]).exit_code == 0
    assert "add email" in bloom("runs", "alerts", "list").output
    hook.close()
