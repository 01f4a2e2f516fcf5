"""Restarts, ranks and the lock."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.traincard import Reader, Reporter, RunInUseError, RunLock, load_curves, load_latest
from tests.errors import raises
from tests.traincard.conftest import StartScript, events_of

Open = Callable[..., Reporter]


def test_a_restart_is_a_new_attempt_and_keeps_the_repeated_steps(run_dir: Path, open_reporter: Open) -> None:
    first = open_reporter()
    for step in range(10):
        first.metric("loss", 1.0, step)
    first.close()
    second = open_reporter(resumed_from_step=5)
    assert second.attempt == 2
    for step in range(5, 15):
        second.metric("loss", 2.0, step)
    second.close()
    curves = load_curves(run_dir).attempts("train/loss")
    assert {attempt: [bucket.last_step for bucket in curve.buckets] for attempt, curve in curves.items()} == {
        1: list(range(10)),
        2: list(range(5, 15)),
    }
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["attempt"], latest["restart_count"], latest["resumed_from_step"]) == (2, 1, 5)


def test_latest_keeps_the_last_values_until_the_new_attempt_reports(
    run_dir: Path, open_reporter: Open
) -> None:
    first = open_reporter()
    first.metric("loss", 1.0, 1)
    first.finish("failed")
    first.close()
    open_reporter()
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["values"]["train/loss"]["value"]) == ("running", 1.0)


def test_the_agent_may_number_the_attempt(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_ATTEMPT", "7")
    assert open_reporter().attempt == 7


def test_two_reporters_one_after_the_other_in_one_attempt_continue_the_sequence(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_ATTEMPT", "1")
    for value in (1.0, 2.0):
        reporter = open_reporter()
        reporter.metric("loss", value, 1)
        reporter.close()
    events = events_of(run_dir)
    assert [event.seq for event in events] == [0, 1, 2, 3, 4, 5]
    assert [event.fields["segment"] for event in events if event.kind == "start"] == [1, 2]


def test_following_across_a_restart_misses_and_repeats_nothing(run_dir: Path, open_reporter: Open) -> None:
    reader = Reader(run_dir)
    seen = []
    for attempt in range(3):
        reporter = open_reporter()
        for step in range(5):
            reporter.metric("loss", 1.0, step)
            if step == 2:
                reporter.flush()
                seen += reader.read_new()
        reporter.close()
        if attempt == 1:
            seen += reader.read_new()
    seen += reader.read_new()
    assert [(event.attempt, event.seq) for event in seen] == [
        (event.attempt, event.seq) for event in events_of(run_dir)
    ]
    assert sum(event.kind == "metric" for event in seen) == 15


def test_ranks_write_their_own_streams_and_charts_draw_rank_0(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = open_reporter()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    other = open_reporter()
    main.metric("loss", 1.0, 1)
    other.metric("loss", 9.0, 1)
    other.heartbeat(expect_next_in=120)
    other.close()
    main.close()
    assert (run_dir / "traincard" / "events.rank1.jsonl").is_file()
    assert (main.attempt, other.attempt) == (1, 1)
    by_rank = {event.rank: event.fields["values"]["loss"] for event in events_of(run_dir, "metric")}
    assert by_rank == {0: 1.0, 1: 9.0}
    assert [event.rank for event in Reader(run_dir, ranks=[1]).read_new()] == [1] * 4
    assert load_curves(run_dir).attempts("train/loss")[1].buckets[0].last == 1.0
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["values"]["train/loss"]["value"] == 1.0
    assert events_of(run_dir, "heartbeat")[0].fields["expect_next_in"] == 120


def test_attempts_numbered_at_the_same_time_are_different(start_script: StartScript, run_dir: Path) -> None:
    script = """
        import sys
        from gpubloom.traincard import RunFiles
        from gpubloom.traincard.stream import claim_attempt
        print(*(claim_attempt(RunFiles(sys.argv[1]), 0) for _ in range(50)))
    """
    processes = [start_script(script, str(run_dir)) for _ in range(3)]
    numbers = [int(word) for process in processes for word in process.communicate()[0].split()]
    assert sorted(numbers) == list(range(1, 151))


def test_a_second_trainer_is_told_who_is_there(start_script: StartScript, run_dir: Path) -> None:
    process = start_script("""
        import sys, time
        from gpubloom.traincard import RunLock
        lock = RunLock.acquire(sys.argv[1])
        print("ready", flush=True)
        time.sleep(60)
    """, str(run_dir))  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    with raises(RunInUseError, code="run_in_use", match=f"process {process.pid}"):
        RunLock.acquire(run_dir)
    assert f"process {process.pid}" in (RunLock.holder(run_dir) or "")
    process.kill()
    process.wait()
    assert RunLock.holder(run_dir) is None
    RunLock.acquire(run_dir).release()
