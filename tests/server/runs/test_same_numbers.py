"""The same run on three pages: its card, `bloom ui`, and the page of a run that was sent to a server.

Twenty generated runs with spikes, NaN, infinities, resumed attempts, several ranks, failures and checkpoints.
Each page draws its own JSON; the numbers in it have to agree with each other and with what was reported.
"""

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from gpubloom.server.accounts.tables import User
from gpubloom.server.folder.app import Access, create_folder_app
from gpubloom.traincard import Reporter
from gpubloom.traincard.card.content import run_content
from gpubloom.traincard.sync.delta import DeltaBuilder
from gpubloom.traincard.sync.upload_batch import UploadBatch
from tests.server.installation import Browser, Server

RUNS = 20
# A card writes seven digits, and condensed buckets nine.
DIGITS = 1e-6


@dataclass
class Reported:
    """What a run said: values by series of rank 0, in the order in which they were reported."""

    values: dict[str, list[tuple[int, int, float]]] = field(default_factory=lambda: defaultdict(list))
    ranks: int = 1
    attempts: int = 1

    def finite(self, name: str) -> list[float]:
        return [value for _, _, value in self.values[name] if math.isfinite(value)]


def generate(run_dir: Path, number: int) -> Reported:
    """A run directory; the number decides what happens in it."""
    chance = random.Random(number)
    said = Reported(ranks=chance.choice([1, 1, 2, 3]), attempts=chance.choice([1, 1, 2, 3]))
    steps = chance.choice([30, 200, 900, 2_500])
    diverges, spiky, fails = number % 5 == 1, number % 3 == 0, number % 4 == 2
    first = 1
    for attempt in range(1, said.attempts + 1):
        last = attempt == said.attempts
        end = steps if last else max(2, steps * attempt // said.attempts)
        reporter = _reporter(run_dir, attempt=attempt, resumed_from_step=first - 1 if attempt > 1 else None)
        reporter.describe({"config": {"learning_rate": 10 ** chance.uniform(-5, -2), "seed": number}})
        reporter.progress(step=first - 1, total_steps=steps)
        for step in range(first, end + 1):
            loss = 1 + 2 * math.exp(-step / 200) + chance.gauss(0, 0.05)
            if spiky and chance.random() < 0.01:
                loss *= 20
            if diverges and last and step > end - 20:
                loss = chance.choice([math.nan, math.inf, math.nan])
            _say(reporter, said, attempt, step, {"train/loss": loss, "train/grad_norm": chance.random()})
            if step % 25 == 0:
                _say(reporter, said, attempt, step, {"eval/loss": loss + 0.1})
            if step % 100 == 0:
                reporter.checkpoint(f"checkpoints/{step}", step=step, metrics={"eval/loss": loss + 0.1})
        reporter.log(f"attempt {attempt} warns", level="warning")
        if fails and last:
            reporter.on_exception(RuntimeError(f"run {number} broke"))
        reporter.close()
        # The next attempt repeats some steps.
        first = max(1, end - chance.randrange(10))
    for rank in range(1, said.ranks):
        with _reporter(run_dir, attempt=said.attempts, rank=rank, world_size=said.ranks) as other:
            for step in range(1, 40):
                other.metrics({"train/loss": chance.random(), "train/step_seconds": 0.1 * rank}, step=step)
    return said


def _reporter(run_dir: Path, **options: Any) -> Reporter:
    return Reporter(run_dir, telemetry_seconds=0, capture=False, announce=False, what_ran=False, **options)


def _say(reporter: Reporter, said: Reported, attempt: int, step: int, values: dict[str, float]) -> None:
    reporter.metrics(values, step=step)
    for name, value in values.items():
        said.values[name].append((attempt, step, value))


@dataclass
class Page:
    """What one page says of a run, in the same words for all pages."""

    status: str
    step: int
    attempt: int
    restarts: int
    seconds: float
    findings: list[str]
    error: str | None
    ranks: list[int]
    last: dict[str, Any]
    mean: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    count: dict[str, int]
    has_gaps: dict[str, bool]
    checkpoints: list[int]
    best: int | None


_ENDS = {"completed": "completed", "ended": "completed", "failed": "failed"}


def card_page(run_dir: Path) -> Page:
    content = run_content(run_dir)
    state, failure = content["status"], content["failure"]
    lines = {
        metric["name"]: [line for line in metric["lines"] if line["rank"] == 0]
        for metric in content["metrics"]
    }
    lines = {name: found for name, found in lines.items() if found}
    items = [item for item in content["checkpoints"]["items"] if not item["removed"]]

    def columns(name: str) -> list[tuple[float, float, float, int]]:
        found = []
        for line in lines[name]:
            low, high, counts = line["low"] or line["y"], line["high"] or line["y"], line["n"]
            for index, y in enumerate(line["y"]):
                if y is not None:
                    found.append((y, low[index], high[index], counts[index] if counts else 1))
        return found

    return Page(
        status=_ENDS[state["status"]],
        step=state["step"],
        attempt=state["attempt"],
        restarts=state["restart_count"],
        seconds=state["elapsed_seconds"],
        findings=sorted({finding["kind"] for finding in content["findings"]}),
        error=None if failure is None else f"{failure['type']}: {_message(content)}",
        ranks=[rank["rank"] for rank in content["ranks"]] if len(content["ranks"]) > 1 else [],
        last={
            metric["name"]: (metric["last"]["step"], metric["last"]["value"])
            for metric in content["metrics"]
            if metric["name"] in lines
        },
        has_gaps={name: any(line["gaps"] for line in found) for name, found in lines.items()},
        checkpoints=sorted(item["step"] for item in items),
        best=next((item["step"] for item in items if item["best"]), None),
        **_figures({name: columns(name) for name in lines}),
    )


def _message(content: dict[str, Any]) -> str:
    return next(a["error"]["message"] for a in reversed(content["attempts"]) if a["error"] is not None)


def api_page(client: TestClient, run_id: str) -> Page:
    job = client.get(f"/api/jobs/{run_id}").json()
    curves = client.get(f"/api/jobs/{run_id}/metrics").json()["series"]
    curves = [curve for curve in curves if curve["rank"] == 0 and curve["axis"] == "step"]
    saved = client.get(f"/api/jobs/{run_id}/checkpoints").json()["items"]
    summary = job["summary"]
    # The figures above the charts and the ends of the lines are the same values.
    for curve in curves:
        shown = summary["values"][curve["name"]]
        assert (curve["last"]["x"], curve["last"]["value"]) == (shown["step"], shown["value"])
    columns = {
        curve["name"]: list(zip(curve["value"], curve["low"], curve["high"], curve["count"], strict=True))
        for curve in curves
    }
    return Page(
        status=job["status"],
        step=summary["step"],
        attempt=job["attempt"],
        restarts=summary["restart_count"],
        seconds=job["active_seconds"],
        findings=sorted({finding["kind"] for finding in summary["findings"]}),
        error=job["error_message"],
        ranks=[rank["rank"] for rank in summary["processes"]["ranks"]],
        last={curve["name"]: (curve["last"]["x"], curve["last"]["value"]) for curve in curves},
        has_gaps={curve["name"]: bool(curve["gaps"]["x"]) for curve in curves},
        checkpoints=sorted(item["step"] for item in saved),
        best=next((item["step"] for item in saved if item["best"]), None),
        **_figures(columns),
    )


def _figures(columns: dict[str, list[tuple[float, float, float, int]]]) -> dict[str, Any]:
    known = {name: rows for name, rows in columns.items() if rows}
    return {
        "mean": {
            name: sum(row[0] * row[3] for row in rows) / sum(row[3] for row in rows)
            for name, rows in known.items()
        },
        "low": {name: min(row[1] for row in rows) for name, rows in known.items()},
        "high": {name: max(row[2] for row in rows) for name, rows in known.items()},
        "count": {name: sum(row[3] for row in rows) for name, rows in known.items()},
    }


def agree(one: Page, other: Page) -> None:
    for name in ("status", "step", "attempt", "restarts", "error", "ranks", "checkpoints", "best", "count"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.findings == other.findings
    assert one.has_gaps == other.has_gaps
    assert one.seconds == pytest.approx(other.seconds, abs=0.06)
    assert one.last.keys() == other.last.keys()
    for name, (step, value) in one.last.items():
        assert other.last[name][0] == step, name
        same = value if isinstance(value, str) else pytest.approx(value, rel=DIGITS)
        assert other.last[name][1] == same, name
    for name in ("mean", "low", "high"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=DIGITS), name


def send(browser: Browser, run_dir: Path) -> str:
    run_id = str(uuid4())
    body = {"id": run_id, "project": "Generated", "name": run_dir.name, "host": "elsewhere"}
    assert browser.put("/api/sent-runs", json=body).status_code == 200
    news = DeltaBuilder(run_dir, 4 << 20).pack(DeltaBuilder.first_state(run_dir, {}), large=True, final=True)
    assert news is not None
    entries, content, _ = news
    batch = UploadBatch(run_id, 1, 1, 2.0, entries, content)
    kind = {"Content-Type": "application/octet-stream"}
    answer = browser.post("/api/sent-runs/batches", content=batch.to_bytes(), headers=kind)
    assert answer.status_code == 200, answer.text
    return run_id


@pytest.mark.long
def test_card_folder_page_and_sent_run_show_the_same_numbers(
    server: Server, member: User, tmp_path: Path
) -> None:
    access = Access()
    app = create_folder_app(tmp_path / "runs", access, cache=tmp_path / "cache")
    ada = server.signed_in(member)
    seen = Reported(ranks=0, attempts=0)
    with TestClient(app, base_url="http://127.0.0.1:8082", follow_redirects=False) as folder:
        reported = {f"run {n}": generate(tmp_path / "runs" / f"run {n}", n) for n in range(RUNS)}
        assert folder.get("/open", params={"token": access.token}).status_code == 303
        listed = folder.get("/api/runs", params={"group": "", "column": "train/loss.min"}).json()
        rows = {row["name"]: row for row in listed["sections"][0]["rows"]}
        assert len(rows) == RUNS
        for name, said in reported.items():
            run_dir = tmp_path / "runs" / name
            card = card_page(run_dir)
            page = api_page(folder, rows[name]["id"])
            sent = api_page(ada, send(ada, run_dir))
            agree(card, page)
            agree(card, sent)
            # Not only with each other: with what the run reported.
            for series, points in said.values.items():
                assert card.last[series][0] == points[-1][1]
                assert card.count[series] == len(said.finite(series))
                assert card.low[series] == pytest.approx(min(said.finite(series)), rel=DIGITS)
                assert card.high[series] == pytest.approx(max(said.finite(series)), rel=DIGITS)
            assert rows[name]["cells"]["train/loss.min"] == pytest.approx(card.low["train/loss"], rel=DIGITS)
            seen.ranks, seen.attempts = max(seen.ranks, said.ranks), max(seen.attempts, said.attempts)
    # The generator made what this test is about.
    assert (seen.ranks, seen.attempts) == (3, 3)
