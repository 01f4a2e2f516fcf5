"""A run directory in a bucket: live, through an outage, after a kill, and equal to the byte at the end."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter, load_curves, load_latest, read_all
from gpubloom.traincard.mirror import Mirror, MirrorError, pull, start_mirror
from gpubloom.traincard.mirror.store import Bucket
from gpubloom.traincard.mirror.upload import Upload
from tests.errors import raises
from tests.traincard_mirror.conftest import S3Server, content
from tests.waiting import TIMEOUT_SECONDS, wait_until

pytest.importorskip("obstore")

pytestmark = pytest.mark.xdist_group("s3")

URL = "s3://bucket/runs/first"


def in_bucket(server: S3Server) -> Path:
    return server.folder / "bucket/runs/first"


def losses(folder: Path) -> list[int | None]:
    return [event.step for event in read_all(folder) if event.kind == "metric"]


_TRAINER = """
    import sys, time
    from gpubloom.traincard import Reporter
    from gpubloom.traincard.mirror import Mirror
    reporter = Reporter(sys.argv[1], telemetry_seconds=0)
    mirror = Mirror(sys.argv[1], sys.argv[2], every_seconds=0.2).start()
    print("ready", flush=True)
    for step in range(1, int(sys.argv[3]) + 1):
        reporter.metric("loss", 1 / step, step)
        time.sleep(0.005)
    reporter.finish()
    reporter.close()
    assert mirror.finish(20)
