"""Kill, SIGTERM, exceptions, forks: what is on file afterwards, and how the process then ends."""

import os
import random
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from gpubloom.traincard import Reader, RunLock, load_latest
from tests.starved import starved_between, starved_threads
from tests.traincard.conftest import StartScript, events_of

# Reports 1,000 events a second, and notes each one, after it was reported, where a kill cannot undo it; with
# it, how late the machine woke a thread that only sleeps: the thread that writes is woken no better.
_BUSY = """
    import os, struct, sys, threading, time
    from gpubloom.traincard import Reporter
    note = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    reporter = Reporter(telemetry_seconds=0.5)
    begin = woken = time.monotonic()
    def sleep():
        global woken
        while True:
            time.sleep(0.01)
            woken = time.monotonic()
    threading.Thread(target=sleep, daemon=True).start()
    late, first = 0.0, time.time()
    for step in range(1, 10**9):
        now = time.time()
        late = max(late, time.monotonic() - woken - 0.01)
        reporter.metric("loss", 1.0 / step, step)
        os.pwrite(note, struct.pack("qddd", step, now, late, first), 0)
        time.sleep(max(0, begin + step / 1000 - time.monotonic()))
"""


def _kill_at_a_random_moment(start_script: StartScript, run_dir: Path, note: Path) -> float:
    """Seconds of reports that a kill -9 cost, less those in which the machine let nobody write."""
    note.unlink(missing_ok=True)
    process = start_script(_BUSY, str(note))
    while not note.exists() or note.stat().st_size < 32:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    time.sleep(random.random() * 0.5)
    before = starved_threads(process.pid)
    time.sleep(0.4)
    # The thread that writes is one of these; on a quiet machine none waits for more than a moment.
    starved = max(starved_between(before, starved_threads(process.pid)))
    process.kill()
    process.wait()
    last_step, last_time, late, first_time = struct.unpack("qddd", note.read_bytes())
    reader = Reader(run_dir)
    events = []
    while found := reader.read_new():
        events.extend(found)
    assert reader.damaged_lines == 0
    attempt = max(event.attempt for event in events)
    events = [event for event in events if event.attempt == attempt]
    assert [event.seq for event in events] == list(range(len(events)))
    metrics = [event for event in events if event.kind == "metric"]
    assert [event.step for event in metrics] == list(range(1, len(metrics) + 1))
    assert load_latest(run_dir) is not None
    assert RunLock.holder(run_dir) is None
    written = len(metrics)
    # On a busy machine not even the first report may be on file.
    kept_until = metrics[-1].t if metrics else first_time
    return 0.0 if written >= last_step else last_time - kept_until - max(2 * late, starved)


@pytest.mark.long
def test_kill_9_at_1000_events_a_second_loses_at_most_300_ms(
    start_script: StartScript, run_dir: Path, tmp_path: Path
) -> None:
    lost = [_kill_at_a_random_moment(start_script, run_dir, tmp_path / "note") for _ in range(5)]
    assert max(lost) <= 0.3


@pytest.mark.long
def test_kill_9_fifty_times_loses_at_most_300_ms_each(
    start_script: StartScript, run_dir: Path, tmp_path: Path
) -> None:
    lost = [_kill_at_a_random_moment(start_script, run_dir, tmp_path / "note") for _ in range(50)]
    print(f"seconds lost: median {sorted(lost)[25]:.3f}, worst {max(lost):.3f}")
    assert max(lost) <= 0.3


