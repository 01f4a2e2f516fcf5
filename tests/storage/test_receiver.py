"""Outages, killed processes and refused addresses, with the clocks of both sides in our hands."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.agent import JobSpec
from gpubloom.agent.remote.link import HttpLink, Rejected, Unavailable
from gpubloom.agent.remote.start import Folders, Start
from gpubloom.agent.remote.uploader import Uploader
from gpubloom.storage import (
    Arrival,
    Bundle,
    DamagedBatchError,
    Mailbox,
    Receiver,
    StorageError,
    StorageSettings,
    Store,
    send_bundle,
)
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.sync.accepted import TRAINING_PATHS, Entry, RefusedEntryError
from gpubloom.traincard.sync.apply import RunFolder
from gpubloom.traincard.sync.upload_batch import UploadBatch
from tests.errors import raises
from tests.storage.instances import content
from tests.traincard_mirror.conftest import KEY, S3Server
from tests.waiting import wait_until

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

LAYOUT = JobLayout("job-1", 1)


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


class Wire(HttpLink):
    """The real network, which can be cut, and can cut down its user right after a delivery."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = self.kills = False
        self.tries = 0

    def get(self, address: str) -> bytes:
        self._pass()
        return super().get(address)

    def put(self, address: str, body: bytes) -> None:
        self._pass()
        super().put(address, body)
        if self.kills:
            self.kills = False
            raise Killed

    def _pass(self) -> None:
        self.tries += 1
        if self.is_cut:
            raise Unavailable("the wire is cut")


class Both:
    """An uploader and a receiver; no training: the test writes the run directory."""

    def __init__(self, store: Store, folder: Path, **mailbox: Any) -> None:
        self.now, self.store = 1000.0, store
        self.mine, self.wire = folder / "mine", Wire()
        self.mine.mkdir()
        (self.mine / "train.py").write_text("pass")
        self._mailbox = Mailbox(store, LAYOUT, clock=self.clock, **mailbox)
        spec = JobSpec("job-1", self.mine, 1, ("python", "train.py"))
        send_bundle(store, Bundle(spec, self.mine), mailbox=self._mailbox)
        (found,) = [name for name in store.sizes("jobs/job-1/bundle") if "start-1-" in name]
        script = (store.get(found) or b"").decode()
        names: dict[str, Any] = {"json": json}
        exec(next(line for line in script.splitlines() if line.startswith("START")), names)
        self.folders, self._start = Folders(folder / "elsewhere"), Start.from_json(names["START"])
        self.there = self.folders.run
        self.uploader = self.new_uploader()
        self.receiver = self.new_receiver()

    def clock(self) -> float:
        return self.now

    def new_uploader(self) -> Uploader:
        uploader = Uploader(self._start, self.folders, self.wire, self.clock)
        uploader.prepare()
        return uploader

    def new_receiver(self) -> Receiver:
        return Receiver(
            self.store,
            "job-1",
            1,
            self.mine,
            accepted=TRAINING_PATHS,
            mailbox=self._mailbox,
            clock=self.clock,
        )

    def says(self, text: str) -> None:
        (self.there / "logs").mkdir(exist_ok=True)
        with (self.there / "logs/output.log").open("a") as log:
            log.write(text)

    def turns(self, seconds: float, *, ended: bool = False) -> None:
        until = self.now + seconds
        while self.now < until and not self.uploader.turn(ended):
            self.now += self.uploader.pause

    def arrived(self) -> str:
        log = self.mine / "logs/output.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def both(store: Store, tmp_path: Path) -> Both:
    return Both(store, tmp_path)


def test_five_minutes_without_the_bucket_lose_nothing_and_are_no_silence(
    both: Both, bucket: S3Server
) -> None:
    both.says("before\n")
    both.turns(5)
    assert both.receiver.once().state == "running"
    bucket.stop()
    both.wire.is_cut, both.wire.tries = True, 0
    for minute in range(5):
        both.says(f"minute {minute}\n")
        both.turns(60)
        with raises(StorageError, code="bucket_unavailable"):
            both.receiver.once()
    assert both.wire.tries < 25
    bucket.start()
    both.wire.is_cut = False
    assert both.receiver.once().state == "running"
    both.turns(31)
    assert both.receiver.once().news > 0
    assert both.arrived() == "before\n" + "".join(f"minute {minute}\n" for minute in range(5))


