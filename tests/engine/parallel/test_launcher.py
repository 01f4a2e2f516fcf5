"""The launcher ends a run with the error of the process that failed, and restarts only what was lost."""

import threading
from pathlib import Path

import pytest

from gpubloom.engine.parallel.launcher import Launcher, Member


def launched(tmp_path: Path, *scripts: str, most_restarts: int = 0) -> int:
    members = [Member(f"Rank {rank}", ["-c", script], {}) for rank, script in enumerate(scripts)]
    assert threading.current_thread() is threading.main_thread()
    return Launcher(
        lambda restarts: members,
        lambda: None,
        {},
        most_restarts=most_restarts,
    ).launch()


def test_an_error_of_a_worker_process_ends_the_run_with_its_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = "import json,os,pathlib;pathlib.Path(os.environ['TORCHELASTIC_ERROR_FILE']).write_text("
    raising = words + "json.dumps({'message': {'message': 'OSError: no room'}})); raise SystemExit(1)"
    assert launched(tmp_path, f"raise SystemExit({75})", raising) == 1
    assert capfd.readouterr().err.splitlines() == ["Rank 1 ended with exit status 1: OSError: no room"]


def test_a_worker_process_that_rejects_its_input_ends_the_run_at_once(tmp_path: Path) -> None:
    # Were the other one waited for, this test would run out of time.
    assert launched(tmp_path, "import time; time.sleep(3600)", "raise SystemExit(2)") == 2


def test_what_only_lost_the_others_is_started_again_and_then_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launched(tmp_path, "raise SystemExit(75)", "raise SystemExit(75)", most_restarts=1) == 1
    assert "This happened 2 times without a newer checkpoint" in capfd.readouterr().err
