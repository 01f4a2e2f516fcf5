"""Runs that are sent to the server: batches once and in order, allowed paths, quotas, two tenants."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.shares import RUN_THREADS_PER_PERSON
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs import run_answers
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.runs import receiving
from gpubloom.server.runs.receiving import watch_once
from gpubloom.server.storage.service import JobStorage
from gpubloom.traincard import Reading, Reporter
from gpubloom.traincard.sync.delta import DeltaBuilder
from gpubloom.traincard.sync.upload_batch import UploadBatch
from tests.server.bringing import on_sqlite
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_training
from tests.waiting import wait_until

NAN = float("nan")
KIND = {"Content-Type": "application/octet-stream"}


def _announce(browser: Browser, run_id: str, **changes: Any) -> Any:
    body = {"id": run_id, "project": "Sweep", "name": "laptop run", "host": "laptop", **changes}
    return browser.put("/api/sent-runs", json=body)


def _post(browser: Browser, batch: UploadBatch) -> Any:
    return browser.post("/api/sent-runs/batches", content=batch.to_bytes(), headers=KIND)


def _whole(path: str, content: bytes = b"{}") -> dict[str, Any]:
    return {"kind": "whole", "path": path, "size": len(content)}


def _batch_of(run_dir: Path, run_id: str, number: int = 1) -> UploadBatch:
    news = DeltaBuilder(run_dir, 1 << 20).pack(DeltaBuilder.first_state(run_dir, {}), large=True, final=True)
    assert news is not None
    entries, body, _ = news
    return UploadBatch(run_id, 1, number, 2.0, entries, body)


def test_a_sent_run_has_a_project_a_page_and_a_place_in_the_list(ada: Browser, tmp_path: Path) -> None:
    run_id = str(uuid4())
    first = _announce(ada, run_id, config={"lr": 0.25, "seed": 3})
    assert (first.status_code, first.json()["next"]) == (200, 1), first.text
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.metrics({"train/loss": 0.5}, step=1)
        reporter.metrics({"train/loss": 0.25}, step=2)
    batch = _batch_of(tmp_path, run_id)
    for _ in range(2):
        # The second one is the same batch again: its answer was lost.
        answer = _post(ada, batch)
        assert (answer.status_code, answer.json()["next"]) == (200, 2), answer.text
    job = ada.get(f"/api/jobs/{run_id}").json()
    assert (job["status"], job["kind"], job["project_name"]) == ("completed", "run", "Sweep")
    (curve,) = ada.get(f"/api/jobs/{run_id}/metrics").json()["series"]
    assert (curve["x"], curve["value"]) == ([1, 2], [0.5, 0.25])
    listed = ada.get("/api/runs", params={"query": "lr = 0.25", "column": ["train/loss.min", "seed"]}).json()
    (row,) = listed["sections"][0]["rows"]
    assert (row["source"], row["cells"]) == ("laptop", {"train/loss.min": 0.25, "seed": 3})
    assert _announce(ada, run_id).json()["next"] == 2
    assert ada.post(f"/api/jobs/{run_id}/shares").status_code == 201
    assert ada.get(f"/api/jobs/{run_id}/logs").status_code == 200


def test_the_config_of_a_sent_training_counts_with_its_defaults(ada: Browser) -> None:
    config = TrainConfig.model_validate({"data": {"train_path": "/text.txt"}})
    written = config.model_dump(mode="json")
    assert written["learning_rate"] is None
    assert _announce(ada, str(uuid4()), config=written).status_code == 200
    listed = ada.get("/api/runs", params={"column": ["learning_rate"]}).json()
    (row,) = listed["sections"][0]["rows"]
    assert row["cells"] == {"learning_rate": config.peak_learning_rate}


def test_a_config_that_no_database_holds_as_it_is_does_not_refuse_the_run(ada: Browser) -> None:
    run_id = str(uuid4())
    for _ in range(2):
        body = json.dumps(
            {"id": run_id, "project": "Sweep", "name": "odd", "config": {"a": "\ud800\0", "b": NAN}}
        )
        answer = ada.put("/api/sent-runs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200, answer.text
    listed = ada.get("/api/runs", params={"column": ["a", "b"]}).json()
    (row,) = listed["sections"][0]["rows"]
    assert row["cells"] == {"a": "?", "b": "NaN"}


def test_a_failed_run_says_why_and_a_gap_is_asked_for(ada: Browser, tmp_path: Path) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    reporter = Reporter(tmp_path, telemetry_seconds=0)
    reporter.metrics({"loss": 1.0}, step=1)
    reporter.on_exception(ZeroDivisionError("no divisor"))
    reporter.close()
    early = _post(ada, _batch_of(tmp_path, run_id, number=3))
    assert (early.status_code, early.json()["code"]) == (409, "batch_gap")
    assert _post(ada, _batch_of(tmp_path, run_id)).status_code == 200
    job = ada.get(f"/api/jobs/{run_id}").json()
    assert (job["status"], job["error_message"]) == ("failed", "ZeroDivisionError: no divisor")


@pytest.mark.parametrize(
    "path",
    [
        "config.json",
        "train.py",
        "traincard/control.json",
        "agent/exit-1.json",
        "../x",
        "/etc/x",
        "traincard/.x",
    ],
)
def test_a_sender_cannot_write_what_the_server_owns(
    ada: Browser, installation: Installation, path: str
) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    answer = _post(ada, UploadBatch(run_id, 1, 1, 2.0, [_whole(path)], b"{}"))
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "batch_refused")
    written = [file for file in (installation.home / "runs" / run_id).rglob("*") if file.is_file()]
    assert all(".arriving" in file.parts for file in written)


def test_files_of_the_training_are_left_out_and_damaged_batches_refused(
    ada: Browser, installation: Installation
) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    answer = _post(ada, UploadBatch(run_id, 1, 1, 2.0, [_whole("checkpoints/a/b.bin")], b"{}"))
    assert answer.status_code == 200
    assert not (installation.home / "runs" / run_id / "checkpoints").exists()
    damaged = UploadBatch(run_id, 1, 2, 2.0, [], b"").to_bytes()[:-3]
    answer = ada.post("/api/sent-runs/batches", content=damaged, headers=KIND)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "damaged_batch")


def test_a_run_counts_towards_the_quota_of_its_owner(
    ada: Browser, installation: Installation, member: User
) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    content = b"x" * 5_000
    assert (
        _post(ada, UploadBatch(run_id, 1, 1, 2.0, [_whole("logs/a.log", content)], content)).status_code
        == 200
    )
    (stored,) = installation.all(JobStorage)
    assert (str(stored.job_id), stored.user_id) == (run_id, member.id)
    assert stored.run_bytes >= 5_000


def test_the_config_of_a_run_counts_towards_the_quota(installation: Installation, member: User) -> None:
    with installation.serve(user_quota_gb=0.000_1) as small:
        ada = small.signed_in(member)
        large = {"notes": "x" * 60_000}
        first = str(uuid4())
        assert _announce(ada, first, config=large).status_code == 200
        (stored,) = installation.all(JobStorage)
        assert stored.run_bytes >= 60_000
        refused = _announce(ada, str(uuid4()), config=large)
        assert (refused.status_code, refused.json()["code"]) == (413, "quota_exceeded")
        assert _announce(ada, first, config=large).status_code == 200, "nothing new is stored"
        larger = _announce(ada, first, config={"notes": "x" * 120_000})
        assert (larger.status_code, larger.json()["code"]) == (413, "quota_exceeded")
        content = b"x" * 1_000
        batch = UploadBatch(first, 1, 1, 2.0, [_whole("logs/a.log", content)], content)
        assert _post(ada, batch).status_code == 200
        (stored,) = installation.all(JobStorage)
        assert stored.run_bytes >= 61_000


def test_a_run_that_cannot_be_read_counts_towards_the_quota_too(
    ada: Browser, installation: Installation, tmp_path: Path
) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.event("checkpoint", {"path": "checkpoints/HALF"}, step=1)
    for path in (tmp_path / "traincard").rglob("*.jsonl"):
        # Half of a character, which no database holds.
        path.write_text(path.read_text().replace("HALF", "\\ud800"))
    run_id = str(uuid4())
    _announce(ada, run_id)
    assert _post(ada, _batch_of(tmp_path, run_id)).status_code == 200
    assert ada.get(f"/api/jobs/{run_id}").json()["error_code"] == "unreadable_run"
    (stored,) = installation.all(JobStorage)
    before = stored.run_bytes
    assert before > 0
    content = b"x" * 5_000
    _post(ada, UploadBatch(run_id, 1, 2, 2.0, [_whole("logs/a.log", content)], content))
    (stored,) = installation.all(JobStorage)
    assert stored.run_bytes >= before + 5_000


def test_what_no_reporter_writes_fails_no_run_and_hides_no_other(
    ada: Browser, installation: Installation, tmp_path: Path
) -> None:
    with Reporter(tmp_path, telemetry_seconds=0, capture=False) as reporter:
        reporter.metrics({"loss": 0.5}, step=1)
        reporter.log("careful", "warning")
    for path in (tmp_path / "traincard").rglob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        odd = [{"tags": "x"}, {"level": [1]}, {"values": {"loss": 10**400}}]
        lines += [lines[-1] | {"kind": "metric", "step": 2, "values": {"loss": 0.25}} | each for each in odd]
        lines += [lines[-1] | {"kind": "log", "line": "odd", "level": ["warning"]}]
        lines = [line | {"seq": seq} for seq, line in enumerate(lines) if line["kind"] != "end"]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "traincard/latest.json").write_text('{"status": "running"}')
    for path in (tmp_path / "traincard/segments").iterdir():
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"bytes": 0, "events": [{"kind": "log"}]}))
    odd_run = str(uuid4())
    _announce(ada, odd_run)
    answer = _post(ada, _batch_of(tmp_path, odd_run))
    assert answer.status_code == 200, answer.text
    job = ada.get(f"/api/jobs/{odd_run}").json()
    assert (job["status"], job["error_code"]) == ("running", None)
    (curve,) = ada.get(f"/api/jobs/{odd_run}/metrics").json()["series"]
    assert curve["value"][0] == 0.5
    assert ada.get(f"/api/jobs/{odd_run}/logs").status_code == 200


def test_a_full_disk_asks_the_sender_to_try_again(
    ada: Browser, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    monkeypatch.setattr(receiving, "free_bytes", lambda folder: receiving.SPARE_BYTES)
    answer = _post(ada, UploadBatch(run_id, 1, 1, 2.0, [_whole("logs/a.log")], b"{}"))
    assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
    assert not (installation.home / "runs" / run_id).exists()


def test_a_person_announces_a_limited_number_of_runs_in_an_hour(
    ada: Browser, installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "_MOST_NEW_RUNS", 2)
    first = str(uuid4())
    assert [_announce(ada, run_id).status_code for run_id in (first, str(uuid4()))] == [200, 200]
    refused = _announce(ada, str(uuid4()))
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_new_runs")
    assert _announce(ada, first).status_code == 200, "announcing again is no new run"
    for job in installation.all(TrainingJob):
        installation.change(job, created_at=now() - timedelta(hours=2))
    assert _announce(ada, str(uuid4())).status_code == 200


@on_sqlite
def test_runs_of_one_person_that_take_long_to_read_leave_threads_to_others(
    ada: Browser, server: Server, installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    bo = installation.add_user("Bo")
    slow, quick = add_training(installation, member), add_training(installation, bo)
    release, reading = threading.Event(), list[Path]()

    def read(run_dir: Path) -> list[dict[str, Any]]:
        reading.append(run_dir)
        if run_dir.name == str(slow.id):
            release.wait(60)
        return []

    monkeypatch.setattr(run_answers, "load_samples", read)
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(ada.get, f"/api/jobs/{slow.id}/samples") for _ in range(20)]
        try:
            wait_until(lambda: len(reading) == RUN_THREADS_PER_PERSON)
            assert server.signed_in(bo).get(f"/api/jobs/{quick.id}/samples").status_code == 200
            assert len(reading) == RUN_THREADS_PER_PERSON + 1
        finally:
            release.set()
        assert [answer.result().status_code for answer in waiting] == [200] * 20


def test_without_room_a_batch_is_refused(installation: Installation, member: User) -> None:
    with installation.serve(user_quota_gb=0.000_001) as small:
        ada = small.signed_in(member)
        run_id = str(uuid4())
        _announce(ada, run_id)
        content = b"x" * 5_000
        answer = _post(ada, UploadBatch(run_id, 1, 1, 2.0, [_whole("logs/a.log", content)], content))
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "batch_refused")
        assert not (installation.home / "runs" / run_id / "logs").exists()


def test_nobody_sends_into_the_run_of_another_or_without_the_scope(
    ada: Browser, server: Server, installation: Installation, member: User
) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    eve = server.signed_in(installation.add_user("Eve"))
    assert _announce(eve, run_id).status_code == 404
    assert _post(eve, UploadBatch(run_id, 1, 1, 2.0, [_whole("logs/a.log")], b"{}")).status_code == 404
    assert eve.get("/api/runs").json()["total"] == 0
    job = _post(ada, UploadBatch(str(uuid4()), 1, 1, 2.0, [], b""))
    assert job.status_code == 404
    refused = _announce(server.program(member, "read"), str(uuid4()))
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")


@pytest.mark.long
def test_a_sent_run_is_ended_by_cancel_lives_again_and_is_not_controlled_here(
    ada: Browser, tmp_path: Path
) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    assert ada.post(f"/api/jobs/{run_id}/pause").json()["code"] == "not_for_this_kind"
    assert ada.post(f"/api/jobs/{run_id}/cancel").json()["status"] == "cancelled"
    reporter = Reporter(tmp_path, telemetry_seconds=0)
    reporter.metrics({"loss": 1.0}, step=1)
    reporter.flush()
    _post(ada, _batch_of(tmp_path, run_id))
    assert ada.get(f"/api/jobs/{run_id}").json()["status"] == "running"
    reporter.close()
    ada.post(f"/api/jobs/{run_id}/cancel")
    assert ada.delete(f"/api/jobs/{run_id}").status_code in {200, 204}
    assert _post(ada, _batch_of(tmp_path, run_id, number=2)).status_code == 404


def test_a_sent_run_shows_findings_ranks_and_its_captured_output(ada: Browser, tmp_path: Path) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    with Reporter(tmp_path, telemetry_seconds=0, capture=False) as reporter:
        for step in range(1, 60):
            loss = 2.0 if step < 30 else float("nan")
            reporter.metrics({"train/loss": loss, "train/grad_norm": 1.0}, step=step)
        reporter.log("epoch one is done")
        reporter.log("the loss is not a number", level="warning")
    with Reporter(tmp_path, rank=1, telemetry_seconds=0, capture=False) as other:
        other.metrics({"train/step_seconds": 0.5}, step=1)
    assert _post(ada, _batch_of(tmp_path, run_id)).status_code == 200
    job = ada.get(f"/api/jobs/{run_id}").json()
    assert "diverging" in {finding["kind"] for finding in job["summary"]["findings"]}
    assert [rank["rank"] for rank in job["summary"]["processes"]["ranks"]] == [0, 1]
    page = ada.get(f"/api/jobs/{run_id}/logs").json()
    assert page == {"lines": ["epoch one is done", "the loss is not a number"], "start": 0, "end": 2}
    assert ada.get(f"/api/jobs/{run_id}/logs", params={"after": 1}).json()["lines"] == page["lines"][1:]
    found = ada.get(f"/api/jobs/{run_id}/logs/search", params={"text": "EPOCH"}).json()
    assert found == {"lines": ["epoch one is done"], "more": False}


def test_a_sent_run_that_falls_silent_is_found_out(
    ada: Browser, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = str(uuid4())
    _announce(ada, run_id)
    reporter = Reporter(tmp_path, telemetry_seconds=0, capture=False)
    reporter.heartbeat(expect_next_in=0.01)
    reporter.metrics({"train/loss": 1.0}, step=1)
    reporter.flush()
    assert _post(ada, _batch_of(tmp_path, run_id)).status_code == 200
    reporter.close()
    assert ada.get(f"/api/jobs/{run_id}").json()["summary"]["findings"] == []
    earlier = Reading.now
    monkeypatch.setattr(Reading, "now", lambda reading: earlier(reading) + 3_600)
    state = server.app.state
    assert ada.portal is not None
    ada.portal.call(watch_once, state.database, state.settings, state.run_readings)
    found = ada.get(f"/api/jobs/{run_id}").json()["summary"]["findings"]
    assert [finding["severity"] for finding in found] != []


def test_many_runs_of_one_person_do_not_keep_others_from_being_watched(
    ada: Browser,
    server: Server,
    installation: Installation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "_MOST_WATCHED", 3)
    run_id = str(uuid4())
    _announce(ada, run_id)
    bob = server.signed_in(installation.add_user("Bob"))
    for _ in range(5):
        assert _announce(bob, str(uuid4())).status_code == 200
    state, watched = server.app.state, []
    look = receiving._look

    async def looked(readings: Any, run_dir: Path, *, ended: bool) -> Any:
        watched.append(run_dir.name)
        return await look(readings, run_dir, ended=ended)

    monkeypatch.setattr(receiving, "_look", looked)
    assert ada.portal is not None
    ada.portal.call(watch_once, state.database, state.settings, state.run_readings)
    assert run_id in watched
    assert len(watched) == 3
