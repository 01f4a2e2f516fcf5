"""Alerts reach the channels of the owner, once, also when a receiver is away for a while."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.mail import Mailer
from gpubloom.server.accounts.tables import User
from gpubloom.server.alerts import delivery, raising
from gpubloom.server.alerts.delivery import PAUSES, Sender, deliver_due
from gpubloom.server.alerts.raising import Raiser
from gpubloom.server.alerts.tables import AlertChannel, AlertDelivery
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.settings import Settings
from gpubloom.traincard import Reporter
from tests.ports import free_port
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job
from tests.server.runs.test_receiving import _announce, _batch_of, _post
from tests.webhook import Webhook


@pytest.fixture(autouse=True)
def _only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LOOK_SECONDS", 3_600)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    # On a busy machine the answer of a webhook may take longer than anybody should wait for one.
    monkeypatch.setattr(delivery, "_TIMEOUT_SECONDS", 120.0)
    webhook = Webhook()
    yield webhook
    webhook.close()


def _look(installation: Installation, *, times: int = 1, **settings: Any) -> None:
    """What the server does every few seconds, by a server that was just started."""
    chosen = Settings(
        _env_file=None, home=installation.home, database_url=installation.database_url, **settings
    )

    async def look() -> None:
        database = Database(installation.database_url)
        for _ in range(times):
            await Raiser(database).look()
            await deliver_due(database, chosen, Sender(chosen, Mailer(chosen)))
        await database.close()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(look())).result()


def _channel(ada: Browser, hook: Webhook, *rules: str, **changes: Any) -> dict[str, Any]:
    body = {"kind": "webhook", "name": "Ops", "address": hook.address, "rules": list(rules), **changes}
    made = ada.post("/api/alert-channels", json=body)
    assert made.status_code == 201, made.text
    return dict(made.json())


def _failed(installation: Installation, user: User, **changes: Any) -> TrainingJob:
    fields = {
        "status": "failed",
        "attempt": 1,
        "end_time": now(),
        "error_code": "training_failed",
        "error_message": "OutOfMemoryError: CUDA out of memory",
        "summary": {"error": {"type": "OutOfMemoryError", "cause": "gpu_out_of_memory"}},
    }
    return add_job(installation, user, **{**fields, **changes})


def test_a_failed_job_is_told_once_signed_and_with_its_cause(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    secret = _channel(ada, hook, "failed", "gpu_out_of_memory")["signing_secret"]
    job = _failed(installation, member, name="run 7")
    _look(installation, times=3)
    [message] = hook.messages
    assert (message["rule"], message["level"], message["run"]) == ("failed", "error", "run 7")
    assert message["title"] == "The run failed: the GPU ran out of memory"
    assert message["details"] == "OutOfMemoryError: CUDA out of memory"
    assert message["link"].endswith(f"/projects/{job.project_id}/jobs/{job.id}")
    assert hook.signed_with(secret) == [True]
    # The next attempt fails, too: that is news.
    installation.change(job, attempt=2, position=9, end_time=now(), updated_at=now())
    _look(installation, times=2)
    assert len(hook.messages) == 2


def test_rules_projects_and_owners_decide_who_is_told(
    server: Server, ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    eve = server.signed_in(installation.add_user("Eve"))
    other = add_job(installation, member, status="queued")
    _channel(eve, hook, "failed", name="Eve's")
    _channel(ada, hook, "ended", "disk_full", name="other rules")
    _channel(ada, hook, "failed", name="other project", project_id=str(other.project_id))
    off = _channel(ada, hook, "failed", name="off")
    ada.patch(f"/api/alert-channels/{off['id']}", json={"enabled": False})
    job = _failed(installation, member)
    _look(installation)
    assert hook.messages == []
    _channel(ada, hook, "gpu_out_of_memory", project_id=str(job.project_id))
    installation.change(job, end_time=now(), updated_at=now())
    _look(installation)
    assert len(hook.messages) == 1


def test_a_disabled_account_is_told_nothing_any_more(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    _channel(ada, hook, "failed")
    installation.change(member, disabled=True)
    _failed(installation, member)
    _look(installation, times=2)
    assert hook.tried == []
    [noted] = installation.all(AlertDelivery)
    assert (noted.next_try_at, noted.problem) == (None, "The account of the owner is disabled.")


def test_what_happened_before_a_channel_was_created_is_not_told(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    _failed(installation, member, end_time=now() - timedelta(minutes=1))
    _channel(ada, hook, "failed")
    _look(installation)
    assert (hook.tried, installation.all(AlertDelivery)) == ([], [])


def test_a_receiver_that_is_away_is_tried_again_with_growing_pauses_and_a_wrong_one_is_not(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    _channel(ada, hook, "failed")
    hook.answers = [503, 429]
    job = _failed(installation, member)
    for pause in PAUSES[:2]:
        before = now()
        _look(installation, times=2)
        [message] = installation.all(AlertDelivery)
        assert message.next_try_at is not None
        assert message.next_try_at >= before + pause
        installation.change(message, next_try_at=now())
    _look(installation, times=2)
    assert (len(hook.tried), len(set(hook.tried)), len(hook.messages)) == (3, 1, 1)
    [channel] = installation.all(AlertChannel)
    assert (channel.problem, channel.last_sent_at is not None) == (None, True)
    hook.answers = [410]
    installation.change(job, attempt=2, position=9, updated_at=now())
    _look(installation, times=2)
    [given_up] = [each for each in installation.all(AlertDelivery) if each.sent_at is None]
    assert (given_up.next_try_at, given_up.problem) == (None, "The webhook answered 410.")
    assert ada.get("/api/alert-channels").json()["items"][0]["problem"] == "The webhook answered 410."


@pytest.mark.long
def test_a_message_is_given_up_in_the_end(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    _channel(ada, hook, "failed")
    hook.answers = [500] * 99
    _failed(installation, member)
    for _ in range(len(PAUSES) + 3):
        _look(installation)
        for message in installation.all(AlertDelivery):
            if message.next_try_at is not None:
                installation.change(message, next_try_at=now())
    assert len(hook.tried) == len(PAUSES) + 1


def test_a_chat_gets_words_only_and_an_email_goes_to_the_owner_when_the_mail_server_is_back(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    _channel(ada, hook, "ended", kind="slack")
    email = {"kind": "email", "name": "Mail", "rules": ["ended"]}
    assert ada.post("/api/alert-channels", json=email).status_code == 201
    job = add_job(installation, member, name="toy\nrun", status="completed", attempt=1, end_time=now())
    _look(installation, smtp_url=f"smtp://127.0.0.1:{free_port()}")
    [message] = hook.messages
    assert set(message) == {"text"}
    assert message["text"].startswith("toy\nrun: The run has ended: completed")
    [waiting] = [each for each in installation.all(AlertDelivery) if each.sent_at is None]
    assert waiting.problem is not None
    assert "mail server" in waiting.problem
    installation.change(waiting, next_try_at=now())
    _look(installation)
    [mail] = installation.sent_emails()
    assert (mail["To"], mail["Subject"]) == (member.email, "toy run: The run has ended: completed")
    assert str(job.id) in mail.get_content()


def test_alerts_of_a_sent_run_arrive_once_however_often_it_is_sent(
    ada: Browser, installation: Installation, hook: Webhook, tmp_path: Path
) -> None:
    _channel(ada, hook, "alert", "diverged", "failed")
    run_id = str(uuid4())
    _announce(ada, run_id)
    reporter = Reporter(tmp_path, telemetry_seconds=0)
    for _ in range(3):
        reporter.alert("Half way", "token=abcdefghijkl", level="info")
    reporter.metric("train/loss", float("nan"), 4)
    reporter.metric("train/loss", float("nan"), 5)
    reporter.on_exception(ZeroDivisionError("no divisor"))
    reporter.close()
    batch = _batch_of(tmp_path, run_id)
    for _ in range(2):
        assert _post(ada, batch).status_code == 200
        _look(installation)
    told = [(message["rule"], message["level"], message["title"]) for message in hook.messages]
    assert sorted(told) == [
        ("alert", "info", "Half way"),
        ("diverged", "error", "The loss is not a number"),
        ("failed", "error", "The run failed: the loss became NaN or infinite"),
    ]
    assert "abcdefghijkl" not in str(hook.messages)
    shown = ada.get(f"/api/jobs/{run_id}").json()["summary"]["alerts"]
    assert [(each["rule"], each["step"]) for each in shown] == [("alert", None), ("diverged", 4)]


def test_a_sent_run_of_which_nothing_is_heard_has_stalled(
    ada: Browser, installation: Installation, hook: Webhook
) -> None:
    _channel(ada, hook, "stalled")
    run_id = uuid4()
    _announce(ada, str(run_id))
    _look(installation)
    assert hook.messages == []
    job = installation.get(TrainingJob, run_id)
    assert job is not None
    installation.change(job, updated_at=now() - timedelta(minutes=11))
    _look(installation, times=2)
    assert [message["rule"] for message in hook.messages] == ["stalled"]


def test_rules_in_the_config_of_a_run_replace_those_of_the_channel(
    ada: Browser, installation: Installation, hook: Webhook, tmp_path: Path
) -> None:
    _channel(ada, hook, "failed")
    run_id = str(uuid4())
    _announce(ada, run_id)
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.config({"alerts": {"on": ["ended"]}})
    _post(ada, _batch_of(tmp_path, run_id))
    _look(installation)
    assert [message["rule"] for message in hook.messages] == ["ended"]


def _running(installation: Installation, user: User, **changes: Any) -> TrainingJob:
    config = TrainConfig.model_validate(
        {"data": {"train_path": "/nowhere"}, "alerts": {"stop_on": ["diverged", "overfitting"]}}
    )
    finding = {"kind": "overfitting", "severity": "warning", "sentence": "The eval loss rises."}
    fields = {
        "status": "running",
        "attempt": 1,
        "config": config.model_dump(mode="json"),
        "summary": {"findings": [finding]},
    }
    return add_job(installation, user, **{**fields, **changes})


def test_a_diagnosis_is_told_and_stops_a_job_whose_config_says_so(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    _channel(ada, hook, "overfitting")
    free = add_job(installation, member, status="running", attempt=1, summary={"findings": []})
    job = _running(installation, member)
    _look(installation, times=2)
    stopped = installation.get(TrainingJob, job.id)
    assert stopped is not None
    assert (stopped.status, stopped.want, stopped.error_code) == ("cancelling", "cancel", "stopped_by_rule")
    assert stopped.error_message is not None
    assert "overfitting" in stopped.error_message
    assert stopped.control_version == job.control_version + 1
    untouched = installation.get(TrainingJob, free.id)
    assert untouched is not None
    assert untouched.status == "running"
    assert [message["title"] for message in hook.messages] == ["Possible overfitting"]
    assert installation.actions().count("training_job.stopped_by_rule") == 1


def test_a_finding_is_told_to_those_who_asked_for_what_follows_from_it(
    ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    _channel(ada, hook, "stalled")
    finding = {"kind": "degraded", "severity": "critical", "sentence": "Rank 1 is dead."}
    add_job(installation, member, status="running", summary={"findings": [finding]})
    _look(installation)
    assert hook.messages == []
    stalled = {**finding, "evidence": {"explains": ["stalled"]}}
    add_job(installation, member, status="running", summary={"findings": [stalled]})
    _look(installation, times=2)
    assert [message["rule"] for message in hook.messages] == ["degraded"]


def test_a_flood_is_limited(
    ada: Browser, installation: Installation, member: User, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raising, "MOST_PER_HOUR", 2)
    _channel(ada, hook, "failed")
    project: UUID = add_job(installation, member, status="queued").project_id
    for _ in range(4):
        _failed(installation, member, project_id=project)
    _look(installation, times=2)
    assert len(hook.messages) == 2
    assert len([each for each in installation.all(AlertDelivery) if each.problem]) == 2


def test_what_one_run_says_silences_nobody_else(
    server: Server, ada: Browser, installation: Installation, member: User, hook: Webhook
) -> None:
    eve = installation.add_user("Eve")
    _channel(server.signed_in(eve), hook, "stalled", name="Eve's")
    quiet = now() - timedelta(seconds=raising.STALL_SECONDS + 60)
    silent = add_job(installation, eve, kind="run", status="running", name="silent", config={})
    installation.change(silent, summary={"step": 10**150}, updated_at=quiet)
    odd = add_job(installation, eve, kind="run", status="running", name="odd", config={})
    installation.change(odd, summary={"alerts": [{"rule": "alert", "title": "x", "at": 1e300}]})
    _channel(ada, hook, "failed")
    _failed(installation, member, name="run 7")
    _look(installation)
    assert sorted(message["run"] for message in hook.messages) == ["run 7", "silent"]


def test_a_message_that_cannot_be_sent_is_given_up_in_the_end(
    ada: Browser,
    installation: Installation,
    member: User,
    hook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _channel(ada, hook, "failed")
    _failed(installation, member)

    async def broken(*_: object) -> None:
        raise RuntimeError("of a library")

    monkeypatch.setattr(Sender, "send", broken)
    for _ in range(len(PAUSES) + 1):
        _look(installation)
        [delivered] = installation.all(AlertDelivery)
        if delivered.next_try_at is not None:
            installation.change(delivered, next_try_at=now())
    assert (delivered.tries, delivered.next_try_at) == (len(PAUSES) + 1, None)
    assert "RuntimeError" in (delivered.problem or "")
