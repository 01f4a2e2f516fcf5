"""Real processes that die, hang and save: what an observer says about them, and when."""

import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.cli.run_view import RunView
from gpubloom.traincard import Finding, Limits, Reading, Reporter, diagnose, snapshot
from tests.traincard.conftest import StartScript

Open = Callable[..., Reporter]

_RANK = """
    import time
    from gpubloom.traincard import Reporter, writer
    writer._HEARTBEAT_SECONDS, writer.OWN_PROMISE_SECONDS = {heartbeat}, {promise}
    reporter = Reporter(telemetry_seconds=0)
    print("ready", flush=True)
    step = 0
    while True:
        step += 1
        reporter.metrics({{"step_seconds": 0.05 * (1 + (reporter.rank == 5))}}, step)
        time.sleep({pause})
"""


def _start_ranks(
    start_script: StartScript, count: int, *, heartbeat: float = 3, promise: float = 10, pause: float = 0.05
) -> list:  # type: ignore[type-arg]
    code = _RANK.format(heartbeat=heartbeat, promise=promise, pause=pause)
    processes = [start_script(code, RANK=str(rank), WORLD_SIZE=str(count)) for rank in range(count)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return processes


def _watch(
    reading: Reading, seconds: float, limits: Limits | None = None, *, until: str | None = None
) -> tuple[list[Finding], float]:
    """Findings as soon as there are any (of a kind), or after so many seconds; and how long that took."""
    begin = time.monotonic()
    while True:
        reading.update()
        found = diagnose(reading, limits=limits)
        waited = time.monotonic() - begin
        if waited > seconds or (found and until in {None, found[0].kind}):
            return found, waited
        time.sleep(0.1)


def test_one_of_eight_ranks_is_killed_and_named_with_its_time(
    start_script: StartScript, run_dir: Path
) -> None:
    processes = _start_ranks(start_script, 8)
    reading = Reading(run_dir)
    found, _ = _watch(reading, 1.0)
    assert found == []
    processes[5].kill()
    killed_at = time.time()
    processes[5].wait()
    found, waited = _watch(reading, 15.0)
    assert waited < 15.0
    assert [(finding.kind, finding.evidence["rank"], finding.evidence["state"]) for finding in found] == [
        ("degraded", 5, "dead")
    ]
    assert found[0].since == pytest.approx(killed_at, abs=1.0)
    assert f"Rank 5 on {socket.gethostname()} is dead" in found[0].sentence
    shown = snapshot(reading)
    assert [rank["state"] for rank in shown["ranks"]] == ["alive"] * 5 + ["dead"] + ["alive"] * 2
    (variance,) = shown["rank_variance"]
    assert variance["highest"] == {"rank": 5, "value": 0.1}
    assert variance["spread"] == pytest.approx(1.0)


def test_a_rank_on_another_machine_is_missed_when_its_promise_is_broken(
    start_script: StartScript, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = _start_ranks(start_script, 3, heartbeat=0.2, promise=1.0, pause=60)
    # The observer is elsewhere: it sees files, but no processes.
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    reading = Reading(run_dir)
    found, _ = _watch(reading, 3.0)
    assert found == []
    processes[1].kill()
    found, waited = _watch(reading, 10.0)
    assert [(finding.evidence["rank"], finding.evidence["state"]) for finding in found] == [(1, "silent")]
    assert waited < 5.0


@pytest.mark.parametrize("observer", ["here", "elsewhere"])
def test_a_copy_of_a_running_run_is_not_called_killed(
    start_script: StartScript, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observer: str
) -> None:
    _start_ranks(start_script, 1, heartbeat=0.2, promise=1.0, pause=60)
    if observer == "elsewhere":
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    copy = tmp_path / "pulled"
    # As a mirror brings it: without locks.
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("lock*", ".*"))
    reading = Reading(copy)
    reading.update()
    assert reading.status == snapshot(reading)["status"]["status"] == "running"
    view = RunView(copy)
    view.look()
    assert view.status == "running"


def test_an_observer_that_comes_late_knows_at_once_who_is_missing(
    start_script: StartScript, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (process,) = _start_ranks(start_script, 1, heartbeat=0.2, promise=0.5, pause=60)
    time.sleep(0.8)
    process.kill()
    process.wait()
    reading = Reading(run_dir)
    reading.update()
    assert reading.status == "killed"
    (finding,) = diagnose(reading)
    assert "The training process is dead" in finding.sentence
    assert snapshot(run_dir)["failure"]["status"] == "killed"
    time.sleep(2)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    (finding,) = diagnose_afresh(run_dir)
    assert finding.evidence["state"] == "silent"


def diagnose_afresh(run_dir: Path) -> list[Finding]:
    reading = Reading(run_dir)
    reading.update()
    return diagnose(reading)


def test_a_stall_is_named_within_the_configured_time_and_an_announced_save_is_none(
    run_dir: Path, open_reporter: Open
) -> None:
    _stall_and_save(run_dir, open_reporter, stall_seconds=1.0, save_seconds=4.0)


@pytest.mark.long
def test_with_real_times_a_stall_is_named_and_a_save_of_a_minute_is_not(
    run_dir: Path, open_reporter: Open
) -> None:
    _stall_and_save(run_dir, open_reporter, stall_seconds=20.0, save_seconds=60.0)


def _stall_and_save(run_dir: Path, open_reporter: Open, stall_seconds: float, save_seconds: float) -> None:
    limits = Limits(stall_seconds=stall_seconds)
    reporter = open_reporter()
    reading = Reading(run_dir)
    for step in range(20):
        reporter.metric("loss", 1.0, step)
        reporter.heartbeat()
        time.sleep(0.02)
    reporter.heartbeat(expect_next_in=save_seconds)
    reporter.phase("save")
    found, _ = _watch(reading, save_seconds - 0.5, limits)
    assert found == []
    reporter.phase("train")
    reporter.metric("loss", 1.0, 20)
    reporter.flush()
    reading.update()
    found, waited = _watch(reading, stall_seconds + 5, limits)
    assert [finding.kind for finding in found] == ["stalled"]
    assert stall_seconds - 0.5 <= waited <= stall_seconds + 1.0
    assert found[0].since == pytest.approx(time.time() - waited, abs=1.5)
    reporter.metric("loss", 1.0, 21)
    reporter.flush()
    reading.update()
    assert diagnose(reading, limits=limits) == []


@pytest.mark.long
def test_with_real_times_a_rank_elsewhere_is_named_within_15_seconds(
    start_script: StartScript, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = _start_ranks(start_script, 8, pause=60)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    reading = Reading(run_dir)
    found, _ = _watch(reading, 30.0)
    assert found == []
    processes[6].kill()
    found, waited = _watch(reading, 15.0)
    assert [finding.evidence["rank"] for finding in found] == [6]
    assert waited < 15.0


def test_restarts_are_marked_with_their_reason_and_the_steps_they_repeat(
    run_dir: Path, open_reporter: Open, start_script: StartScript
) -> None:
    start_script("""
        import os
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        for step in range(30):
            reporter.metric("loss", 1.0, step)
        reporter.flush()
        os.kill(os.getpid(), 9)
    """).wait()
    for number, ending in enumerate(("preempted", "failed", "completed")):
        reporter = open_reporter(resumed_from_step=20 + number * 10)
        for step in range(20 + number * 10, 40 + number * 10):
            reporter.metric("loss", 1.0, step)
        reporter.finish(ending, "OutOfMemoryError: CUDA out of memory" if ending == "failed" else None)
        reporter.close()
    shown = snapshot(run_dir)
    assert [
        (mark["attempt"], mark["step"], mark["previous_step"], mark["repeated_steps"], mark["reason"])
        for mark in shown["discontinuities"]
    ] == [
        (2, 20, 29, 9, "killed"),
        (3, 30, 39, 9, "preempted"),
        (4, 40, 49, 9, "failed: OutOfMemoryError: CUDA out of memory"),
    ]
    assert [attempt["status"] for attempt in shown["attempts"]] == [
        "killed", "preempted", "failed", "completed",
    ]  # fmt: skip
    assert [line["attempt"] for line in shown["metrics"][0]["lines"]] == [1, 2, 3, 4]
    assert shown["status"]["restart_count"] == 3
