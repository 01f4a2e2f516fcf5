"""Real processes that die, hang and save: what an observer says about them, and when."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.cli.run_view import RunView
from gpubloom.traincard import Finding, Limits, Reading, Reporter, diagnose, snapshot
from tests.traincard.conftest import StartScript, events_of
from tests.waiting import wait_until

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


def _look(reading: Reading) -> list[Finding]:
    reading.update()
    return diagnose(reading)


def test_one_of_eight_ranks_is_killed_and_named_with_its_time(
    start_script: StartScript, run_dir: Path
) -> None:
    processes = _start_ranks(start_script, 8)
    reading = Reading(run_dir)
    wait_until(lambda: _look(reading) or all(reading.ranks[rank].step for rank in reading.ranks))
    assert diagnose(reading) == []
    processes[5].kill()
    processes[5].wait()
    wait_until(lambda: _look(reading))
    found = diagnose(reading)
    assert [(finding.kind, finding.evidence["rank"], finding.evidence["state"]) for finding in found] == [
        ("degraded", 5, "dead")
    ]
    assert found[0].since == max(event.t for event in events_of(run_dir) if event.rank == 5)
    assert f"Rank 5 on {socket.gethostname()} is dead" in found[0].sentence
    shown = snapshot(reading)
    assert [rank["state"] for rank in shown["ranks"]] == ["alive"] * 5 + ["dead"] + ["alive"] * 2
    (variance,) = shown["rank_variance"]
    assert variance["highest"] == {"rank": 5, "value": 0.1}
    assert variance["spread"] == pytest.approx(1.0)


@pytest.mark.long
def test_a_rank_on_another_machine_is_missed_when_its_promise_is_broken(
    start_script: StartScript, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _is_missed_once_its_promise_is_broken(start_script, run_dir, monkeypatch, heartbeat=0.2, promise=30.0)


@pytest.mark.long
def test_with_the_usual_promises_a_rank_on_another_machine_is_named_within_15_seconds(
    start_script: StartScript, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _is_missed_once_its_promise_is_broken(start_script, run_dir, monkeypatch, heartbeat=3.0, promise=10.0)


def _is_missed_once_its_promise_is_broken(
    start_script: StartScript,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    heartbeat: float,
    promise: float,
) -> None:
    processes = _start_ranks(start_script, 3, heartbeat=heartbeat, promise=promise, pause=600)
    # The observer is elsewhere: it sees files, but no processes.
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    reading = Reading(run_dir)

    def heard_of(*ranks: int, times: int) -> bool:
        heartbeats = [event.rank for event in events_of(run_dir, "heartbeat")]
        return all(heartbeats.count(rank) >= times for rank in ranks)

    wait_until(lambda: heard_of(0, 1, 2, times=3))
    assert _look(reading) == []
    processes[1].kill()
    processes[1].wait()
    reading.update()
    last = reading.ranks[1].seen_at

    def the_others_went_on() -> bool:
        reading.update()
        return all(reading.ranks[rank].seen_at > last + 1.0 for rank in (0, 2))

    wait_until(the_others_went_on)
    assert diagnose(reading, now=last + promise) == []
    found = diagnose(reading, now=last + promise + 1.5)
    assert [(finding.evidence["rank"], finding.evidence["state"]) for finding in found] == [(1, "silent")]


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


@pytest.mark.long
def test_an_observer_that_comes_late_knows_at_once_who_is_missing(
    start_script: StartScript, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (process,) = _start_ranks(start_script, 1, heartbeat=0.2, promise=0.5, pause=60)
    wait_until(lambda: events_of(run_dir, "heartbeat"))
    process.kill()
    process.wait()
    reading = Reading(run_dir)
    reading.update()
    assert reading.status == "killed"
    (finding,) = diagnose(reading)
    assert "The training process is dead" in finding.sentence
    assert snapshot(run_dir)["failure"]["status"] == "killed"
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    wait_until(lambda: _look(Reading(run_dir)))
    (finding,) = _look(Reading(run_dir))
    assert finding.evidence["state"] == "silent"


@pytest.mark.parametrize(("stall_seconds", "save_seconds"), [(1.0, 4.0), (20.0, 60.0)])
def test_a_stall_is_named_within_the_configured_time_and_an_announced_save_is_none(
    run_dir: Path, open_reporter: Open, stall_seconds: float, save_seconds: float
) -> None:
    limits = Limits(stall_seconds=stall_seconds)
    reporter = open_reporter()
    reading = Reading(run_dir)
    for step in range(20):
        reporter.metric("loss", 1.0, step)
        reporter.heartbeat()
    reporter.flush()
    reading.update()
    reporter.heartbeat(expect_next_in=save_seconds)
    reporter.phase("save")
    reporter.flush()
    reading.update()
    main = reading.ranks[0]
    assert diagnose(reading, main.loop_seen_at + save_seconds, limits) == []
    reporter.phase("train")
    reporter.metric("loss", 1.0, 20)
    reporter.flush()
    reading.update()
    assert diagnose(reading, main.loop_seen_at + stall_seconds - 0.1, limits) == []
    (found,) = diagnose(reading, main.loop_seen_at + stall_seconds + 0.1, limits)
    assert (found.kind, found.since) == ("stalled", main.loop_last)
    reporter.metric("loss", 1.0, 21)
    reporter.flush()
    reading.update()
    assert diagnose(reading, main.loop_seen_at, limits) == []


def test_a_loop_that_stops_is_called_stalled_by_the_clock(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.metric("loss", 1.0, 1)
    reporter.flush()
    reading = Reading(run_dir)
    reading.update()
    limits = Limits(stall_seconds=0.5)
    wait_until(lambda: [found.kind for found in diagnose(reading, limits=limits)] == ["stalled"])


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
