"""Long runs: files that are sealed when full, condensed beside, and never read twice or not at all."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.traincard import Reader, Reading, Reporter, RunEvent, RunFiles, load_curves, segments, snapshot
from gpubloom.traincard.condensed_files import condensed_bytes
from gpubloom.traincard.layout import StreamId
from tests.traincard.conftest import StartScript, events_of
from tests.waiting import TIMEOUT_SECONDS, wait_until

Open = Callable[..., Reporter]


def _sealed(run_dir: Path) -> list[str]:
    return [path.name for path in RunFiles(run_dir).sealed().values()]


def _report(reporter: Reporter, steps: range) -> None:
    for step in steps:
        reporter.metrics({"loss": 50.0 if step == 777 else 1 / (step + 1), "lr": 0.1}, step)
        if step % 200 == 0:
            reporter.flush()


def test_a_full_file_is_sealed_and_the_stream_goes_on_without_a_gap(
    run_dir: Path, open_reporter: Open
) -> None:
    reporter = open_reporter(segment_bytes=20_000)
    reader = Reader(run_dir)
    seen = []
    for start in range(0, 2000, 200):
        _report(reporter, range(start, start + 200))
        seen += reader.read_new()
    reporter.close()
    while found := reader.read_new():
        seen += found
    assert len(_sealed(run_dir)) > 3
    assert _sealed(run_dir)[0] == "a0001.r0000.s0001.jsonl"
    assert [event.seq for event in seen] == list(range(len(seen)))
    assert [event.step for event in seen if event.kind == "metric"] == list(range(2000))
    assert [event.seq for event in events_of(run_dir)] == list(range(len(seen)))


def test_what_is_condensed_says_what_the_raw_lines_say(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter(segment_bytes=60_000)
    reporter.describe({"model": "tiny"})
    reporter.describe({"global_batch_size": 8})
    _report(reporter, range(3000))
    reporter.metric("loss", math.nan, 3000)
    for number in range(700):
        reporter.log(f"line {number}", level="error" if number % 100 == 0 else "info")
    reporter.checkpoint("a", step=100, metrics={"eval_loss": 2.0})
    reporter.checkpoint("b", step=200, metrics={"eval_loss": 1.0})
    reporter.checkpoint_removed("a")
    reporter.system({"gpu": {"0": {"utilization": 50}}})
    reporter.phase("save")
    reporter.finish("completed")
    reporter.close()
    quick = snapshot(run_dir, now=5e9)
    for path in (run_dir / "traincard" / "segments").glob("*.buckets.json"):
        path.unlink()
    slow = snapshot(run_dir, now=5e9)
    assert len(_sealed(run_dir)) > 1
    assert quick["status"] == slow["status"]
    assert quick["logs"]["total"] == slow["logs"]["total"] == 700
    assert quick["logs"]["errors"] == slow["logs"]["errors"] == 7
    assert quick["checkpoints"] == slow["checkpoints"]
    assert quick["attempts"] == slow["attempts"]
    assert quick["findings"] == slow["findings"] != []
    for one, other in zip(quick["metrics"], slow["metrics"], strict=True):
        assert (one["name"], one["last"]["value"]) == (other["name"], other["last"]["value"])
        drawn, raw = one["lines"][0], other["lines"][0]
        assert (min(filter(None, drawn["low"])), max(filter(None, drawn["high"]))) == (
            min(filter(None, raw["low"])),
            max(filter(None, raw["high"])),
        )
        assert drawn["last"] == raw["last"]
        assert (drawn["x"][0], drawn["x"][-1]) == (raw["x"][0], raw["x"][-1])


def test_a_finished_run_is_opened_without_reading_its_lines(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = open_reporter(segment_bytes=100_000)
    _report(reporter, range(5000))
    reporter.close()
    parsed: list[bytes] = []
    event = Reader._event

    def note(self: Reader, stream: StreamId, line: bytes) -> RunEvent | None:
        parsed.append(line)
        return event(self, stream, line)

    monkeypatch.setattr(Reader, "_event", note)
    reading = Reading(run_dir)
    reading.update()
    assert not parsed
    assert reading.state.status == "ended"
    assert reading.state.step == 4999
    curve = reading.curves.attempts("train/loss")[1]
    assert curve.count.tolist() == load_curves(run_dir).attempts("train/loss")[1].count.tolist()
    assert sum(curve.count) == 5000
    assert max(curve.high) == 50.0


def test_a_growing_tail_is_condensed_before_it_is_full(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_CONDENSE_BYTES", 20_000)
    reporter = open_reporter()
    _report(reporter, range(2000))
    reporter.flush()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while condensed_bytes(RunFiles(run_dir), StreamId(1, 0, 1)) < 50_000:
        assert time.monotonic() < deadline
        _report(reporter, range(2000, 2200))
        time.sleep(0.05)
    reading = Reading(run_dir)
    reading.update()
    live = Reading(run_dir)
    live.update()
    _report(reporter, range(2200, 2400))
    reporter.flush()
    live.update()
    raw = [event.step for event in events_of(run_dir, "metric")]
    curve = live.curves.attempts("train/loss")[1]
    assert sum(curve.count) == len(raw)
    assert curve.last[-1] == raw[-1] == 2399


def test_what_a_killed_process_left_is_condensed_by_the_next_attempt(
    run_dir: Path, start_script: StartScript, open_reporter: Open
) -> None:
    start_script("""
        import os
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        for step in range(3000):
            reporter.metric("loss", float(step), step)
        reporter.flush()
        os.kill(os.getpid(), 9)
    """).wait()
    stream = StreamId(1, 0, 1)
    files = RunFiles(run_dir)
    assert condensed_bytes(files, stream) == 0
    reporter = open_reporter()
    wait_until(lambda: condensed_bytes(files, stream))
    reporter.close()
    assert condensed_bytes(files, stream) == files.segment(stream).stat().st_size
    stored = json.loads(files.condensed(stream).read_text())
    assert sum(stored["series"]["train/loss"]["count"]) == 3000


@pytest.mark.parametrize("damage", [b"", b"{", b'{"v":99}', b'{"v":1,"bytes":999999999,"seq":1,"t":1}'])
def test_a_condensed_file_that_is_damaged_is_as_good_as_none(
    run_dir: Path, open_reporter: Open, damage: bytes
) -> None:
    reporter = open_reporter()
    _report(reporter, range(100))
    reporter.close()
    RunFiles(run_dir).condensed(StreamId(1, 0, 1)).write_bytes(damage)
    reading = Reading(run_dir)
    reading.update()
    assert sum(reading.curves.attempts("train/loss")[1].count) == 100


def test_a_condensed_file_that_claims_more_than_the_stream_has_is_not_used(
    run_dir: Path, open_reporter: Open
) -> None:
    reporter = open_reporter()
    _report(reporter, range(100))
    reporter.close()
    tail = run_dir / "traincard" / "events.jsonl"
    # A machine that lost power may have kept the later file and lost the end of the earlier one.
    tail.write_bytes(tail.read_bytes()[:2000])
    reading = Reading(run_dir)
    reading.update()
    assert 0 < sum(reading.curves.attempts("train/loss")[1].count) < 100


def test_memory_stays_bounded_however_many_series_and_points_there_are() -> None:
    from gpubloom.traincard.series import Curves

    curves = Curves(most_together=20_000)
    for step in range(30):
        values = {f"series_{number}": float(step) for number in range(2000)}
        fields = {"seq": step, "t": float(step), "kind": "metric", "step": step, "values": values}
        curves.add(RunEvent(1, 0, step, float(step), "metric", step, fields))
    assert len(curves.names()) == 2000
    assert sum(len(curve) for curve in curves.all()) <= 20_000
    assert all(curve.last[-1] == 29 and sum(curve.count) == 30 for curve in curves.all())


def test_series_that_are_too_many_are_counted_once_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpubloom.traincard import series

    monkeypatch.setattr(series, "_MOST_CURVES", 5)
    curves = series.Curves()
    for step in range(3):
        values = {f"series_{number}": float(step) for number in range(8)}
        fields = {"seq": step, "t": float(step), "kind": "metric", "step": step, "values": values}
        curves.add(RunEvent(1, 0, step, float(step), "metric", step, fields))
    assert (len(curves.names()), curves.left_out, curves.copy().left_out) == (5, 3, 3)
