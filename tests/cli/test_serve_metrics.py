"""`bloom train --serve-metrics` as a person uses it: a real training, paused and resumed over HTTP."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpubloom.metrics_server.process import listen
from gpubloom.traincard import ControlFile
from gpubloom.traincard.reader import load_latest
from tests.cli.test_train import SMALL, TEXT, bloom, start
from tests.errors import printed
from tests.waiting import wait_until

TIMEOUT = 120.0


@pytest.mark.long
def test_a_run_is_paused_resumed_and_changed_while_its_command_waits(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    run_dir = tmp_path / "run"
    arguments = ("train", "--train-path", "text.txt", *SMALL, "--set", "epochs=40", "--run-dir", "run")
    process = start(*arguments, "--serve-metrics", folder=tmp_path, METRICS_SERVER_ADDR="127.0.0.1:0")
    assert process.stdout is not None
    printed = ""
    while "#token=" not in printed:
        printed = process.stdout.readline()
        assert printed, process.communicate()
    address, _, token = printed.removeprefix("Dashboard: ").strip().partition("#token=")

    def ask(path: str, command: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if command is None else json.dumps(command).encode()
        request = urllib.request.Request(f"{address}{path}", body, {"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def status() -> dict[str, Any]:
        found: dict[str, Any] = ask("api/run")["status"]
        return found

    wait_until(lambda: (load_latest(run_dir) or {}).get("step"))
    ask("api/control", {"set": {"learning_rate": 1e-4, "momentum": 2}, "want": "pause"})
    wait_until(lambda: status()["status"] == "paused")
    paused_at = status()["step"]
    assert process.poll() is None
    control = ask("api/run")["control"]
    assert "unknown setting" in control["refused"]["momentum"]
    ask("api/control", {"want": "run"})
    wait_until(lambda: (load_latest(run_dir) or {}).get("attempt") == 2 and status()["step"] > paused_at)
    # The same training, told to end: as it would by itself, only sooner.
    ControlFile(run_dir).want("cancel")
    output, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (0, "")
    assert "Paused. Resume the run in the dashboard" in output
    assert output.strip().endswith("Cancelled.")


def test_a_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    with listen("127.0.0.1:0") as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / ".env").write_text(f"METRICS_SERVER_ADDR={address}\n")
        done = bloom(
            "train", "--train-path", "text.txt", "--serve-metrics", "--run-dir", "run", folder=tmp_path
        )
    assert done.returncode == 2
    assert printed(done.stderr) == ["cannot_listen"]
    assert address in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_is_not_served(tmp_path: Path) -> None:
    done = bloom("runs", "serve", "gone", folder=tmp_path)
    assert done.returncode == 2
    assert printed(done.stderr) == ["run_not_found"]
