"""Alerts reach a webhook once, signed, also when the webhook is broken for a while; rules can stop a loop."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.errors import InputError
from gpubloom.traincard import ControlFile, Reporter
from gpubloom.traincard import alerts as alerts_module
from gpubloom.traincard.alert_rules import Alert
from gpubloom.traincard.alerts import Alerts, AlertSettings
from tests.errors import raises
from tests.traincard.conftest import StartScript, events_of
from tests.waiting import wait_until
from tests.webhook import Webhook

SECRET = "a shared secret"


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    hook = Webhook()
    monkeypatch.setenv("BLOOM_ALERT_WEBHOOK", hook.address)
    monkeypatch.setattr(alerts_module, "_TRIES", (0.0, 0.05, 0.05))
    yield hook
    hook.close()


def test_a_script_that_fails_sends_one_signed_message(
    webhook: Webhook, start_script: StartScript, run_dir: Path
) -> None:
    process = start_script(
        """
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        reporter.alert("Half way", "50 %", level="info")
        reporter.alert("Half way", "50 %", level="info")
        reporter.metric("loss", float("nan"), 3)
        reporter.metric("loss", float("nan"), 4)
        raise ValueError("token=abcdefghijkl is wrong")
        """,
        BLOOM_ALERT_SECRET=SECRET,
    )
    process.communicate()
    assert [(message["rule"], message["level"]) for message in webhook.messages] == [
        ("alert", "info"),
        ("diverged", "error"),
        ("failed", "error"),
    ]
    assert webhook.signed_with(SECRET) == [True] * 3
    assert webhook.messages[1]["text"] == f"{run_dir.name}: The loss is not a number\nloss is NaN at step 3."
    assert webhook.messages[2]["details"] == "ValueError: token=[hidden] is wrong"


def test_a_busy_webhook_is_tried_again_and_a_wrong_one_is_not(webhook: Webhook, run_dir: Path) -> None:
    webhook.answers = [503, 429]
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.alert("first")
    assert [message["title"] for message in webhook.messages] == ["first"]
    webhook.answers = [404, 500]
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.alert("lost")
    assert webhook.answers == [500]


def test_only_the_chosen_rules_speak(
    webhook: Webhook, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_ALERT_ON", "ended")
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.alert("not this")
        reporter.metric("loss", float("inf"), 1)
    assert [message["text"] for message in webhook.messages] == ["run: The run has ended: completed"]


def test_a_stall_is_said_once_until_the_loop_moves_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(alerts_module, "send", lambda settings, alert, run: sent.append(alert.rule))
    monkeypatch.setattr(alerts_module, "STALL_SECONDS", -1.0)
    alerts = Alerts(AlertSettings("https://example.org", frozenset({"stalled"})), "run", lambda _: None)
    for _ in range(2):
        alerts.see([{"kind": "metric", "values": {"loss": 1.0}}])
        alerts._look_for_stall()
        alerts._look_for_stall()
    alerts.finish(10)
    assert sent == ["stalled", "stalled"]


def test_divergence_stops_a_loop_that_takes_commands(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_STOP_ON", "diverged")
    seen = []
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        track = reporter.track(range(1_000))
        for batch in track:
            seen.append(batch)
            track.report(loss=1.0 if batch < 3 else float("nan"))
            if batch >= 3:
                reporter.flush()
                wait_until(lambda: ControlFile(run_dir).read().want == "cancel")
    assert len(seen) == 4
    assert track.stopped == "cancelled"
    assert "BLOOM_STOP_ON" in events_of(run_dir, "log")[-1].fields["line"]


@pytest.mark.parametrize("where", ["file", "call"])
def test_rules_in_a_config_stop_a_run_and_choose_its_messages(
    webhook: Webhook, run_dir: Path, where: str
) -> None:
    config = {"lr": 1, "alerts": {"on": ["ended"], "stop_on": ["diverged", "overfitting", "no such rule"]}}
    if where == "file":
        run_dir.mkdir(exist_ok=True)
        (run_dir / "config.json").write_text(json.dumps(config))
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        if where == "call":
            reporter.config(config)
        reporter.alert("not this")
        reporter.metric("loss", float("nan"), 1)
        reporter.flush()
        wait_until(lambda: ControlFile(run_dir).read().want == "cancel")
    assert [message["rule"] for message in webhook.messages] == ["ended"]


def test_in_a_job_the_server_applies_the_rules_of_the_config(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_JOB_ID", "job")
    monkeypatch.setenv("BLOOM_RUN_DIR", str(run_dir))
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.config({"alerts": {"stop_on": ["diverged"]}})
        reporter.metric("loss", float("nan"), 1)
    assert ControlFile(run_dir).read().want == "run"


def test_settings_that_make_no_sense_are_refused(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with raises(InputError, code="invalid_address"):
        AlertSettings.from_environment({"BLOOM_ALERT_WEBHOOK": "http://example.org/hook"})
    with raises(InputError, code="invalid_setting"):
        AlertSettings.from_environment({"BLOOM_STOP_ON": "boredom"})
    assert AlertSettings.from_environment({}) is None
    monkeypatch.setenv("BLOOM_ALERT_WEBHOOK", "ftp://example.org")
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        assert reporter.is_on
    assert "sends no alerts" in caplog.text


def test_the_command_sends_a_test_message(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["runs", "alerts", "test"])
    assert (done.exit_code, webhook.messages[0]["title"]) == (0, "This is a test")
    webhook.answers = [500]
    refused = CliRunner().invoke(app, ["runs", "alerts", "test"])
    assert refused.exit_code == 1
    assert "answered 500" in refused.output
    monkeypatch.delenv("BLOOM_ALERT_WEBHOOK")
    assert CliRunner().invoke(app, ["runs", "alerts", "test"]).exit_code == 2
    assert Alert("alert", "t").level == "warning"