"""


def start_trainer(run_dir: Path, steps: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(_TRAINER), str(run_dir), URL, str(steps)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.long
def test_a_run_appears_in_the_bucket_while_it_trains_and_is_equal_at_the_end(
    server: S3Server, run_dir: Path, tmp_path: Path
) -> None:
    pulled = tmp_path / "pulled"
    trainer = start_trainer(run_dir, 600)
    try:
        seen: list[int] = []
        while trainer.poll() is None:
            if in_bucket(server).exists():
                try:
                    pull(URL, pulled)
                except MirrorError:
                    continue
                seen.append(len(losses(pulled)))
        _, problems = trainer.communicate(timeout=120)
        assert trainer.returncode == 0, problems
    finally:
        trainer.kill()
        trainer.communicate()
    assert len(set(seen)) >= 4, "the run was not seen growing"
    assert seen == sorted(seen)
    pull(URL, pulled)
    assert content(pulled) == content(run_dir) == content(in_bucket(server))
    assert losses(pulled) == list(range(1, 601))
    assert load_latest(pulled) == load_latest(run_dir)


def test_after_kill_minus_nine_the_next_attempt_completes_the_mirror(
    server: S3Server, run_dir: Path, tmp_path: Path
) -> None:
    first = start_trainer(run_dir, 100_000)
    assert first.stdout is not None
    first.stdout.readline()
    wait_until(lambda: (in_bucket(server) / "traincard/latest.json").exists())
    wait_until(lambda: len(losses(in_bucket(server))) > 10)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    second = start_trainer(run_dir, 50)
    assert second.wait(120) == 0, second.communicate()[1]
    second.communicate()
    pull(URL, tmp_path / "pulled")
    assert content(tmp_path / "pulled") == content(run_dir) == content(in_bucket(server))
    assert {event.attempt for event in read_all(tmp_path / "pulled")} == {1, 2}


def test_an_outage_is_one_warning_and_costs_nothing_but_time(
    server: S3Server, run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpubloom.traincard")
    with (
        Reporter(run_dir, telemetry_seconds=0) as reporter,
        Mirror(run_dir, URL, every_seconds=0.1) as mirror,
    ):
        reporter.metric("loss", 1.0, step=1)
        wait_until(lambda: (in_bucket(server) / "traincard/latest.json").exists())
        server.stop()
        # The training thread does not wait for the bucket: it is away until these have been reported.
        for step in range(2, 200):
            reporter.metric("loss", 1.0, step)
            time.sleep(0.005)
        wait_until(lambda: "cannot be mirrored" in caplog.text)
        server.start()
        wait_until(lambda: "Mirroring the run to s3://bucket/runs/first works again" in caplog.text)
        reporter.finish()
        reporter.close()
        assert mirror.finish(20)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    # A mirror of an earlier test, whose server is gone, may still try.
    warnings = [sentence for sentence in said if server.address in sentence]
    # One per lane: small files and checkpoints are sent by threads of their own.
    assert 1 <= len(warnings) <= 2
    assert content(run_dir) == content(in_bucket(server))


def test_a_bucket_that_never_answers_does_not_keep_the_process_from_ending(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent_server.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        Reporter(run_dir, telemetry_seconds=0).close()
        mirror = Mirror(run_dir, URL, every_seconds=0.05).start()
        silent_server.settimeout(TIMEOUT_SECONDS)
        asking, _ = silent_server.accept()
        assert not mirror.finish(0.5)
        asking.close()
    assert f"bloom runs mirror {run_dir} {URL}" in caplog.text


def uploads(run_dir: Path) -> tuple[Upload, Upload]:
    bucket = Bucket(URL)
    return Upload(run_dir, bucket, large=False), Upload(run_dir, bucket, large=True)


def test_a_new_mirror_sends_only_what_is_missing_or_grew(server: S3Server, run_dir: Path) -> None:
    (run_dir / "checkpoints/step-1").mkdir(parents=True)
    (run_dir / "checkpoints/step-1/model.bin").write_bytes(b"w" * 100_000)
    with Reporter(run_dir, telemetry_seconds=0):
        pass
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, step=1)
        reporter.flush()
        for upload in uploads(run_dir):
            assert upload.once() > 0
        segment = in_bucket(server) / "traincard/segments/a0001.r0000.s0001.jsonl"
        weights = in_bucket(server) / "checkpoints/step-1/model.bin"
        before = [path.stat().st_mtime_ns for path in (segment, weights)]
        small, large = uploads(run_dir)
        small.once()
        assert large.once() == 0
        assert [path.stat().st_mtime_ns for path in (segment, weights)] == before
        # Saved again under the same name and with the same size, but another content.
        (run_dir / "checkpoints/step-1/model.bin").write_bytes(b"v" * 100_000)
        assert uploads(run_dir)[1].once() == 1
    for upload in uploads(run_dir):
        upload.once(final=True)
    assert content(run_dir) == content(in_bucket(server))


def test_a_long_tail_travels_in_pieces_and_every_byte_at_most_about_three_times(
    server: S3Server, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0
    original = Bucket.put

    def counted(bucket: Bucket, path: str, data: bytes) -> None:
        nonlocal sent
        sent += len(data) if path.startswith(("traincard/events", "traincard/growth")) else 0
        original(bucket, path, data)

    monkeypatch.setattr(Bucket, "put", counted)
    tail = run_dir / "traincard/events.jsonl"
    had_pieces = 0
    with Reporter(run_dir, telemetry_seconds=0, queue_capacity=1 << 20) as reporter:
        small = uploads(run_dir)[0]
        for part in range(60):
            reporter.log("x" * 15_000)
            for step in range(100):
                reporter.metric("loss", step / 7, step)
            reporter.flush()
            small.once()
            if part == 40:
                # Another process takes over in the middle, and a reader looks.
                small = uploads(run_dir)[0]
                pull(URL, tmp_path / "pulled")
                assert (tmp_path / "pulled/traincard/events.jsonl").read_bytes() == tail.read_bytes()
            had_pieces = max(had_pieces, len(list((in_bucket(server) / "traincard").glob("growth/*"))))
        size = tail.stat().st_size
        assert size > 1_000_000
        assert had_pieces > 3
        assert sent < 3.5 * size
        pull(URL, tmp_path / "pulled")
        assert (tmp_path / "pulled/traincard/events.jsonl").read_bytes() == tail.read_bytes()
    small.once(final=True)
    assert content(run_dir) == content(in_bucket(server))


def test_a_torn_line_stays_at_home_until_the_end(server: S3Server, run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.flush()
    tail = run_dir / "traincard/events.jsonl"
    whole = tail.read_bytes()
    tail.write_bytes(whole + b'{"seq":99,"t')
    small = uploads(run_dir)[0]
    small.once()
    assert (in_bucket(server) / "traincard/events.jsonl").read_bytes() == whole
    small.once(final=True)
    assert (in_bucket(server) / "traincard/events.jsonl").read_bytes() == tail.read_bytes()


def test_a_checkpoint_that_the_trainer_deleted_goes_and_nothing_else_ever_does(
    server: S3Server, run_dir: Path
) -> None:
    with Reporter(run_dir, telemetry_seconds=0):
        pass
    for name in ("checkpoints/step-1/a.bin", "checkpoints/step-2/a.bin", "config.json"):
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).write_text("{}")
    lanes = uploads(run_dir)
    for lane in lanes:
        lane.once()
    (run_dir / "checkpoints/step-1/a.bin").unlink()
    (run_dir / "config.json").unlink()
    for lane in lanes:
        lane.once()
    there = content(in_bucket(server))
    assert "checkpoints/step-1/a.bin" not in there
    assert {"checkpoints/step-2/a.bin", "config.json"} <= there.keys()
    # A fresh machine, with the mirror's run but an empty disk.
    (run_dir / "checkpoints/step-2/a.bin").unlink()
    for lane in uploads(run_dir):
        lane.once()
    assert "checkpoints/step-2/a.bin" in content(in_bucket(server))


def test_locks_hidden_files_and_the_agents_folder_stay_at_home(server: S3Server, run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0):
        (run_dir / "agent").mkdir()
        (run_dir / "agent/job.json").write_text('{"secret": 1}')
        (run_dir / ".writing-model").mkdir()
        (run_dir / ".writing-model/half.bin").write_text("half")
        (run_dir / "traincard/.latest.json.1.tmp").write_text("half")
        for lane in uploads(run_dir):
            lane.once()
    names = content(in_bucket(server)).keys()
    assert not [name for name in names if "agent" in name or "lock" in name or "/." in f"/{name}"]


def test_pulled_curves_are_the_runs_curves(server: S3Server, run_dir: Path, tmp_path: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        for step in range(1, 50):
            reporter.metrics({"loss": 1 / step, "eval/loss": 2 / step}, step)
    with Mirror(run_dir, URL):
        pass
    assert pull(URL, tmp_path / "pulled") > 0
    assert pull(URL, tmp_path / "pulled") == 0
    here, there = load_curves(run_dir), load_curves(tmp_path / "pulled")
    assert here.names() == there.names()
    assert here.attempts("train/loss")[1].buckets == there.attempts("train/loss")[1].buckets


def test_wrong_credentials_are_a_sentence_not_an_exception(
    server: S3Server, run_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with Reporter(run_dir, telemetry_seconds=0):
        pass
    assert not Mirror(run_dir, URL).start().finish(20)
    assert "cannot be mirrored to s3://bucket/runs/first" in caplog.text
    assert not in_bucket(server).exists()


def test_a_reporter_starts_a_mirror_only_when_asked_and_never_under_an_agent(
    server: S3Server, run_dir: Path
) -> None:
    run_dir.mkdir()
    assert start_mirror(run_dir, environment={}) is None
    assert start_mirror(run_dir, environment={"BLOOM_MIRROR": "s3://bucket/runs", "BLOOM_AGENT": "1"}) is None
    mirror = start_mirror(run_dir, environment={"BLOOM_MIRROR": "s3://bucket/runs/"})
    assert mirror is not None
    assert mirror.url == "s3://bucket/runs/run"
    mirror.finish()
    (run_dir / "agent").mkdir()
    (run_dir / "agent/job.json").write_text("{}")
    assert start_mirror(run_dir, URL, environment={}) is None


@pytest.mark.parametrize("url", ["/tmp/x", "http://host/x", "s3://", "ftp://a/b", ""])
def test_an_address_that_is_no_bucket_is_refused_with_advice(run_dir: Path, url: str) -> None:
    with raises(MirrorError, code="invalid_address", match="s3://bucket/folder"):
        Mirror(run_dir, url)


def test_google_and_azure_addresses_open_the_same_way(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> None:
    """Only the addresses: no such server runs here, so nothing is stored."""
    from obstore.store import AzureStore, GCSStore

    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    google, azure = Bucket("gs://bucket/runs/first"), Bucket("az://container/runs/first")
    assert isinstance(google._store, GCSStore)
    assert isinstance(azure._store, AzureStore)
    assert google._store.prefix == azure._store.prefix == "runs/first"
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    with raises(MirrorError, code="bucket_unavailable"):
        Bucket("az://container/runs/first")


def test_names_that_would_leave_the_folder_are_not_pulled(server: S3Server, tmp_path: Path) -> None:
    from gpubloom.traincard.mirror.pull import Puller

    (in_bucket(server) / "traincard").mkdir(parents=True)
    (in_bucket(server) / "traincard/latest.json").write_text("{}")
    puller = Puller(URL, tmp_path / "pulled")
    for name in ("../evil", "traincard/../../evil", "/etc/evil"):
        with raises(MirrorError, code="path_outside_folder"):
            puller._is_wanted(name)


def test_importing_traincard_imports_no_cloud_library() -> None:
    code = "import sys, gpubloom.traincard, gpubloom.traincard.mirror; assert 'obstore' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


_PREEMPTED = """
    import os, signal, sys, time
    from gpubloom.traincard import Reporter
    reporter = Reporter(sys.argv[1], telemetry_seconds=0, mirror=sys.argv[2])
    reporter.metric("loss", 1.0, step=1)
    if sys.argv[3] == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    if sys.argv[3] == "exception":
        raise RuntimeError("no more")
