"""Folders that cannot be written and disks that are full: training goes on, nothing is lost in silence."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubloom.traincard import Reader, Reporter, RunLock, load_checkpoints, load_latest, writer
from tests.deletion import delete_in_use
from tests.small_disk import small_disk
from tests.traincard.conftest import StartScript, events_of
from tests.waiting import wait_until

Open = Callable[..., Reporter]


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_RETRY_SECONDS", 0.05)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "tiny", "256k") as folder:
        yield folder


def test_a_folder_that_cannot_be_made_costs_one_warning_and_is_used_once_it_can(
    tmp_path: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("a file where a folder should be")
    reporter = open_reporter(blocker / "run", queue_capacity=50, flush_seconds=0.02)
    reporter.phase("train")
    for step in range(300):
        reporter.metric("loss", 1.0, step)
        time.sleep(0.0005)
    wait_until(lambda: caplog.records)
    assert reporter.is_on
    assert len(caplog.records) == 1
    assert "Training continues" in caplog.text
    blocker.unlink()
    wait_until(lambda: (blocker / "run" / "traincard" / "latest.json").exists())
    reporter.metric("loss", 2.0, 300)
    reporter.close()
    events = events_of(blocker / "run")
    metrics = [event for event in events if event.kind == "metric"]
    dropped = [event for event in events if event.kind == "dropped"]
    assert sum(event.fields["counts"]["metric"] for event in dropped) == 301 - len(metrics)
    assert "Not a directory" in dropped[0].fields["reason"]
    assert metrics[-1].step == 300
    assert [event.fields["phase"] for event in events if event.kind == "phase"] == ["train"]
    assert len(caplog.records) == 1


def test_a_full_disk_keeps_the_file_readable_and_counts_the_drops(
    tiny_disk: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = tiny_disk / "run"
    reporter = open_reporter(run_dir, queue_capacity=200, flush_seconds=0.02)
    reporter.metric("loss", 1.0, 0)
    reporter.flush()
    filler = tiny_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 1024)
        except OSError:
            pass
    steps = 3000
    for step in range(1, steps):
        reporter.metric("loss", 1.0, step)
        if step % 100 == 0:
            time.sleep(0.03)
    reporter.checkpoint("kept", step=steps)
    time.sleep(0.2)
    reader = Reader(run_dir)
    reader.read_new()
    assert reader.damaged_lines == 0
    filler.unlink()
    wait_until(lambda: events_of(run_dir, "dropped"))
    reporter.metric("loss", 1.0, steps)
    reporter.close()
    events = events_of(run_dir)
    assert [event.seq for event in events] == list(range(len(events)))
    metrics = [event for event in events if event.kind == "metric"]
    dropped = [event for event in events if event.kind == "dropped"]
    assert len(metrics) + sum(event.fields["counts"]["metric"] for event in dropped) == steps + 1
    assert "No space left" in dropped[0].fields["reason"]
    assert metrics[-1].step == steps
    assert [event.step for event in events if event.kind == "checkpoint"] == [steps]
    assert len([record for record in caplog.records if "cannot write" in record.getMessage()]) == 1
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["status"] == "ended"


def test_a_write_that_stops_in_the_middle_of_a_line_leaves_no_torn_line(
    start_script: StartScript, run_dir: Path
) -> None:
    # A limit on file size is a disk that is full for one file only, and works without any privilege.
    process = start_script("""
        import resource, time
        from gpubloom.traincard import Reporter, writer
        writer._RETRY_SECONDS = 0.05
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        with Reporter(telemetry_seconds=0, flush_seconds=0.02) as reporter:
            for step in range(500):
                reporter.metric("loss", 1.0, step)
            events = reporter.run_dir / "traincard" / "events.jsonl"
            # Between the failed write and its repair, and at every retry, the last line is torn for a moment.
            while len(written := events.read_bytes()) <= 4500 or written[-1:] != b"\\n":
                time.sleep(0.01)
            assert len(written) <= 5000, len(written)
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    """)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert errors.count("cannot write") == 1
    assert [event.step for event in events_of(run_dir, "metric")] == list(range(500))
    events = events_of(run_dir)
    assert [event.seq for event in events] == list(range(len(events)))


def test_what_could_never_be_written_is_said_at_the_end(
    tmp_path: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("")
    reporter = open_reporter(blocker / "run")
    reporter.metric("loss", 1.0, 1)
    reporter.close()
    assert "could not write 2 events" in caplog.text
    assert os.listdir(tmp_path) == ["blocker"]


def test_a_deleted_run_directory_is_made_again_and_what_went_with_it_is_counted(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = open_reporter(flush_seconds=0.02)
    follower = Reader(run_dir)
    for step in range(20):
        reporter.metric("loss", 1.0, step)
    reporter.checkpoint("kept", step=19)
    reporter.flush()
    follower.read_new()
    delete_in_use(run_dir)
    assert reporter.is_on
    for step in range(20, 40):
        reporter.metric("loss", 1.0, step)
    wait_until(lambda: events_of(run_dir, "metric"))
    reporter.metric("loss", 1.0, 40)
    reporter.close()
    events = events_of(run_dir)
    assert [event.step for event in events if event.kind == "metric"] == list(range(20, 41))
    (dropped,) = [event for event in events if event.kind == "dropped"]
    assert dropped.fields["counts"] == {"metric": 20, "checkpoint": 1}
    assert "deleted" in dropped.fields["reason"]
    assert len(caplog.records) == 1
    assert [event.seq for event in follower.read_new()] == [event.seq for event in events]
    assert [entry["path"] for entry in load_checkpoints(run_dir)["checkpoints"]]
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["attempt"], latest["restart_count"]) == (1, 0)


def test_a_deleted_run_directory_that_an_agent_looks_after_stays_deleted_until_it_is_back(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BLOOM_ATTEMPT", "3")
    reporter = open_reporter(flush_seconds=0.02)
    delete_in_use(run_dir)
    reporter.metric("loss", 1.0, 1)
    wait_until(lambda: caplog.records)
    assert not run_dir.exists()
    run_dir.mkdir()
    wait_until(lambda: events_of(run_dir, "metric"))
    assert len(caplog.records) == 1


def test_a_deleted_run_directory_still_counts_as_in_use(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter(flush_seconds=0.02)
    delete_in_use(run_dir)
    reporter.metric("loss", 1.0, 1)
    wait_until(lambda: events_of(run_dir, "metric"))
    assert RunLock.holder(run_dir) is not None
    reporter.close()
    assert RunLock.holder(run_dir) is None


def test_a_read_only_folder_costs_one_warning_and_is_used_once_it_can_be_written(
    tiny_disk: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    remount = ["mount", "-o", "remount,ro", str(tiny_disk)]
    subprocess.run(remount, check=True)
    reporter = open_reporter(tiny_disk / "run", flush_seconds=0.02)
    reporter.metric("loss", 1.0, 1)
    wait_until(lambda: caplog.records)
    assert "Read-only" in caplog.text
    subprocess.run([*remount[:2], "remount,rw", str(tiny_disk)], check=True)
    wait_until(lambda: events_of(tiny_disk / "run", "metric"))
    assert len(caplog.records) == 1


def test_a_disk_that_is_full_when_a_segment_is_sealed_loses_no_segment(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script("""
        import os, time
        from gpubloom.traincard import Reporter, stream, writer
        writer._RETRY_SECONDS = 0.05
        real, full, failed = os.write, [], []
        def write(descriptor, data):
            # Only the first line of a new file does not fit.
            if full and bytes(data[:60]).find(b'"kind":"start"') >= 0:
                failed.append(True)
                raise OSError(28, "No space left on device")
            return real(descriptor, data)
        stream.os.write = write
        with Reporter(telemetry_seconds=0, flush_seconds=0.02, segment_bytes=5000) as reporter:
            for step in range(100):
                reporter.metric("loss", 1.0, step)
            reporter.flush()
            full.append(True)
            for step in range(100, 200):
                reporter.metric("loss", 1.0, step)
            while not failed:
                time.sleep(0.01)
            full.clear()
            reporter.flush()
            for step in range(200, 300):
                reporter.metric("loss", 1.0, step)
    """)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert errors.count("cannot write") == 1
    events = events_of(run_dir)
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.step for event in events if event.kind == "metric"] == list(range(300))
