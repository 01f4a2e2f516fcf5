"""The run list over HTTP: filter, columns, seeds, tags, notes, views, overlay; and nobody else's runs."""

import math
from typing import Any
from uuid import uuid4

import pytest

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job, add_project
from tests.server.runs.reported import report


def _config(**changes: Any) -> dict[str, Any]:
    base = {"data": {"train_path": "/data/a.txt"}, "device": "cpu"}
    return TrainConfig.model_validate({**base, **changes}).model_dump(mode="json")


def _rows(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [row for section in answer.json()["sections"] for row in section["rows"]]


@pytest.fixture
def sweep(installation: Installation, member: User) -> list[TrainingJob]:
    """Three seeds of one experiment, of which the last failed, and another experiment."""
    project = add_project(installation, member, name="Support")
    jobs = []
    for seed, status in ((0, "completed"), (1, "completed"), (2, "failed")):
        config = _config(seed=seed, learning_rate=2e-4)
        job = add_job(
            installation,
            member,
            name=f"gemma seed {seed}",
            status=status,
            config=config,
            project_id=project.id,
            error_message="Diverged: loss is NaN.\nmore" if status == "failed" else None,
        )
        values = [3.0, math.nan] if status == "failed" else [3.0, 1.0 + seed, 2.0 + seed]
        report(installation, job, "eval/loss", values)
        jobs.append(job)
    jobs.append(add_job(installation, member, name="other", config=_config(learning_rate=1e-3)))
    return jobs


def test_seeds_are_one_row_with_mean_and_deviation(sweep: list[TrainingJob], ada: Browser) -> None:
    answer = ada.get("/api/runs", params={"column": ["lr", "eval/loss.min"], "sort": "learning_rate"})
    group, other = _rows(answer)
    assert answer.json()["columns"] == ["learning_rate", "eval/loss.min"]
    assert group["cells"] == {"learning_rate": 2e-4, "eval/loss.min": 1.5}
    assert group["spread"] == {"eval/loss.min": pytest.approx(math.sqrt(0.5))}
    assert group["statuses"] == {"completed": 2, "failed": 1}
    assert (group["status"], group["error"]) == ("failed", "Diverged: loss is NaN.")
    assert [member["seed"] for member in group["members"]] == [0, 1, 2]
    assert group["run_ids"] == [str(job.id) for job in sweep[:3]]
    assert (other["id"], other["members"]) == (str(sweep[3].id), [])
    assert "eval/loss" in answer.json()["metric_columns"]
    assert "learning_rate" in answer.json()["config_columns"]
    assert (answer.json()["total"], answer.json()["matched"], answer.json()["rows"]) == (4, 4, 2)


def test_a_filter_uses_configs_metrics_and_states(sweep: list[TrainingJob], ada: Browser) -> None:
    for query, found in (
        ("lr > 1e-4 and status = failed", [sweep[2]]),
        ("eval/loss.min < 1.5", [sweep[0]]),
        ("project = Support and seed = 1", [sweep[1]]),
        ("lr = 1e-3", [sweep[3]]),
    ):
        rows = _rows(ada.get("/api/runs", params={"query": query, "group": ""}))
        assert [row["id"] for row in rows] == [str(job.id) for job in found], query


def test_a_filter_that_cannot_be_read_is_refused_with_the_position(
    sweep: list[TrainingJob], ada: Browser
) -> None:
    answer = ada.get("/api/runs", params={"query": "lr >> 3"})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["code"]) == ("query", "invalid_query")
    assert "at character 5" in error["message"]
    answer = ada.get("/api/runs", params={"query": "learnin_rate > 3"})
    assert answer.json()["errors"][0]["code"] == "unknown_column"


def test_a_training_that_is_changed_is_listed_with_its_new_config(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="completed", config=_config(epochs=2))
    assert ada.post(f"/api/jobs/{job.id}/extend", json={"epochs": 5}).status_code == 200
    (row,) = _rows(ada.get("/api/runs", params={"column": ["epochs"]}))
    assert (row["cells"], row["status"]) == ({"epochs": 5}, "queued")


def test_facts_and_figures_of_the_summary_are_columns(
    installation: Installation, member: User, ada: Browser
) -> None:
    summary = {
        "step": 7,
        "total_steps": 9,
        "facts": {"git": {"commit": "41c9e0a"}, "config": {"lr": 0.5}},
        "cost": {"so_far": 2.5},
        "values": {"acc": {"step": 7, "value": 0.75}},
    }
    add_job(installation, member, kind="script", config={"kind": "script"}, summary=summary)
    columns = ["git.commit", "lr", "cost", "step", "acc"]
    (row,) = _rows(ada.get("/api/runs", params={"column": columns}))
    assert list(row["cells"].values()) == ["41c9e0a", 0.5, 2.5, 7, 0.75]
    assert (row["step"], row["total_steps"]) == (7, 9)


