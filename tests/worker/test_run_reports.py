"""What a run says about its data reaches the API, from a real server, worker and trainer."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_models import ALTERNATING, make_tiny_model, mostly_refused_rows
from tests.worker.test_studio_by_api import LiveApp

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

CONFIG = {
    "method": "lora",
    "epochs": 40,
    "batch_size": 1,
    "device": "cpu",
    "model": {"context_length": 64},
    "data": {"packing": False},
    "checkpoint": {"every_epochs": 10},
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    app = LiveApp(tmp_path_factory.mktemp("reports") / "home")
    try:
        yield app
    finally:
        app.close()


def test_rows_used_and_warnings_are_told_once_the_data_is_read_over_a_pause_and_at_the_end(
    app: LiveApp, tmp_path: Path
) -> None:
    model = app.bring_model(make_tiny_model(tmp_path / "strict", template=ALTERNATING))
    data = app.bring_data("chats.jsonl", mostly_refused_rows().encode())
    job_id = app.train(data["id"], model, CONFIG)
    path = f"/api/jobs/{job_id}"

    running = app.until(path, lambda job: job["rows_used"] is not None)
    assert running["status"] == "running"
    _says_what_it_uses(running)
    app.until(path, lambda job: (job["summary"].get("step") or 0) > 1)
    app.post(f"{path}/pause", {})
    _says_what_it_uses(app.until(path, lambda job: job["status"] == "paused"))
    lines = _output(app, job_id)
    assert any(line.startswith("paused at step ") for line in lines), lines
    assert lines[-1] == "[bloom-agent] The run was paused."
    assert not any("exit code" in line for line in lines)

    app.post(f"{path}/resume", {})
    _says_what_it_uses(app.completed(job_id))
    lines = _output(app, job_id)
    for beginning in (
        "warning: chats.jsonl: 100 of 120 rows cannot be used: ",
        "training starts: ",
        "step 1/",
        "resumed from step ",
        "evaluation at step ",
        "saved checkpoint step-",
        "completed at step ",
    ):
        assert any(line.startswith(beginning) for line in lines), beginning
    assert lines.count("data: 20 of 120 rows used") == 2, "once in each attempt"

    listed = _bloom(app, "jobs", "list")
    assert "20 of 120 rows used" in listed
    shown = _bloom(app, "jobs", "show", job_id)
    assert "20 of 120 rows used" in shown
    assert "  warning: chats.jsonl: 100 of 120 rows cannot be used" in shown
    assert "\nwarning: chats.jsonl: 100 of 120 rows cannot be used" in _bloom(app, "jobs", "logs", job_id)


def _says_what_it_uses(job: dict[str, Any]) -> None:
    assert (job["rows_used"], job["rows_total"]) == (20, 120)
    about_rows = [warning for warning in job["warnings"] if "rows cannot be used" in warning["line"]]
    assert [(warning["level"], warning["attempt"]) for warning in about_rows] == [("warning", 1)]


def _output(app: LiveApp, job_id: str) -> list[str]:
    lines: list[str] = app.get(f"/api/jobs/{job_id}/logs", limit=2_000)["lines"]
    return lines


def _bloom(app: LiveApp, *arguments: str) -> str:
    environment = os.environ | {"BLOOM_SERVER": app.server.address, "BLOOM_TOKEN": app.token}
    command = [sys.executable, "-m", "gpubloom.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