"""


@pytest.mark.parametrize(
    ("how", "status"), [("sigterm", "preempted"), ("exception", "failed"), ("exit", "ended")]
)
def test_however_a_process_ends_its_last_words_are_in_the_bucket(
    server: S3Server, run_dir: Path, how: str, status: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PREEMPTED), str(run_dir), URL, how],
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == {"sigterm": -signal.SIGTERM, "exception": 1, "exit": 0}[how], ended.stderr
    latest = load_latest(in_bucket(server))
    assert latest is not None
    assert latest["status"] == status
    assert [event.fields["status"] for event in read_all(in_bucket(server)) if event.kind == "end"] == [
        status
    ]
    assert losses(in_bucket(server)) == [1]


def test_a_reader_of_the_mirror_sees_no_gap_while_full_files_are_sealed(
    server: S3Server, run_dir: Path, tmp_path: Path
) -> None:
    pulled = tmp_path / "pulled"
    with Reporter(run_dir, telemetry_seconds=0, segment_bytes=4_000) as reporter:
        small = uploads(run_dir)[0]
        for part in range(12):
            for step in range(part * 50, (part + 1) * 50):
                reporter.metric("loss", 1.0, step)
            reporter.flush()
            small.once()
            pull(URL, pulled)
            assert losses(pulled) == list(range((part + 1) * 50))
    assert len(list((run_dir / "traincard/segments").glob("a*.jsonl"))) >= 3
    small.once(final=True)
    pull(URL, pulled)
    assert losses(pulled) == list(range(600))
    assert content(run_dir) == content(in_bucket(server))
