"""`bloom ui` over a folder of runs: the same answers as a server gives, and nothing for strangers."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from gpubloom.server.folder import app as folder_app
from gpubloom.server.folder.app import Access, create_folder_app
from gpubloom.server.folder.views import VIEWS_FILE
from gpubloom.traincard import Reporter, snapshot

ADDRESS = "http://127.0.0.1:8082"


def _report(run_dir: Path, rate: float, seed: int, *, steps: int = 40, **options: Any) -> None:
    with Reporter(run_dir, telemetry_seconds=0, capture=False, announce=False, **options) as reporter:
        reporter.describe({"config": {"learning_rate": rate, "seed": seed}})
        for step in range(1, steps + 1):
            reporter.metrics({"train/loss": 1 + rate + math.exp(-step / 10)}, step=step)
        reporter.log("the end is near")
        reporter.checkpoint("checkpoints/last", step=steps, metrics={"eval/loss": 1.5})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rate in (0.1, 0.2):
        for seed in (1, 2):
            _report(tmp_path / "runs" / "sweep" / f"lr {rate} seed {seed}", rate, seed)
    return tmp_path / "runs"


@pytest.fixture
def access() -> Access:
    return Access()


@pytest.fixture
def stranger(folder: Path, access: Access, tmp_path: Path) -> Iterator[TestClient]:
    app = create_folder_app(folder, access, cache=tmp_path / "cache")
    with TestClient(app, base_url=ADDRESS, follow_redirects=False) as client:
        yield client


@pytest.fixture
def browser(stranger: TestClient, access: Access) -> TestClient:
    entered = stranger.get("/open", params={"token": access.token})
    assert (entered.status_code, entered.headers["location"]) == (303, "/runs")
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert "SameSite=strict" in entered.headers["set-cookie"]
    return stranger


def _rows(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    answer = client.get("/api/runs", params=query)
    assert answer.status_code == 200, answer.text
    return [row for section in answer.json()["sections"] for row in section["rows"]]


def test_the_list_filters_groups_and_sorts_as_the_server_does(browser: TestClient) -> None:
    first, second = _rows(browser, column=["lr", "train/loss.min"], sort="lr")
    assert (first["name"], len(first["run_ids"]), first["project"]) == ("lr 0.1", 2, "sweep")
    assert first["cells"]["train/loss.min"] < second["cells"]["train/loss.min"]
    (row,) = _rows(browser, query="lr > 0.15 and seed = 2", group="")
    assert (row["status"], row["kind"], row["step"]) == ("completed", "run", 40)
    wrong = browser.get("/api/runs", params={"query": "lr >"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "query")


def test_overlay_and_comparison_take_the_ids_of_the_list(browser: TestClient) -> None:
    rows = _rows(browser, sort="lr")
    groups = [",".join(row["run_ids"]) for row in rows]
    drawn = browser.get("/api/runs/overlay", params={"series": "train/loss", "group": groups}).json()
    assert [group["runs"] for group in drawn["groups"]] == [2, 2]
    assert len(drawn["groups"][0]["x"]) == 40
    ids = [row["run_ids"][0] for row in rows]
    compared = browser.get("/api/runs/compare", params={"run": ids}).json()
    assert [each["path"] for each in compared["differences"]] == ["learning_rate"]


def test_every_part_of_the_page_of_a_run_is_there(
    browser: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_WHAT_RAN", "on")
    # So short a run would not wait for a slow git on a busy machine.
    monkeypatch.setattr("gpubloom.traincard.reporter._LOOKING_SECONDS", 60)
    _report(folder / "whole", 0.3, 1)
    run_id = _rows(browser, query="name = whole")[0]["id"]
    job = browser.get(f"/api/jobs/{run_id}").json()
    assert (job["status"], job["kind"], job["project_name"]) == ("completed", "run", "runs")
    assert job["summary"]["values"]["train/loss"]["step"] == 40
    curves = browser.get(f"/api/jobs/{run_id}/metrics").json()
    (curve,) = curves["series"]
    assert (curve["x"], curve["last"]["x"]) == (list(range(1, 41)), 40)
    part = browser.get(f"/api/jobs/{run_id}/metrics", params={"from": 5, "to": 8}).json()["series"][0]
    assert part["x"] == [5, 6, 7, 8]
    (checkpoint,) = browser.get(f"/api/jobs/{run_id}/checkpoints").json()["items"]
    assert (checkpoint["step"], checkpoint["best"]) == (40, True)
    assert browser.get(f"/api/jobs/{run_id}/logs").json()["lines"] == ["the end is near"]
    assert browser.get(f"/api/jobs/{run_id}/logs/search", params={"text": "end"}).json()["lines"] != []
    assert browser.get(f"/api/jobs/{run_id}/what-ran").json()["command"] != []


def test_samples_and_the_answer_whether_it_improved_are_those_of_the_card(
    browser: TestClient, folder: Path
) -> None:
    run_dir = folder / "evaluated"
    with Reporter(run_dir, telemetry_seconds=0, capture=False, announce=False) as reporter:
        for step in range(0, 41, 10):
            reporter.metric("eval/loss", 3.0 - step / 40, step)
            reporter.sample("Why?", f"Because of {step}.", step)
    run_id = _rows(browser, query="name = evaluated")[0]["id"]
    shown = snapshot(run_dir)
    improvement = browser.get(f"/api/jobs/{run_id}/improvement").json()["improvement"]
    assert (improvement["verdict"], improvement["lowest"]) == ("yes", {"step": 40, "loss": 2.0})
    assert improvement == shown["improvement"]
    samples = browser.get(f"/api/jobs/{run_id}/samples").json()["items"]
    assert [answer["step"] for answer in samples[0]["answers"]] == [0, 10, 20, 30, 40]
    assert samples == shown["samples"]


def test_findings_of_a_run_are_on_its_page(browser: TestClient, folder: Path) -> None:
    with Reporter(folder / "diverged", telemetry_seconds=0, capture=False, announce=False) as reporter:
        for step in range(1, 60):
            reporter.metrics({"train/loss": 2.0 if step < 30 else math.nan}, step=step)
    run_id = _rows(browser, query="name = diverged")[0]["id"]
    job = browser.get(f"/api/jobs/{run_id}").json()
    assert "diverging" in {finding["kind"] for finding in job["summary"]["findings"]}
    (curve,) = browser.get(f"/api/jobs/{run_id}/metrics").json()["series"]
    assert (len(curve["x"]), len(curve["gaps"]["x"]), curve["last"]["value"]) == (29, 30, "NaN")


def test_a_run_that_was_killed_says_so(browser: TestClient, folder: Path, tmp_path: Path) -> None:
    reporter = Reporter(folder / "lost", telemetry_seconds=0, capture=False, announce=False)
    reporter.metrics({"train/loss": 1.0}, step=1)
    reporter.flush()
    latest = folder / "lost" / "traincard" / "events.jsonl"
    copy = tmp_path / "copy"
    copy.mkdir()
    # As kill -9 leaves it: no end, and nobody holds the lock.
    (copy / "traincard").mkdir()
    for name in ("events.jsonl", "lock"):
        (copy / "traincard" / name).write_bytes((latest.parent / name).read_bytes())
    reporter.close()
    copy.rename(folder / "killed")
    (row,) = _rows(browser, query="name = killed")
    assert (row["status"], "without a report" in row["error"]) == ("failed", True)
    job = browser.get(f"/api/jobs/{row['id']}").json()
    assert (job["status"], job["error_message"]) == ("failed", row["error"])


def test_tags_notes_and_views_are_kept_in_the_folder(browser: TestClient, folder: Path) -> None:
    run_id = _rows(browser, query="lr = 0.2 and seed = 1", group="")[0]["id"]
    changed = browser.patch(f"/api/runs/{run_id}", json={"tags": ["best", "best"], "notes": "keep"})
    assert changed.json() == {"id": run_id, "tags": ["best"], "notes": "keep"}
    assert [row["id"] for row in _rows(browser, query="tag = best", group="")] == [run_id]
    labels = json.loads((folder / "sweep" / "lr 0.2 seed 1" / "labels.json").read_text())
    assert labels == {"tags": ["best"], "notes": "keep"}
    made = browser.post("/api/run-views", json={"name": "Best", "query": "tag = best"})
    assert made.status_code == 201
    again = browser.post("/api/run-views", json={"name": "Best"})
    assert (again.status_code, again.json()["code"]) == (409, "view_exists")
    view_id = made.json()["id"]
    assert browser.put(f"/api/run-views/{view_id}", json={"name": "Better"}).json()["name"] == "Better"
    assert [view["name"] for view in browser.get("/api/run-views").json()["items"]] == ["Better"]
    assert VIEWS_FILE in {path.name for path in folder.iterdir()}
    assert browser.delete(f"/api/run-views/{view_id}").status_code == 204
    assert browser.get("/api/run-views").json() == {"items": []}


def test_the_app_is_told_that_there_is_no_account(browser: TestClient, folder: Path) -> None:
    state = browser.get("/api/auth/state").json()
    assert (state["folder"], state["user"]["name"], state["csrf_token"]) == (str(folder), "runs", None)
    assert browser.get("/").headers["location"] == "/runs"


@pytest.mark.parametrize("path", ["/api/runs", "/api/auth/state", "/api/run-views"])
def test_without_the_link_nothing_is_told(stranger: TestClient, path: str) -> None:
    refused = stranger.get(path)
    assert (refused.status_code, refused.json()["code"]) == (401, "link_required")
    wrong = stranger.get("/open", params={"token": "guessed"})
    assert (wrong.status_code, wrong.json()["code"]) == (401, "link_unknown")


def test_the_link_of_the_started_browser_works_once(stranger: TestClient, access: Access) -> None:
    token = access.new_once()
    assert stranger.get("/open", params={"token": token}).status_code == 303
    assert stranger.get("/open", params={"token": token}).status_code == 401


def test_another_host_name_or_site_is_refused(browser: TestClient) -> None:
    rebound = browser.get("/api/runs", headers={"Host": "evil.example:8082"})
    assert (rebound.status_code, rebound.json()["code"]) == (400, "unknown_host")
    foreign = browser.post("/api/run-views", json={"name": "x"}, headers={"Origin": "http://evil.example"})
    assert (foreign.status_code, foreign.json()["code"]) == (403, "cross_site")


@pytest.mark.parametrize(
    "path", ["/api/jobs/..%2f..%2fetc", "/api/jobs/%2e%2e", "/assets/..%2f..%2fapp.py", "/api/jobs/sweep"]
)
def test_no_path_leads_out_of_the_folder(browser: TestClient, path: str) -> None:
    assert browser.get(path).status_code in {404, 422}
    unknown = browser.get("/api/jobs/00000000-0000-0000-0000-000000000000")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


def test_a_link_to_another_folder_is_no_run(browser: TestClient, folder: Path, tmp_path: Path) -> None:
    _report(tmp_path / "private", 0.5, 9)
    (folder / "shortcut").symlink_to(tmp_path / "private")
    assert len(_rows(browser, group="")) == 4


def test_a_page_that_follows_a_run_is_told_to_load_it_again(
    browser: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_app, "_POLL_SECONDS", 0.01)
    reporter = Reporter(folder / "running", telemetry_seconds=0, capture=False, announce=False)
    reporter.metrics({"train/loss": 1.0}, step=1)
    reporter.flush()
    (row,) = _rows(browser, query="name = running")
    assert row["status"] == "running"
    position = browser.get(f"/api/jobs/{row['id']}/metrics").json()["position"]
    reporter.metrics({"train/loss": 0.5}, step=2)
    reporter.close()
    told = browser.get(f"/api/jobs/{row['id']}/stream", params={"after": position}).text
    assert "event: reset" in told
    after = browser.get(f"/api/jobs/{row['id']}").json()
    assert (after["status"], after["position"] > position) == ("completed", True)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("traincard/events.jsonl", {"kind": "metric", "step": 1, "values": {"note": "text", "x": {"a": 1}}}),
        ("traincard/events.jsonl", {"kind": "metric", "step": 1, "values": {"train/loss": None}}),
        ("config.json", {"name": "\ud800", "learning_rate": {}}),
        ("labels.json", {"name": ["x"], "tags": 5, "notes": None}),
        ("labels.json", {"tags": ["\ud800"], "notes": "\udcff"}),
    ],
)
def test_a_run_that_holds_what_no_reporter_writes_hides_no_other(
    browser: TestClient, folder: Path, file: str, content: dict[str, Any]
) -> None:
    start = {"seq": 0, "t": 1.0, "kind": "start", "v": 1, "attempt": 1, "rank": 0, "segment": 1}
    (folder / "odd/traincard").mkdir(parents=True)
    (folder / "odd/traincard/events.jsonl").write_text(json.dumps(start) + "\n")
    with (folder / "odd" / file).open("a") as out:
        out.write(json.dumps({"seq": 1, "t": 2.0, **content}) + "\n")
    rows = _rows(browser, group="")
    assert len(rows) == 5
    ids = [row["id"] for row in rows]
    assert browser.get("/api/runs/compare", params={"run": ids}).status_code == 200
    for run_id in ids:
        assert browser.get(f"/api/jobs/{run_id}").status_code == 200
        assert browser.get(f"/api/jobs/{run_id}/metrics").status_code == 200