def test_slots_last_while_the_worker_is_away_and_then_the_agent_waits(store: Store, tmp_path: Path) -> None:
    both = Both(store, tmp_path, slots=16)
    for _ in range(400):
        both.says("line\n")
        both.turns(1)
    stored = store.sizes(LAYOUT.batches)
    assert len(stored) == 16
    # Half of them at the usual pace, the others only every beat.
    assert both.now - 1000 > 8 * 3 + 8 * 30
    both.receiver.once()
    assert both.arrived().count("line") < 400
    both.turns(31)
    both.receiver.once()
    assert both.arrived() == content(both.there)["logs/output.log"].decode()


def test_an_agent_killed_right_after_a_delivery_sends_the_same_batch_again(both: Both) -> None:
    both.says("one\n")
    both.wire.kills = True
    with pytest.raises(Killed):
        both.uploader.turn(False)
    first = both.store.get(LAYOUT.slot(1))
    both.receiver.once()
    both.says("two\n")
    both.uploader = both.new_uploader()
    both.turns(4)
    assert first == both.store.get(LAYOUT.slot(1))
    both.receiver.once()
    assert both.arrived() == "one\ntwo\n"
    assert both.store.get(LAYOUT.slot(1)) is None


def test_a_receiver_killed_in_the_middle_of_a_batch_goes_on_behind_the_last_entry(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.says("one\n")
    both.turns(4)
    both.receiver.once()
    both.says("two\n")
    (both.there / "logs/output.log").rename(both.there / "logs/output.1.log")
    both.says("three\n")
    (both.there / "model").mkdir()
    (both.there / "model/notes.txt").write_text("small")
    both.turns(4)
    real, done = RunFolder.apply, []

    def dies(self: RunFolder, entry: Any, piece: bytes) -> None:
        real(self, entry, piece)
        done.append(entry.kind)
        if entry.kind == "rename":
            raise Killed

    monkeypatch.setattr(RunFolder, "apply", dies)
    with pytest.raises(Killed):
        both.receiver.once()
    assert done[:2] == ["grow", "rename"]
    monkeypatch.setattr(RunFolder, "apply", real)
    both.receiver = both.new_receiver()
    both.receiver.once()
    assert content(both.mine) == content(both.there)


def test_silence_beyond_the_promise_is_noticed_and_a_word_brings_it_back(both: Both) -> None:
    both.says("alive\n")
    both.turns(4)
    assert both.receiver.once().state == "running"
    found: list[Arrival] = []
    for _ in range(5):
        both.now += 25
        found.append(both.receiver.once())
    assert [arrival.state for arrival in found] == ["running"] * 3 + ["silent"] * 2
    both.turns(4)
    assert both.receiver.once().state == "running"


def test_a_large_file_is_sent_once_it_has_settled_and_a_newer_one_replaces_the_one_on_its_way(
    both: Both,
) -> None:
    weights = both.there / "model/ckpt.pt"
    weights.parent.mkdir()
    weights.write_bytes(b"whole" * 500_000)
    both.turns(7)
    both.receiver.once()
    weights.write_bytes(b"half" * 400_000)
    both.uploader.turn(False)
    both.now += 2
    both.uploader.turn(False)
    both.receiver.once()
    assert (both.mine / "model/ckpt.pt").read_bytes() == b"whole" * 500_000
    weights.write_bytes(b"newer" * 600_000)
    both.turns(7)
    both.receiver.once()
    assert (both.mine / "model/ckpt.pt").read_bytes() == b"newer" * 600_000


def test_an_end_without_a_record_is_a_vanished_attempt(both: Both) -> None:
    both.says("alive\n")
    both.turns(60, ended=True)
    assert both.receiver.once().state == "vanished"


def test_tampered_and_expired_addresses_are_refused(store: Store) -> None:
    link = HttpLink()
    store.put("jobs/a/secret", b"weights")
    good, other = store.addresses("GET", ["jobs/a/secret", "jobs/a/other"], 60)
    assert link.get(good) == b"weights"
    (slot,) = store.addresses("PUT", ["jobs/a/slot"], 60)
    # Signed after the upload address, so once it has expired, so has the other.
    (old,) = store.addresses("PUT", ["jobs/a/old"], 1)
    (old_get,) = store.addresses("GET", ["jobs/a/secret"], 1)
    for address in (
        other.replace("other", "secret"),
        good.replace("Expires=60", "Expires=6000"),
        good[:-1] + ("0" if good[-1] != "0" else "1"),
        slot,
    ):
        with pytest.raises(Rejected) as refused:
            link.get(address)
        assert "Signature" not in str(refused.value)
    with pytest.raises(Rejected):
        link.put(good, b"mine")
    wait_until(lambda: _is_rejected(link, old_get), "the address to expire")
    with pytest.raises(Rejected):
        link.put(old, b"late")
    assert not store.has("jobs/a/old")


def _is_rejected(link: HttpLink, address: str) -> bool:
    try:
        link.get(address)
    except Rejected:
        return True
    return False


def test_a_damaged_batch_is_kept_and_named(both: Both, bucket: S3Server) -> None:
    both.says("hello\n")
    both.turns(4)
    (stored,) = bucket.folder.rglob("00000001")
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedBatchError, match="00000001 cannot be applied: the content is damaged"):
        both.receiver.once()
    assert both.arrived() == ""
    assert stored.exists()