def _wait_for_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def test_sigterm_is_recorded_as_preempted_and_still_ends_the_process(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script("""
        import time
        from gpubloom.traincard import Reporter
        reporter = Reporter(flush_seconds=30, telemetry_seconds=0)
        reporter.metric("loss", 1.0, 1)
        print("ready", flush=True)
        time.sleep(60)
    """)
    _wait_for_ready(process)
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert [event.kind for event in events_of(run_dir) if event.kind != "log"] == ["start", "metric", "end"]
    assert events_of(run_dir, "end")[0].fields["status"] == "preempted"
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["status"] == "preempted"


@pytest.mark.parametrize(("phase", "status"), [("eval", "completed"), ("train", "preempted")])
def test_a_late_sigterm_preempts_a_run_only_if_it_trains_again(
    start_script: StartScript, run_dir: Path, phase: str, status: str
) -> None:
    process = start_script(f"""
        import time
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        reporter.finish("completed")
        reporter.phase("{phase}")
        print("ready", flush=True)
        time.sleep(60)
    """)
    _wait_for_ready(process)
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert (load_latest(run_dir) or {})["status"] == status


def test_sigterm_at_1000_events_a_second_loses_nothing(
    start_script: StartScript, run_dir: Path, tmp_path: Path
) -> None:
    for attempt in range(1, 4):
        note = tmp_path / f"note{attempt}"
        process = start_script(_BUSY, str(note))
        while not note.exists() or note.stat().st_size < 32:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        time.sleep(0.3 + random.random() * 0.2)
        process.terminate()
        assert process.wait(timeout=60) == -signal.SIGTERM
        last_step, *_ = struct.unpack("qddd", note.read_bytes())
        events = [event for event in events_of(run_dir) if event.attempt == attempt]
        steps = [event.step for event in events if event.kind == "metric"]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= last_step
        assert [event.fields["status"] for event in events if event.kind == "end"] == ["preempted"]


def test_sigterm_calls_the_handler_that_was_there_before(start_script: StartScript, run_dir: Path) -> None:
    process = start_script("""
        import signal, sys, time
        stop = []
        signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
        from gpubloom.traincard import Reporter
        with Reporter(telemetry_seconds=0) as reporter:
            print("ready", flush=True)
            while not stop:
                time.sleep(0.01)
            reporter.checkpoint("saved-in-time", step=7)
        sys.exit(7)
    """)
    _wait_for_ready(process)
    process.terminate()
    assert process.wait(timeout=60) == 7
    kinds = [event.kind for event in events_of(run_dir) if event.kind != "log"]
    assert kinds == ["start", "end", "checkpoint"]
    assert events_of(run_dir, "end")[0].fields["status"] == "preempted"


def test_sigterm_in_the_middle_of_a_full_queue_does_not_deadlock(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script("""
        from gpubloom.traincard import Reporter
        reporter = Reporter(queue_capacity=2, telemetry_seconds=0)
        print("ready", flush=True)
        step = 0
        while True:
            step += 1
            reporter.metric("loss", 1.0, step)
    """)
    _wait_for_ready(process)
    time.sleep(0.3)
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert events_of(run_dir, "end")[-1].fields["status"] == "preempted"


def test_an_uncaught_exception_is_recorded_with_its_cause_and_still_printed(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script("""
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        class OutOfMemoryError(RuntimeError): pass
        def train_step():
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        reporter.metric("loss", 1.0, 1)
        train_step()
    """)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.count("OutOfMemoryError: CUDA out of memory") == 1
    error = events_of(run_dir, "error")[0].fields
    assert error["type"] == "__main__.OutOfMemoryError"
    assert error["cause"] == "gpu_out_of_memory"
    assert "train_step" in error["traceback"]
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["status"] == "failed"
    assert latest["error"]["cause"] == "gpu_out_of_memory"
    assert len(events_of(run_dir, "end")) == 1


def test_an_exception_after_a_nan_loss_names_the_loss_as_likely_cause(
    start_script: StartScript, run_dir: Path
) -> None:
    start_script("""
        from gpubloom.traincard import Reporter
        with Reporter(telemetry_seconds=0) as reporter:
            reporter.metric("loss", float("nan"), 1)
            raise AssertionError("training stopped making sense")
    """).wait()
    assert events_of(run_dir, "error")[0].fields["cause"] == "nan_loss"


def test_ctrl_c_is_interrupted_not_failed(start_script: StartScript, run_dir: Path) -> None:
    process = start_script("""
        import time
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        print("ready", flush=True)
        time.sleep(60)
    """)
    _wait_for_ready(process)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert [event.fields["status"] for event in events_of(run_dir, "end")] == ["interrupted"]
    assert not events_of(run_dir, "error")


@pytest.mark.parametrize(("ending", "status"), [("", "ended"), ("reporter.finish()", "completed")])
def test_a_script_that_simply_ends_is_written_to_the_last_event(
    start_script: StartScript, run_dir: Path, ending: str, status: str
) -> None:
    process = start_script(f"""
        from gpubloom.traincard import Reporter
        reporter = Reporter(flush_seconds=30)
        for step in range(1000):
            reporter.metric("loss", 1.0, step)
        {ending}
    """)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert len(events_of(run_dir, "metric")) == 1000
    assert [event.fields["status"] for event in events_of(run_dir, "end")] == [status]


def test_a_reporter_of_another_thread_still_records_the_end(start_script: StartScript, run_dir: Path) -> None:
    process = start_script("""
        import signal, threading
        from gpubloom.traincard import Reporter
        def train():
            global reporter
            reporter = Reporter(telemetry_seconds=0)
            reporter.metric("loss", 1.0, 1)
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    """)
    assert process.wait() == 0, process.communicate()[1]
    assert [event.kind for event in events_of(run_dir) if event.kind != "log"] == ["start", "metric", "end"]


def test_a_forked_child_writes_nothing_and_does_not_hold_the_lock(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script("""
        import os, sys, time
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0, flush_seconds=0.05)
        reporter.metric("parent", 1.0, 1)
        heard, said = os.pipe()
        child = os.fork()
        if child == 0:
            for step in range(100):
                reporter.metric("child", 2.0, step)
            reporter.finish("failed")
            reporter.close()
            os.write(said, b"done")
            time.sleep(60)
        os.read(heard, 4)
        print(child, flush=True)
        reporter.metric("parent", 1.0, 2)
        reporter.flush()
        os.kill(os.getpid(), 9)
    """)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        process.wait()
        assert RunLock.holder(run_dir) is None
        assert [set(event.fields["values"]) for event in events_of(run_dir, "metric")] == [{"parent"}] * 2
        assert not events_of(run_dir, "end")
    finally:
        os.kill(child, signal.SIGKILL)


def test_terminating_a_forked_child_does_not_record_preemption(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script("""
        import multiprocessing, time
        from gpubloom.traincard import Reporter
        with Reporter(telemetry_seconds=0) as reporter:
            worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            worker.start()
            worker.terminate()
            worker.join()
            assert worker.exitcode == -15, worker.exitcode
    """)
    assert process.wait(timeout=60) == 0, process.communicate()[1]
    assert [event.fields["status"] for event in events_of(run_dir, "end")] == ["completed"]
