"""Whatever a rented machine sends: nothing but the results of its own job changes, and the receiver lives."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.storage import DamagedBatchError, Receiver
from gpubloom.traincard.sync.accepted import (
    SCRIPT_PATHS,
    TASK_PATHS,
    TRAINING_PATHS,
    AcceptedPaths,
    Entry,
    Limits,
    RefusedEntryError,
)
from gpubloom.traincard.sync.apply import RunFolder
from gpubloom.traincard.sync.files import is_valid_name
from gpubloom.traincard.sync.upload_batch import UploadBatch
from tests.storage.hostile import (
    EVIL,
    JOB,
    SERVER_FILES,
    HostileAgent,
    MemoryStore,
    everything_else,
    exit_batch,
    make_home,
    plant_links,
    server_text,
    signed,
    slot,
)

BATCHES = 1_000


def receive(store: MemoryStore, run_dir: Path, attempt: int = 1, **options: Any) -> Receiver:
    options = {"accepted": SCRIPT_PATHS, **options}
    return Receiver(store, JOB, attempt, run_dir, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize(
    "accepted", [TRAINING_PATHS, SCRIPT_PATHS, TASK_PATHS], ids=["train", "script", "task"]
)
def test_a_thousand_hostile_batches_change_nothing_outside_of_their_job(
    tmp_path: Path, accepted: AcceptedPaths
) -> None:
    home = tmp_path / "home"
    run_dir = make_home(home)
    before = everything_else(home)
    agent, store = HostileAgent(18), MemoryStore()
    refused = 0
    for attempt in range(1, BATCHES + 1):
        receiver = receive(store, run_dir, attempt, accepted=accepted)
        # An attempt ends with its first damaged batch, so each batch is the first one of an attempt.
        store.put(slot(attempt, 1), agent.batch(attempt, 1))
        try:
            receiver.once()
        except DamagedBatchError as problem:
            refused += 1
            str(problem).encode()
        if attempt % 20 == 0:
            plant_links(home)
    assert everything_else(home) == before
    assert refused > BATCHES / 2


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_no_entry_leaves_the_run_directory(
    tmp_path_factory: pytest.TempPathFactory, seed: int, batches: int
) -> None:
    home = tmp_path_factory.mktemp("home")
    run_dir = make_home(home)
    before = everything_else(home)
    agent, store = HostileAgent(seed), MemoryStore()
    receiver = receive(store, run_dir)
    try:
        for number in range(1, batches + 1):
            store.put(slot(1, number), agent.batch(1, number))
            receiver.once()
    except DamagedBatchError:
        pass
    assert everything_else(home) == before


NAMES = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(["work", "link", "..", ".", "", "file", "é", "\udc80"]), max_size=6).map(
        "/".join
    ),
    st.sampled_from(SERVER_FILES),
)


@given(NAMES)
@settings(max_examples=500, deadline=None)
def test_a_valid_name_has_one_spelling_below_the_run_directory(name: str) -> None:
    if is_valid_name(name):
        assert os.path.normpath(f"/run/{name}") == f"/run/{name}"
        assert json.loads(json.dumps({"name": name}).encode())["name"].encode().decode() == name


@pytest.mark.parametrize(
    "accepted", [TRAINING_PATHS, SCRIPT_PATHS, TASK_PATHS], ids=["train", "script", "task"]
)
@pytest.mark.parametrize("name", SERVER_FILES)
def test_no_kind_of_job_may_send_a_file_of_the_server(
    name: str, accepted: AcceptedPaths, tmp_path: Path
) -> None:
    run_dir = make_home(tmp_path / "home")
    store = MemoryStore()
    entries = [{"kind": "whole", "path": name, "size": len(EVIL)}]
    store.put(slot(1, 1), UploadBatch(JOB, 1, 1, 10.0, entries, EVIL).to_bytes())
    with pytest.raises(DamagedBatchError, match="not allowed to write"):
        receive(store, run_dir, accepted=accepted).once()
    assert (run_dir / name).read_text() == server_text(name)


@pytest.mark.parametrize(
    ("accepted", "yes", "no"),
    [
        (TRAINING_PATHS, ["model/a", "checkpoints/step-1/b"], ["work/a", "result.json", "notes.txt"]),
        (SCRIPT_PATHS, ["model/a", "checkpoints/step-1/b", "work/a"], ["result.json", "notes.txt"]),
        (TASK_PATHS, ["model/a", "result.json"], ["work/a", "checkpoints/step-1/b"]),
    ],
)
def test_each_kind_of_job_has_its_own_list(accepted: AcceptedPaths, yes: list[str], no: list[str]) -> None:
    everywhere = ["traincard/latest.json", "traincard/events.jsonl", "logs/output.log"]
    assert [name for name in [*yes, *everywhere, *no] if name in accepted] == [*yes, *everywhere]
    assert "traincard/events.rank٣.jsonl" not in accepted, "no digits but ours"


def test_nothing_of_a_batch_is_stored_when_its_last_entry_is_refused(tmp_path: Path) -> None:
    store, run_dir = MemoryStore(), tmp_path / "run"
    entries = [
        {"kind": "whole", "path": "work/good", "size": len(EVIL)},
        {"kind": "whole", "path": "../evil", "size": len(EVIL)},
    ]
    store.put(slot(1, 1), UploadBatch(JOB, 1, 1, 10.0, entries, EVIL * 2).to_bytes())
    with pytest.raises(DamagedBatchError):
        receive(store, run_dir).once()
    assert not (run_dir / "work").exists()


def test_nothing_is_written_into_a_hard_link_a_pipe_or_a_socket(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run_dir = make_home(home)
    before = everything_else(home)
    folder = RunFolder(run_dir, SCRIPT_PATHS)
    for name in ("work/hard.log", "work/pipe", "work/socket", "traincard/events.jsonl"):
        with pytest.raises(RefusedEntryError):
            folder.apply(Entry.parse({"kind": "grow", "path": name, "offset": 0, "size": len(EVIL)}), EVIL)
    assert everything_else(home) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'"text"', b"{}", b"[" * 50_000, b'{"attempt": 1}', b"\xff", b"9" * 70_000, b"NaN"]
    + [
        json.dumps({**json.loads(good), field: wrong}).encode()
        for good in ['{"v": 1, "attempt": 1, "code": 0, "signal": null, "reason": "ended", "started_at": 1,'
                     ' "ended_at": 2, "output_dropped_bytes": 0, "problem": null}']
        for field, wrong in [("attempt", 2), ("attempt", "1"), ("code", "0"), ("code", 1 << 70),
                             ("signal", [9]), ("reason", "hacked"), ("reason", []), ("problem", 5),
                             ("started_at", float("nan")), ("ended_at", float("inf")), ("ended_at", 1e300),
                             ("output_dropped_bytes", -1), ("output_dropped_bytes", 10**400)]
    ],
)  # fmt: skip
def test_a_malformed_exit_record_is_refused_and_not_stored(content: bytes, tmp_path: Path) -> None:
    store, run_dir = MemoryStore(), tmp_path / "run"
    store.put(slot(1, 1), exit_batch(1, 1, content))
    receiver = receive(store, run_dir)
    for _ in range(2):
        with pytest.raises(DamagedBatchError):
            receiver.once()
    assert not (run_dir / "agent").exists()


def test_a_header_nested_without_end_is_a_damaged_batch(tmp_path: Path) -> None:
    store = MemoryStore()
    store.put(slot(1, 1), signed(b"[" * 200_000))
    with pytest.raises(DamagedBatchError):
        receive(store, tmp_path / "run").once()


def test_a_hole_in_a_large_file_is_refused_before_it_is_made(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", TRAINING_PATHS)
    hole = {"kind": "part", "path": "model/weights", "offset": 1 << 50, "size": 1}
    with pytest.raises(RefusedEntryError, match="missing"):
        folder.apply(Entry.parse(hole), b"x")
    assert not list((tmp_path / "run").rglob("weights"))


def test_a_file_is_read_back_only_as_often_as_it_was_sent(tmp_path: Path) -> None:
    """Of a checkpoint that is not complete, the same end could be announced again and again."""
    store, run_dir = MemoryStore(), tmp_path / "run"
    name = "checkpoints/step-1/weights"
    part = {"kind": "part", "path": name, "offset": 0, "size": len(EVIL)}
    done = {"kind": "done", "path": name, "total": len(EVIL), "sha256": hashlib.sha256(EVIL).hexdigest()}
    receiver = receive(store, run_dir)
    store.put(slot(1, 1), UploadBatch(JOB, 1, 1, 10.0, [part, done], EVIL).to_bytes())
    receiver.once()
    store.put(slot(1, 2), UploadBatch(JOB, 1, 2, 10.0, [done]).to_bytes())
    with pytest.raises(DamagedBatchError, match="missing"):
        receiver.once()


@pytest.mark.parametrize(
    ("limits", "entries"),
    [
        (Limits(entries=2), [{"kind": "remove", "path": f"work/{number}"} for number in range(3)]),
        (Limits(run_bytes=99), [{"kind": "whole", "path": "work/a", "size": 100}]),
        (
            Limits(run_files=9),
            [{"kind": "whole", "path": f"work/{number}", "size": 0} for number in range(12)],
        ),
        (Limits(batch_bytes=99), [{"kind": "whole", "path": "work/a", "size": 100}]),
    ],
    ids=["entries", "bytes", "files", "batch"],
)
def test_a_limit_ends_the_attempt(limits: Limits, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    store, run_dir = MemoryStore(), tmp_path / "run"
    body = b"x" * sum(entry.get("size", 0) for entry in entries)
    store.put(slot(1, 1), UploadBatch(JOB, 1, 1, 10.0, entries, body).to_bytes())
    with pytest.raises(DamagedBatchError):
        receive(store, run_dir, limits=limits).once()
    stored = [path for path in (run_dir / "work").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in stored) <= limits.run_bytes
    assert len(stored) <= limits.run_files


def test_a_run_that_replaces_its_files_is_not_counted_twice(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", TRAINING_PATHS, Limits(run_bytes=1_000, run_files=10))
    entry = Entry.parse({"kind": "whole", "path": "traincard/latest.json", "size": 100})
    for _ in range(100):
        folder.apply(entry, b"x" * 100)


def test_a_sender_that_is_too_fast_waits_in_the_bucket_and_is_not_silent(tmp_path: Path) -> None:
    store, run_dir, moment = MemoryStore(), tmp_path / "run", [0.0]
    limits = Limits(bytes_per_second=1_000.0, burst_bytes=1_500.0, entry_bytes=0)
    receiver = receive(store, run_dir, limits=limits, clock=lambda: moment[0])
    entry = {"kind": "whole", "path": "work/a", "size": 1_000}
    for number in range(1, 5):
        store.put(slot(1, number), UploadBatch(JOB, 1, number, 1.0, [entry], b"x" * 1_000).to_bytes())
    first = receiver.once()
    assert (first.news, first.waits) == (2, True)
    moment[0] = 0.5
    assert (receiver.once().news, receiver.once().state) == (0, "running")
    moment[0] = 60.0
    assert (receiver.once().news, receiver.once().state) == (2, "running")
    assert not store.sizes("jobs/job-1/a0001/in")


def test_nothing_is_taken_after_the_end(tmp_path: Path) -> None:
    store, run_dir = MemoryStore(), tmp_path / "run"
    store.put(slot(1, 1), UploadBatch(JOB, 1, 1, 10.0, ended=True).to_bytes())
    late = [{"kind": "whole", "path": "work/late", "size": len(EVIL)}]
    store.put(slot(1, 2), UploadBatch(JOB, 1, 2, 10.0, late, EVIL).to_bytes())
    assert receive(store, run_dir).once().state == "vanished"
    assert not (run_dir / "work/late").exists()


def test_a_link_in_the_place_of_the_receivers_own_folder_is_not_followed(tmp_path: Path) -> None:
    store, run_dir, outside = MemoryStore(), tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    run_dir.mkdir()
    (run_dir / ".arriving").symlink_to(outside)
    store.put(slot(1, 1), UploadBatch(JOB, 1, 1, 10.0).to_bytes())
    with pytest.raises((OSError, DamagedBatchError)):
        receive(store, run_dir).once()
    assert not list(outside.iterdir())


def test_a_command_that_is_a_link_is_not_told_to_the_machine(tmp_path: Path) -> None:
    store, run_dir, secret = MemoryStore(), tmp_path / "run", tmp_path / "secret.json"
    secret.write_text('{"version": 5, "token": "private"}')
    (run_dir / "traincard").mkdir(parents=True)
    (run_dir / "traincard/control.json").symlink_to(secret)
    receive(store, run_dir).once()
    assert not [content for content in store.objects.values() if b"private" in content]