def test_a_batch_that_is_listed_before_it_can_be_read_whole_is_taken_the_next_time(
    both: Both, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.says("hello\n")
    both.turns(4)
    readable = store.get
    for early in (None, b"", (readable(LAYOUT.slot(1)) or b"")[:-1]):
        monkeypatch.setattr(store, "get", lambda name, most, early=early: early)
        assert both.receiver.once().news == 0
        assert both.arrived() == ""
    monkeypatch.setattr(store, "get", readable)
    assert both.receiver.once().news >= 1
    assert both.arrived() == "hello\n"


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", ".arriving/x", "agent/job.json", "agent/agent.json", "a\\b", "",
     "traincard/control.json", "traincard/lock", "agent"],
)  # fmt: skip
def test_a_name_that_is_not_the_agents_to_write_is_refused(name: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", TRAINING_PATHS)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RefusedEntryError):
        folder.apply(Entry.parse({"kind": "whole", "path": name, "size": 1}), b"x")
    with pytest.raises(RefusedEntryError):
        folder.apply(Entry.parse({"kind": "rename", "path": "a", "to": name}), b"")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_large_file_never_appears(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", TRAINING_PATHS)
    folder.apply(Entry.parse({"kind": "part", "path": "model/weights", "offset": 0, "size": 3}), b"abc")
    done = {"kind": "done", "path": "model/weights", "total": 3, "sha256": "0" * 64}
    with pytest.raises(RefusedEntryError, match="SHA-256"):
        folder.apply(Entry.parse(done), b"")
    assert not (tmp_path / "run/model/weights").exists()


def test_a_wrong_key_is_a_sentence_without_the_secret(bucket: S3Server) -> None:
    settings = StorageSettings("bucket", KEY, "wrong-and-private", bucket.address)
    assert "wrong-and-private" not in repr(settings)
    with raises(StorageError, code="bucket_unavailable") as refused:
        Store(settings).put("jobs/x", b"")
    assert "wrong-and-private" not in str(refused.value)


def test_a_short_outage_is_no_silence(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [0.0]
    receiver = Receiver(store, "job-1", 1, tmp_path / "run", accepted=TRAINING_PATHS, clock=lambda: moment[0])
    batch = UploadBatch("job-1", 1, number=1, next_in=10.0, entries=[], body=b"")
    store.put(LAYOUT.slot(1), batch.to_bytes())
    assert receiver.once().state == "running"
    moment[0] = 8.0
    with monkeypatch.context() as away:
        away.setattr(store, "sizes", _away)
        with pytest.raises(StorageError):
            receiver.once()
    moment[0] = 16.0
    assert receiver.once().state == "running", "nobody could be heard"
    moment[0] = 27.0
    assert receiver.once().state == "silent", "the promise counts again"


def _away(folder: str) -> dict[str, int]:
    raise StorageError("bucket_unavailable", "The bucket is away.")
