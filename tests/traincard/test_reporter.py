"""What the Reporter puts on disk, and what it costs and spares the caller."""

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from gpubloom.traincard import Reporter, RunLock, load_checkpoints, load_curves, load_latest
from tests.effort import calls_of
from tests.traincard.conftest import StartScript, events_of
from tests.waiting import wait_until

Open = Callable[..., Reporter]


def test_metrics_of_one_step_share_a_line(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    for step in range(3):
        reporter.metric("loss", 2.0 - step, step)
        reporter.metric("lr", 0.1, step)
        reporter.progress(step, 3)
        reporter.metrics({"grad_norm": 1.5, "accuracy": 0.5}, step)
    reporter.flush()
    lines = events_of(run_dir, "metric")
    assert [line.step for line in lines] == [0, 1, 2]
    assert lines[0].fields["values"] == {"loss": 2.0, "lr": 0.1, "grad_norm": 1.5, "accuracy": 0.5}


def test_a_series_reported_twice_in_a_step_keeps_both_values(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.metric("loss", 1.0, 5)
    reporter.metric("loss", 2.0, 5)
    reporter.flush()
    assert [line.fields["values"]["loss"] for line in events_of(run_dir, "metric")] == [1.0, 2.0]


def test_sequence_numbers_have_no_gaps_and_the_first_line_introduces_the_stream(
    run_dir: Path, open_reporter: Open
) -> None:
    reporter = open_reporter()
    for step in range(100):
        reporter.metric("loss", 1.0, step)
        reporter.phase("train")
    reporter.close()
    events = events_of(run_dir)
    assert [event.seq for event in events] == list(range(len(events)))
    start = events[0]
    assert start.kind == "start"
    assert {"v": 1, "attempt": 1, "rank": 0, "segment": 1, "restart_count": 0}.items() <= start.fields.items()


def test_not_finite_numbers_are_valid_json_and_come_back(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.metrics({"a": math.nan, "b": math.inf, "c": -math.inf}, step=1)
    reporter.finish()

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    for path in (run_dir / "traincard").glob("*.json*"):
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=refuse)
    values = dict(events_of(run_dir, "metric")[0].series())
    assert math.isnan(values["train/a"])
    assert (values["train/b"], values["train/c"]) == (math.inf, -math.inf)
    latest = load_latest(run_dir)
    assert latest is not None
    assert math.isnan(latest["values"]["train/a"]["value"])


def test_numpy_numbers_are_recorded_exactly(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.metrics({"a": numpy.float32(0.1), "b": numpy.int64(7), "c": numpy.array(2.5)}, step=1)
    reporter.metric("d", numpy.float64(1.25), 1)
    reporter.flush()
    values = events_of(run_dir, "metric")[0].fields["values"]
    assert values == {"a": float(numpy.float32(0.1)), "b": 7, "c": 2.5, "d": 1.25}


def test_a_value_that_is_no_number_is_skipped_with_one_warning_and_counted(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = open_reporter()
    for step in range(3):
        reporter.metric("loss", "high", step)
        reporter.metrics({"good": 1.0, "bad": numpy.zeros(3)}, step)
    reporter.close()
    assert [line.fields["values"] for line in events_of(run_dir, "metric")] == [{"good": 1.0}] * 3
    assert events_of(run_dir, "dropped")[0].fields["counts"] == {"metric": 6}
    assert len([record for record in caplog.records if "'loss'" in record.getMessage()]) == 1


def test_strange_arguments_never_raise_into_the_loop(run_dir: Path, open_reporter: Open) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd \ud800 thing"

    reporter = open_reporter()
    reporter.describe({"object": Odd(), "nested": {"list": [math.nan, Odd()]}, "path": Path("x")})
    reporter.log("bad surrogate \ud800 and a line\nbreak")
    reporter.system({"gpu": {"0": {"utilization": 50}}})
    reporter.checkpoint(Path("somewhere/else"), {"note": {1, 2}})
    reporter.event("agent_loop", {"tool": "search"})
    reporter.close()
    assert [event.kind for event in events_of(run_dir)] == [
        "start", "describe", "log", "system", "checkpoint", "agent_loop", "end",
    ]  # fmt: skip
    assert events_of(run_dir, "system")[0].fields["values"] == {"gpu/0/utilization": 50}


def test_a_step_that_is_no_number_does_not_stop_the_writer(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.metric("loss", 1.0, numpy.int64(3))  # type: ignore[arg-type]
    reporter.metric("loss", 1.0, "four")  # type: ignore[arg-type]
    reporter.metric("loss", 1.0, None)  # type: ignore[arg-type]
    reporter.metric("loss", 2.0, 5)
    reporter.close()
    assert [event.step for event in events_of(run_dir, "metric")] == [3, None, None, 5]
    assert events_of(run_dir, "end")


def test_an_object_that_cannot_be_recorded_costs_one_event_not_the_batch(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    endless: dict[str, object] = {}
    endless["self"] = endless
    reporter = open_reporter()
    reporter.metric("loss", 1.0, 1, tags={"layer": Path("x"), 3: {1, 2}})  # type: ignore[dict-item]
    reporter.describe({"broken": Broken()})
    reporter.describe(endless)
    reporter.metric(7, 2.0, 2)  # type: ignore[arg-type]
    reporter.metric("loss", 3.0, 3)
    reporter.close()
    assert [event.kind for event in events_of(run_dir)] == [
        "start",
        "dropped",
        "metric",
        "metric",
        "metric",
        "end",
    ]
    assert events_of(run_dir, "dropped")[0].fields["counts"] == {"describe": 2}
    assert "describe event was not recorded" in caplog.text


@pytest.mark.long
def test_progress_and_heartbeats_of_one_write_become_one_line_with_the_last_say(
    run_dir: Path, open_reporter: Open
) -> None:
    reporter = open_reporter(flush_seconds=60)
    for step in range(1, 20_001):
        reporter.progress(step, 50_000 if step == 1 else None)
        reporter.heartbeat(expect_next_in=step)
    reporter.finish()
    (progress,) = events_of(run_dir, "progress")
    assert (progress.step, progress.fields["total_steps"]) == (20_000, 50_000)
    (heartbeat,) = events_of(run_dir, "heartbeat")
    assert heartbeat.fields["expect_next_in"] == 20_000


def test_tags_stay_apart_and_name_the_series(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.metric("loss", 1.0, 1, tags={"split": "train"})
    reporter.metric("loss", 2.0, 1, tags={"split": "eval"})
    reporter.metric("loss", 3.0, 1, tags={"split": "train", "expert": 3})
    reporter.flush()
    curves = load_curves(run_dir)
    assert curves.names() == ["eval/loss", "train/loss", "train/loss{expert=3}"]


def test_latest_says_where_the_run_stands(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.phase("train")
    reporter.describe({"global_batch_size": 32})
    reporter.progress(10, 100, epoch=1, epochs=3)
    reporter.metric("loss", 1.5, 10)
    reporter.metric("eval_loss", 1.7, 10)
    reporter.finish("completed")
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["phase"], latest["step"], latest["total_steps"]) == (
        "completed", "train", 10, 100,
    )  # fmt: skip
    assert latest["values"]["train/loss"] == {"step": 10, "value": 1.5}
    assert latest["values"]["eval/loss"] == {"step": 10, "value": 1.7}
    assert latest["facts"] == {"global_batch_size": 32}
    assert latest["seq"] == events_of(run_dir)[-1].seq


@pytest.mark.long
def test_latest_is_replaced_at_a_bounded_rate(run_dir: Path, open_reporter: Open) -> None:
    begin = time.monotonic()
    reporter = open_reporter(flush_seconds=0.01)
    latest = run_dir / "traincard" / "latest.json"
    seen: set[int] = set()
    step = 0
    while len(seen) < 3:
        step += 1
        reporter.metric("loss", 1.0, step)
        seen.add(latest.stat().st_mtime_ns)
        time.sleep(0.005)
    # Once at the start, and then once a second however often is written.
    assert time.monotonic() - begin >= 1.0


def test_checkpoints_are_indexed_with_size_and_best(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    for step, loss in ((10, 1.5), (20, 1.1), (30, 1.3)):
        folder = run_dir / "checkpoints" / f"step-{step:08d}"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "weights").write_bytes(b"x" * step)
        reporter.checkpoint(folder, {"step": step, "metrics": {"eval_loss": loss}, "note": "hi"})
    reporter.flush()
    index = load_checkpoints(run_dir)
    assert [(entry["step"], entry["size"]) for entry in index["checkpoints"]] == [
        (10, 10),
        (20, 20),
        (30, 30),
    ]
    assert index["checkpoints"][0]["path"] == "checkpoints/step-00000010"
    assert index["checkpoints"][0]["metadata"] == {"note": "hi"}
    assert index["best"] == "checkpoints/step-00000020"
    reporter.checkpoint(run_dir / "checkpoints" / "step-00000030", step=30, best=True)
    reporter.checkpoint_removed(run_dir / "checkpoints" / "step-00000010")
    reporter.flush()
    index = load_checkpoints(run_dir)
    assert [entry["step"] for entry in index["checkpoints"]] == [20, 30]
    assert index["best"] == "checkpoints/step-00000030"


def test_full_queue_drops_the_oldest_metrics_counts_them_and_keeps_the_rest(
    run_dir: Path, open_reporter: Open
) -> None:
    reporter = open_reporter(queue_capacity=100, flush_seconds=60)
    reporter.phase("train")
    reporter.checkpoint("somewhere", step=0)
    for step in range(1000):
        reporter.metric("loss", 1.0, step)
    reporter.phase("save")
    reporter.flush()
    written = [event.step for event in events_of(run_dir, "metric")]
    assert written == list(range(1000 - len(written), 1000))
    assert sum(event.fields["counts"]["metric"] for event in events_of(run_dir, "dropped")) == 1000 - len(
        written
    )
    assert [event.fields["phase"] for event in events_of(run_dir, "phase")] == ["train", "save"]
    assert len(events_of(run_dir, "checkpoint")) == 1
    reporter.finish()
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["dropped"] == {"metric": 1000 - len(written)}


def test_drops_are_counted_exactly_with_many_threads(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter(queue_capacity=50, flush_seconds=0.01)

    def report(number: int) -> None:
        for step in range(2000):
            reporter.metric(f"series_{number}", 1.0, step)

    threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reporter.close()
    written = sum(len(event.fields["values"]) for event in events_of(run_dir, "metric"))
    dropped = sum(event.fields["counts"]["metric"] for event in events_of(run_dir, "dropped"))
    assert written + dropped == 8000


def test_flush_every_m_steps_writes_before_the_time_is_up(run_dir: Path, open_reporter: Open) -> None:
    # Longer than anybody waits: what is written was written because of the steps.
    reporter = open_reporter(flush_seconds=3600, flush_steps=10)
    for begin, end in ((0, 11), (11, 21)):
        for step in range(begin, end):
            reporter.metric("loss", 1.0, step)
        wait_until(lambda end=end: len(events_of(run_dir, "metric")) == end)
    for step in range(21, 30):
        reporter.metric("loss", 1.0, step)
    assert len(events_of(run_dir, "metric")) == 21


def test_a_call_costs_the_caller_a_few_function_calls(open_reporter: Open) -> None:
    # The microseconds are bench/reporter.py's; this only notices when a call becomes several times dearer.
    reporter = open_reporter(flush_seconds=60)
    reporter.metric("loss", 1.0, 0)
    efforts = [calls_of(lambda step=step: reporter.metric("loss", 1.0, step)) for step in range(1, 100)]
    assert max(efforts) < 20


def test_the_off_switch_creates_nothing(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_TRAINCARD", "off")
    before = threading.active_count()
    reporter = open_reporter(telemetry_seconds=1)
    reporter.metric("loss", 1.0, 1)
    reporter.checkpoint("x")
    assert reporter.control.poll() is None
    reporter.finish()
    reporter.close()
    assert not reporter.is_on
    assert not run_dir.exists()
    assert threading.active_count() == before


def test_a_second_reporter_in_the_same_directory_is_silent_and_says_so(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    first = open_reporter()
    second = open_reporter()
    second.metric("loss", 9.0, 1)
    second.close()
    first.metric("loss", 1.0, 1)
    first.close()
    assert "is in use" in caplog.text
    assert [event.fields["values"] for event in events_of(run_dir, "metric")] == [{"loss": 1.0}]


def test_a_trainer_may_bring_its_own_lock(run_dir: Path, open_reporter: Open) -> None:
    lock = RunLock.acquire(run_dir)
    reporter = open_reporter(lock=lock)
    reporter.metric("loss", 1.0, 1)
    reporter.close()
    assert RunLock.holder(run_dir) is not None
    lock.release()
    assert RunLock.holder(run_dir) is None
    assert events_of(run_dir, "metric")


def test_without_a_directory_it_makes_one_under_runs(tmp_path: Path, start_script: StartScript) -> None:
    script = """
        from gpubloom.traincard import Reporter
        with Reporter() as reporter:
            print(reporter.run_dir)
    """
    first, second = start_script(script, BLOOM_RUN_DIR=""), start_script(script, BLOOM_RUN_DIR="")
    found = {Path(process.communicate()[0].strip()) for process in (first, second)}
    assert {path.parent for path in found} == {tmp_path / "runs"}
    for path in found:
        assert events_of(path, "end")[0].fields["status"] == "completed"


def test_in_a_job_the_events_go_to_the_job_and_a_second_reporter_keeps_its_own(
    run_dir: Path, tmp_path: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_RUN_DIR", str(run_dir))
    first = open_reporter(tmp_path / "outside")
    assert first.events_dir == tmp_path / "outside", "a variable of a person is no job"
    first.close()

    monkeypatch.setenv("BLOOM_JOB_ID", "job-1")
    one, two = open_reporter(tmp_path / "one"), open_reporter(tmp_path / "two")
    lock = RunLock.acquire(tmp_path / "three")
    three = open_reporter(tmp_path / "three", lock=lock)
    for reporter, loss in ((one, 1.0), (two, 2.0), (three, 3.0)):
        reporter.metric("loss", loss, 1)
        reporter.close()
    lock.release()
    assert (one.run_dir, one.events_dir) == (tmp_path / "one", run_dir)
    assert one.run_dir.is_dir(), "for the files of the script"
    for folder, loss in ((run_dir, 1.0), (tmp_path / "two", 2.0), (tmp_path / "three", 3.0)):
        assert [event.fields["values"] for event in events_of(folder, "metric")] == [{"loss": loss}]


def test_a_rank_above_zero_without_a_shared_directory_is_silent_and_says_so(
    start_script: StartScript,
) -> None:
    script = "from gpubloom.traincard import Reporter; reporter = Reporter(); print(reporter.is_on)"
    output, errors = start_script(script, BLOOM_RUN_DIR="", RANK="1", WORLD_SIZE="2").communicate()
    assert output.strip() == "False"
    assert "BLOOM_RUN_DIR" in errors


def test_traincard_imports_the_standard_library_only(start_script: StartScript) -> None:
    script = """
        import sys
        from gpubloom.traincard import Reporter
        foreign = {"torch", "numpy", "pydantic", "rich", "typer", "psutil", "pynvml"} & set(sys.modules)
        assert not foreign, foreign
    """
    process = start_script(script)
    assert process.wait() == 0, process.communicate()[1]


def test_closing_twice_and_reporting_after_closing_is_harmless(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    reporter = open_reporter()
    reporter.close()
    reporter.close()
    reporter.metric("loss", 1.0, 1)
    reporter.finish()
    assert not reporter.flush()
    assert [event.kind for event in events_of(run_dir)] == ["start", "end"]
    assert not caplog.records
