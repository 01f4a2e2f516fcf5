"""Loops and machines that do odd things: the record stays readable, and training goes on."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.traincard import Reading, Reporter, add_run_dir_finder, layout, reporter, snapshot
from tests.traincard.conftest import StartScript, events_of

Open = Callable[..., Reporter]


def test_a_clock_that_jumps_back_breaks_neither_order_nor_curves(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(reporter, "time", lambda: now[0])
    run = open_reporter(flush_seconds=0.02)
    for step in range(100):
        now[0] += -3600 if step == 50 else 0.1
        run.metric("loss", 1.0, step)
        run.progress(step, 100)
        run.system({"cpu/utilization": step})
        if step % 10 == 0:
            run.phase("train")
            run.flush()
    run.finish("completed")
    run.close()
    events = events_of(run_dir)
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.step for event in events if event.kind == "metric"] == list(range(100))
    shown = snapshot(run_dir)
    assert shown["status"]["status"] == "completed"
    assert shown["status"]["elapsed_seconds"] >= 0
    line = shown["system"]["series"][0]["lines"][0]
    assert line["x"] == sorted(line["x"])
    assert line["y"] == list(range(100))


def test_a_log_line_of_a_megabyte_is_cut_and_the_next_one_is_whole(
    run_dir: Path, open_reporter: Open
) -> None:
    run = open_reporter()
    run.log("x" * 1_000_000)
    run.log("short")
    run.close()
    lines = [event.fields["line"] for event in events_of(run_dir, "log")]
    assert len(lines[0]) < 20_000
    assert lines[0].startswith("xxx")
    assert "1,000,000 characters" in lines[0]
    assert lines[1] == "short"


def test_bytes_as_a_name_are_read_as_text(run_dir: Path, open_reporter: Open) -> None:
    run = open_reporter()
    run.metric(b"loss", 1.0, 1)  # type: ignore[arg-type]
    run.metrics({b"\xff\xfe": 2.0, "good": 3.0}, 1)  # type: ignore[dict-item]
    run.metric("loss", 4.0, 2, tags={b"split": b"eval"})  # type: ignore[dict-item]
    run.close()
    values = [dict(event.series()) for event in events_of(run_dir, "metric")]
    assert values[0] == {"train/loss": 1.0, "train/\ufffd\ufffd": 2.0, "train/good": 3.0}
    assert values[1] == {"eval/loss": 4.0}


@pytest.mark.long
def test_ten_thousand_series_are_recorded_within_bounds(start_script: StartScript, run_dir: Path) -> None:
    process = start_script("""
        import resource, time
        from gpubloom.traincard import Reporter
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Reporter(telemetry_seconds=0) as reporter:
            for step in range(10):
                reporter.metrics({f"series/{number}": float(step) for number in range(10_000)}, step)
                reporter.flush()
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    """)
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert float(output) < 150
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reading = Reading(run_dir)
    reading.update()
    assert len(reading.curves.names()) == 10_000
    shown = snapshot(reading)
    assert shown["metrics_left_out"] == 10_000 - len(shown["metrics"]) > 0
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 200


def test_a_million_points_leave_the_readers_memory_as_it_was(tmp_path: Path) -> None:
    from gpubloom.traincard.reader import RunEvent

    reading = Reading(tmp_path)
    sizes = []
    for step in range(60_000):
        fields = {"values": {"loss": 1.0, "lr": 0.1}, "kind": "metric", "t": float(step), "step": step}
        reading.add(RunEvent(1, 0, step, float(step), "metric", step, fields), float(step))
        log = {"line": "x" * 100, "kind": "log", "t": float(step)}
        reading.add(RunEvent(1, 0, step, float(step), "log", None, log), float(step))
        if step % 20_000 == 19_999:
            held = sum(len(curve) for curve in reading.curves.all())
            sizes.append((held, len(reading.log), sum(map(len, reading.recent.values()))))
    assert max(size[0] for size in sizes) <= 2 * 1000
    assert {size[1:] for size in sizes} == {(1000, 256)}


def test_a_workflow_system_may_name_the_run_directory(
    tmp_path: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_finders", [])
    add_run_dir_finder(lambda: None)
    add_run_dir_finder(lambda: tmp_path / "task")
    assert open_reporter(None).run_dir == tmp_path / "task"
    monkeypatch.setenv("BLOOM_RUN_DIR", str(tmp_path / "said"))
    assert open_reporter(None).run_dir == tmp_path / "said"
    assert open_reporter(tmp_path / "given").run_dir == tmp_path / "given"


def test_a_failing_disk_is_one_warning_on_stderr(start_script: StartScript, tmp_path: Path) -> None:
    (tmp_path / "blocker").write_text("")
    process = start_script(
        """
        import time
        from gpubloom.traincard import Reporter, writer
        writer._RETRY_SECONDS = 0.05
        reporter = Reporter(telemetry_seconds=0.1, flush_seconds=0.02)
        for step in range(100):
            reporter.metric("loss", 1.0, step)
            time.sleep(0.005)
        print("trained")
        import os; os._exit(0)
    """,
        BLOOM_RUN_DIR=str(tmp_path / "blocker" / "run"),
    )
    output, errors = process.communicate()
    assert output == "trained\n"
    assert len(errors.strip().splitlines()) == 1, errors
