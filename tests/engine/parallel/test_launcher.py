"""The launcher ends a run with the error of the process that failed, and restarts only what was lost.

A stop that the leader did not live to carry out ends the others too: nothing is left to save.
"""

import os
import signal
import threading
from pathlib import Path

import pytest

from gpubloom.engine.parallel import launcher
from gpubloom.engine.parallel.launcher import Launcher, Member
from tests.waiting import wait_until

FOREVER = "import time; time.sleep(3600)"


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
    assert launched(tmp_path, FOREVER, "raise SystemExit(2)") == 2


def test_what_only_lost_the_others_is_started_again_and_then_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launched(tmp_path, "raise SystemExit(75)", "raise SystemExit(75)", most_restarts=1) == 1
    assert "This happened 2 times without a newer checkpoint" in capfd.readouterr().err


def test_a_leader_that_still_saves_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_STOP_SECONDS", 0.0)
    ended = tmp_path / "ended"
    # The other one has nothing to write and ends first.
    other = f"import atexit, pathlib; atexit.register(pathlib.Path({str(ended)!r}).touch)"
    leader = (
        "import pathlib, time\n"
        f"while not pathlib.Path({str(ended)!r}).exists(): time.sleep(0.01)\n"
        "time.sleep(1)"
    )
    assert launched(tmp_path, leader, other) == 0


def stopped(leader: Path, monkeypatch: pytest.MonkeyPatch) -> threading.Thread:
    """Sends Ctrl-C to this process, the launcher, once the leader runs."""
    # Were the others given time, the tests would run out of theirs.
    monkeypatch.setattr(launcher, "_STOP_SECONDS", 3600.0)

    def stop() -> None:
        wait_until(leader.exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def test_processes_that_wait_for_a_leader_that_was_stopped_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = tmp_path / "running"
    thread = stopped(running, monkeypatch)
    # As while it imports its modules: Ctrl-C ends it.
    leader = f"import pathlib; pathlib.Path({str(running)!r}).touch(); {FOREVER}"
    assert launched(tmp_path, leader, FOREVER) != 0
    thread.join()


def test_a_process_that_lost_a_stopped_leader_does_not_reject_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    running, ended = tmp_path / "running", tmp_path / "ended"
    thread = stopped(running, monkeypatch)
    leader = (
        "import pathlib, signal, sys, time\n"
        f"def end(*_):\n    pathlib.Path({str(ended)!r}).touch()\n    time.sleep(0.5)\n    sys.exit(130)\n"
        f"signal.signal(signal.SIGINT, end)\npathlib.Path({str(running)!r}).touch()\n{FOREVER}"
    )
    # As when the leader leaves while the processes connect.
    other = (
        "import json, os, pathlib, sys, time\n"
        f"while not pathlib.Path({str(ended)!r}).exists(): time.sleep(0.01)\n"
        "file = pathlib.Path(os.environ['TORCHELASTIC_ERROR_FILE'])\n"
        "file.write_text(json.dumps({'message': {'message': 'error[rendezvous_failed]: lost'}}))\n"
        "sys.exit(2)"
    )
    assert launched(tmp_path, leader, other) not in {0, 2}
    thread.join()
    assert "rendezvous_failed" not in capfd.readouterr().err
