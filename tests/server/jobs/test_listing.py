"""The list of jobs: what it shows, and that it costs the same however many there are."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_dataset, add_job, add_project

SUMMARY: dict[str, Any] = {
    "phase": "train",
    "step": 3,
    "total_steps": 9,
    "epoch": 0.5,
    "epochs": 2.0,
    "eta_seconds": 12.5,
    "values": {"train/loss": {"step": 3, "value": 1.5}},
    "facts": {"rows_used": 20, "rows_total": 120},
    "cost": {"so_far": 0.25},
}


@contextmanager
def _statements() -> Iterator[list[str]]:
    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_page_costs_the_same_statements_however_many_jobs_it_has(
    installation: Installation, member: User, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = add_project(installation, member).id
    dataset = add_dataset(installation, member).id

    def add(count: int) -> None:
        for _ in range(count):
            add_job(installation, member, project_id=project, dataset_id=dataset, status="queued")

    def cost() -> int:
        with _statements() as seen:
            assert ada.get("/api/jobs").status_code == 200
        # Values are taken out of the JSON by the database: whole columns are not read.
        assert not re.search(r"(?<!\()training_jobs\.(config|plan|summary)\b", "\n".join(seen))
        return len(seen)

    looked_at: list[str] = []
    real = os.stat

    def stat(path: Any, *rest: Any, **named: Any) -> os.stat_result:
        looked_at.append(str(path))
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "stat", stat)
    add(1)
    few = cost()
    add(20)
    assert cost() == few
    assert not any("/runs/" in path for path in looked_at), "a list looks at no run directory"


def test_the_list_shows_how_far_a_job_is(installation: Installation, member: User, ada: Browser) -> None:
    offer = {"provider": "modal"}
    add_job(installation, member, status="running", summary=SUMMARY, offer=offer, target="modal")
    [item] = ada.get("/api/jobs").json()["items"]
    assert "config" not in item
    assert "plan" not in item
    assert {name: item[name] for name in ("phase", "step", "total_steps", "epoch", "epochs", "loss")} == {
        "phase": "train",
        "step": 3,
        "total_steps": 9,
        "epoch": 0.5,
        "epochs": 2.0,
        "loss": 1.5,
    }
    assert (item["eta_seconds"], item["cost_so_far"], item["provider"]) == (12.5, 0.25, "modal")
    assert (item["rows_used"], item["rows_total"]) == (20, 120)


@pytest.mark.long
@pytest.mark.parametrize("reported", ["a word", [1], {"a": 1}, None, -1.5])
def test_what_a_script_reports_wrongly_is_not_shown(
    installation: Installation, member: User, ada: Browser, reported: object
) -> None:
    summary = {"step": reported, "facts": {"rows_used": reported, "rows_total": 7}, "values": reported}
    add_job(installation, member, status="running", summary=summary)
    [item] = ada.get("/api/jobs").json()["items"]
    assert (item["rows_used"], item["loss"]) == (None, None)
    assert item["step"] is None or isinstance(item["step"], int)


def test_a_loss_that_is_no_number_is_named(installation: Installation, member: User, ada: Browser) -> None:
    for value in ("NaN", "Infinity", "-Infinity"):
        add_job(installation, member, summary={"values": {"train/loss": {"value": value}}})
    assert {item["loss"] for item in ada.get("/api/jobs").json()["items"]} == {"NaN", "Infinity", "-Infinity"}


def test_each_kind_of_device_has_a_queue(installation: Installation, member: User, ada: Browser) -> None:
    moment = now()

    def queued(seconds: int, **changes: Any) -> UUID:
        at = moment + timedelta(seconds=seconds)
        return add_job(installation, member, status="queued", queued_at=at, **changes).id

    first, second, on_gpu = queued(1), queued(3), queued(2, gpus=1)
    rented = queued(0, target="modal")
    shown = {item["id"]: item["queue_position"] for item in ada.get("/api/jobs").json()["items"]}
    assert shown == {str(first): 1, str(second): 2, str(on_gpu): 1, str(rented): None}


def test_the_queue_counts_one_job_of_everybody_at_a_time(
    installation: Installation, member: User, ada: Browser
) -> None:
    others = installation.add_user("Grace")
    moment = now()
    for seconds in range(20):
        add_job(installation, others, status="queued", queued_at=moment + timedelta(seconds=seconds))
    for seconds in (30, 40):
        add_job(installation, member, status="queued", queued_at=moment + timedelta(seconds=seconds))
    shown = [item["queue_position"] for item in ada.get("/api/jobs").json()["items"]]
    assert sorted(shown) == [2, 4]


def test_totals_count_states_and_add_up_time(installation: Installation, member: User, ada: Browser) -> None:
    start = now() - timedelta(hours=1)
    add_job(installation, member, status="completed", start_time=start, end_time=start + timedelta(minutes=5))
    add_job(installation, member, status="failed", start_time=start, end_time=start + timedelta(minutes=1))
    add_job(installation, member, status="queued")
    # A pause of nearly an hour is no training.
    add_job(installation, member, status="paused", start_time=start, active_seconds=60.0)
    with _statements() as seen:
        totals = ada.get("/api/jobs/totals").json()
    assert sum("training_jobs" in statement for statement in seen) == 1
    assert {name: totals[name] for name in ("running", "queued", "completed", "failed")} == {
        "running": 0,
        "queued": 1,
        "completed": 1,
        "failed": 1,
    }
    assert totals["training_seconds"] == pytest.approx(420, abs=0.01)
