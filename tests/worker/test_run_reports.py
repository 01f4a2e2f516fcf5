"""What a run says about its data reaches the API, from a real server, worker and trainer."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_models import ALTERNATING, make_tiny_model, mostly_refused_rows
from tests.worker.test_studio_by_api import House

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
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("reports") / "home")
    try:
        yield house
    finally:
        house.close()


def test_rows_used_and_warnings_are_told_once_the_data_is_read_over_a_pause_and_at_the_end(
    house: House, tmp_path: Path
) -> None:
    model = house.bring_model(make_tiny_model(tmp_path / "strict", template=ALTERNATING))
    data = house.bring_data("chats.jsonl", mostly_refused_rows().encode())
    job_id = house.train(data["id"], model, CONFIG)
    path = f"/api/training-jobs/{job_id}"

    running = house.until(path, lambda job: job["rowsUsed"] is not None)
    assert running["status"] == "running"
    _says_what_it_uses(running)
    house.until(path, lambda job: (job["summary"].get("step") or 0) > 1)
    house.post(f"{path}/pause", {})
    _says_what_it_uses(house.until(path, lambda job: job["status"] == "paused"))
    lines = _output(house, job_id)
    assert any(line.startswith("paused at step ") for line in lines), lines
    assert lines[-1] == "[bloom-agent] The run was paused."
    assert not any("exit code" in line for line in lines)

    house.post(f"{path}/resume", {})
    _says_what_it_uses(house.completed(job_id))
    lines = _output(house, job_id)
    for beginning in (
        "warning: data.jsonl: 100 of 120 rows cannot be used: ",
        "training starts: ",
        "step 1/",
        "resumed from step ",
        "evaluation at step ",
        "saved checkpoint step-",
        "completed at step ",
    ):
        assert any(line.startswith(beginning) for line in lines), beginning
    assert lines.count("data: 20 of 120 rows used") == 2, "once in each attempt"

    listed = _bloom(house, "jobs", "list")
    assert "20 of 120 rows used" in listed
    shown = _bloom(house, "jobs", "show", job_id)
    assert "20 of 120 rows used" in shown
    assert "  warning: data.jsonl: 100 of 120 rows cannot be used" in shown
    assert "\nwarning: data.jsonl: 100 of 120 rows cannot be used" in _bloom(house, "jobs", "logs", job_id)


def _says_what_it_uses(job: dict[str, Any]) -> None:
    assert (job["rowsUsed"], job["rowsTotal"]) == (20, 120)
    about_rows = [warning for warning in job["warnings"] if "rows cannot be used" in warning["line"]]
    assert [(warning["level"], warning["attempt"]) for warning in about_rows] == [("warning", 1)]


def _output(house: House, job_id: str) -> list[str]:
    lines: list[str] = house.get(f"/api/training-jobs/{job_id}/logs", lines=2_000)["lines"]
    return lines


def _bloom(house: House, *arguments: str) -> str:
    environment = os.environ | {"BLOOM_SERVER": house.server.address, "BLOOM_TOKEN": house.token}
    command = [sys.executable, "-m", "gpubloom.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