def test_tags_and_notes_are_kept_and_found(sweep: list[TrainingJob], ada: Browser) -> None:
    changed = ada.patch(f"/api/runs/{sweep[0].id}", json={"tags": ["a", "b", "a"], "notes": "why"})
    assert (changed.status_code, changed.json()["tags"]) == (200, ["a", "b"])
    assert ada.patch(f"/api/runs/{sweep[0].id}", json={"tags": ["c"]}).json()["notes"] == "why"
    (row,) = _rows(ada.get("/api/runs", params={"query": "tag = c", "group": ""}))
    assert (row["id"], row["tags"], row["notes"]) == (str(sweep[0].id), ["c"], "why")
    assert ada.patch(f"/api/runs/{sweep[0].id}", json={"tags": ["x" * 61]}).status_code == 422


def test_an_overlay_has_the_mean_of_each_group(sweep: list[TrainingJob], ada: Browser) -> None:
    ids = ",".join(str(job.id) for job in sweep[:3])
    answer = ada.get("/api/runs/overlay", params={"series": "eval/loss", "group": [ids, str(sweep[3].id)]})
    assert answer.status_code == 200, answer.text
    seeds, none = answer.json()["groups"]
    assert (seeds["runs"], seeds["x"], seeds["mean"]) == (2, [1, 2, 3], [3.0, 1.5, 2.5])
    assert (seeds["low"], seeds["high"]) == ([3.0, 1.0, 2.0], [3.0, 2.0, 3.0])
    assert [(curve["run_id"], curve["y"]) for curve in seeds["failed"]] == [(str(sweep[2].id), [3.0])]
    assert (none["runs"], none["x"]) == (0, [])
    for status, group in (
        (422, "no-id"),
        (404, str(uuid4())),
        (422, ",".join(str(uuid4()) for _ in range(51))),
    ):
        answer = ada.get("/api/runs/overlay", params={"series": "eval/loss", "group": group})
        assert answer.status_code == status, answer.text


def test_long_curves_are_drawn_from_buckets_and_along_tokens(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, config=_config())
    values = [float(step) for step in range(1, 30_001)]
    report(installation, job, "train/loss", values)
    report(installation, job, "train/tokens_seen", [64.0 * step for step in values])
    for along, last in (("step", 30_000), ("tokens", 64 * 30_000)):
        params = {"series": "train/loss", "group": str(job.id), "along": along, "points": 200}
        (group,) = ada.get("/api/runs/overlay", params=params).json()["groups"]
        assert 100 <= len(group["x"]) <= 401
        assert group["x"] == sorted(group["x"])
        assert group["x"][-1] == pytest.approx(last, rel=0.02)
        step = 1 if along == "step" else 64
        # A bucket's mean stands at its middle: a straight line stays one.
        for x, mean in zip(group["x"][:-2], group["mean"][:-2], strict=True):
            assert mean == pytest.approx(x / step, abs=1.5 * 128)


def test_views_are_saved_changed_and_deleted(ada: Browser) -> None:
    made = ada.post("/api/run-views", json={"name": "Sweep", "query": "lr > 1", "columns": ["lr"]})
    assert made.status_code == 201, made.text
    view = made.json()
    assert ada.post("/api/run-views", json={"name": "Sweep"}).json()["code"] == "view_exists"
    body = {"name": "Sweep 2", "query": "", "columns": ["lr"], "group": ["project", "seeds"], "sort": "lr"}
    assert ada.put(f"/api/run-views/{view['id']}", json=body).status_code == 200
    (kept,) = ada.get("/api/run-views").json()["items"]
    assert {name: kept[name] for name in body} == body
    assert ada.delete(f"/api/run-views/{view['id']}").status_code == 204
    assert ada.get("/api/run-views").json()["items"] == []


@pytest.mark.long
def test_nobody_sees_or_changes_runs_and_views_of_others(
    sweep: list[TrainingJob], ada: Browser, server: Server, installation: Installation
) -> None:
    view = ada.post("/api/run-views", json={"name": "Mine"}).json()
    eve = server.signed_in(installation.add_user("Eve"))
    answer = eve.get("/api/runs").json()
    assert (answer["total"], answer["config_columns"], answer["metric_columns"]) == (0, [], [])
    assert eve.patch(f"/api/runs/{sweep[0].id}", json={"notes": "x"}).status_code == 404
    params = {"series": "eval/loss", "group": str(sweep[0].id)}
    assert eve.get("/api/runs/overlay", params=params).status_code == 404
    assert eve.get("/api/run-views").json()["items"] == []
    assert eve.put(f"/api/run-views/{view['id']}", json={"name": "x"}).status_code == 404
    assert eve.delete(f"/api/run-views/{view['id']}").status_code == 404
