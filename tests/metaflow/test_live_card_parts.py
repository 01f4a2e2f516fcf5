"""The parts of a live card that need no flow: what it writes, what it gives up, what it does in need."""

import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from metaflow.plugins.cards.card_resolver import CardDatastore
from metaflow.plugins.datastores.local_storage import LocalStorage

from gpubloom.traincard import Reporter, read_all
from gpubloom.traincard.adapters import hugging_face
from metaflow_traincard import HFTrainCardCallback, live_card
from metaflow_traincard.card_store import CARD_ID, CARD_TYPE, CardStore
from metaflow_traincard.live_card import LiveCard
from metaflow_traincard.origin import find_origin, note_foreach_index
from metaflow_traincard.reporters import end_reporters
from metaflow_traincard.task_files import DatastoreCopy, TaskFiles
from tests.metaflow.conftest import on_s3, wait_until
from tests.traincard_mirror.conftest import S3Server


class _Store:
    """Remembers what a card store was given."""

    def __init__(self) -> None:
        self.data: list[dict[str, Any]] = []
        self.pages: list[tuple[str, str | None]] = []

    def save_data(self, content: dict[str, Any], uuid: str | None = None) -> None:
        self.data.append(content)

    def save_page(self, html: str, uuid: str | None = None) -> None:
        self.pages.append((html, uuid))

    def earlier(self) -> list[str]:
        return ["before"]


def _card(run_dir: Path, store: Any, warnings: list[str], **settings: Any) -> LiveCard:
    refreshed: list[dict[str, Any]] = []
    card = LiveCard(
        "Flow/1/train/2", TaskFiles(run_dir), store, refreshed.append, warnings.append, **settings
    )
    card.refreshed = refreshed  # type: ignore[attr-defined]
    return card


def test_the_names_of_card_and_type_can_be_told_apart_in_a_file_name() -> None:
    # Metaflow splits `<type>-<id>-<uuid>.html` at the hyphens.
    assert "-" not in CARD_TYPE + CARD_ID


def test_the_store_writes_where_metaflow_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "metaflow.plugins.cards.card_datastore.CardDatastore.get_storage_root", lambda _: str(tmp_path)
    )
    flow = SimpleNamespace(_storage_impl=LocalStorage(str(tmp_path / "flows")), flow_name="Flow")
    store = CardStore(flow, "Flow/1/train/2", "b" * 32)
    assert store.earlier() == []
    store.save_page("<p>page</p>")
    store.save_data({"a": 1})
    CardStore(flow, "Flow/1/train/2", "a" * 32).save_data({"a": 0})
    assert store.earlier() == ["a" * 32]
    look = CardDatastore(
        SimpleNamespace(_storage_impl=LocalStorage(str(tmp_path)), flow_name="Flow"), "Flow/1/train/2"
    )
    (path,) = look.extract_card_paths(card_type=CARD_TYPE, card_id=CARD_ID)
    assert look.get_card_html(path) == "<p>page</p>"
    (data, *_) = [look.get_card_data(p) for p in look.extract_data_paths(card_hash="b" * 32)]
    assert (data["reload_token"], data["data"]) == ("never", {"a": 1})


def test_a_card_gives_up_points_before_it_holds_up_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        for step in range(2_000):
            reporter.metrics({f"series_{number}": step for number in range(60)}, step=step)
            if step % 200 == 0:
                reporter.flush()
    store, warnings = _Store(), []
    # As if every turn took far too long.
    monkeypatch.setattr(live_card, "MOST_CPU_SECONDS", 0.0)
    card = _card(tmp_path, store, warnings)
    for _ in range(12):
        card._turn()
    assert warnings == []
    assert [one["live"]["points"] for one in store.data[:3]] == [200, 150, 112]
    assert store.data[-1]["live"]["points"] == 40
    assert max(len(m["lines"][0]["x"]) for m in store.data[-1]["metrics"]) <= 60


def test_every_open_card_of_a_retried_task_follows_the_newest_attempt(tmp_path: Path) -> None:
    failing = Reporter(tmp_path, telemetry_seconds=0, attempt=1)
    failing.metric("loss", 1.0, step=1)
    failing.on_exception(ValueError("first"))
    failing.close()
    written: dict[str | None, dict[str, Any]] = {}

    class Both(_Store):
        def save_data(self, content: dict[str, Any], uuid: str | None = None) -> None:
            written[uuid] = content

    card = _card(tmp_path, Both(), [], retried=True, attempt=2, seconds=0.05)
    card.start()
    # Before the new attempt has said anything, and again at every turn.
    assert [written[uuid]["status"]["status"] for uuid in ("before", None)] == ["running", "running"]
    assert written["before"]["status"]["restart_count"] == 1
    assert written["before"]["failure"] is None
    with Reporter(tmp_path, telemetry_seconds=0, attempt=2) as reporter:
        reporter.metric("loss", 0.5, step=2)
        reporter.flush()
        wait_until(lambda: written["before"]["status"]["step"] == 2)
        assert written["before"]["status"]["phase"] == "train"
    card.finish()
    assert written["before"]["status"]["status"] == "completed"
    assert written["before"]["attempts"][0]["error"]["type"] == "ValueError"


def test_checkpoints_have_an_address_on_this_machine_and_in_s3(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in on_s3(s3).items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=s3.address)
    client.create_bucket(Bucket="weights")
    client.put_object(Bucket="weights", Key="a/step-2/model.safetensors", Body=b"second")
    client.put_object(Bucket="weights", Key="a/step-2/config.json", Body=b"{}")
    run_dir = tmp_path / "run"
    saved = run_dir / "checkpoints" / "step-1"
    saved.mkdir(parents=True)
    (saved / "model.pt").write_bytes(b"first")
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.checkpoint(saved, step=1)
        reporter.checkpoint("s3://weights/a/step-2", step=2)
        reporter.checkpoint("s3://weights/a/step-3", step=3)
    store = _Store()
    card = _card(run_dir, store, [])
    card.finish()
    links = [item.get("link") for item in store.data[-1]["checkpoints"]["items"]]
    assert links[0] == (saved / "model.pt").as_uri()
    # The address alone is enough: no header, no credentials.
    with urllib.request.urlopen(links[1]) as answer:
        assert answer.read() == b"second"
    assert links[2] is None


def test_a_task_of_a_foreach_finds_its_own_origin(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for task, index in (("5", [0]), ("6", [1])):
        files = TaskFiles(tmp_path / "Flow" / "1" / "train" / task)
        note_foreach_index(files, index)
        with Reporter(files.run_dir, telemetry_seconds=0, attempt=1) as reporter:
            reporter.metric("loss", float(task), step=1)
    origin = find_origin(storage, "Flow/1/train", [1])
    assert origin is not None
    assert origin.attempts == 1
    new = TaskFiles(tmp_path / "Flow" / "2" / "train" / "9")
    origin.take_over(new)
    assert [dict(event.series()) for event in read_all(new.run_dir) if event.kind == "metric"] == [
        {"train/loss": 6}
    ]
    assert find_origin(storage, "Flow/1/train", [2]) is None
    assert find_origin(storage, "Flow/1/other", []) is None


def test_without_a_store_metaflow_is_asked_to_refresh(tmp_path: Path) -> None:
    warnings: list[str] = []
    card = _card(tmp_path, None, warnings)
    card._turn()
    (content,) = card.refreshed  # type: ignore[attr-defined]
    assert content["name"] == "Flow/1/train/2"
    assert "has not reported anything yet" in content["notes"][0]


def test_a_store_that_fails_is_told_of_once_and_tried_again(tmp_path: Path) -> None:
    class Broken(_Store):
        def save_data(self, content: dict[str, Any], uuid: str | None = None) -> None:
            super().save_data(content, uuid)
            raise OSError("the bucket is gone")

    store, warnings = Broken(), []
    card = _card(tmp_path, store, warnings)
    card._turn()
    card._turn()
    assert len(store.data) == 2
    assert warnings == ["the card could not be updated: OSError: the bucket is gone"]


def test_the_last_look_of_a_finished_step_is_not_overwritten(tmp_path: Path) -> None:
    store, warnings = _Store(), []
    card = _card(tmp_path, store, warnings, retried=True)
    card.start()
    card.finish(RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"))
    card._turn()
    assert store.data[-1]["failure"]["cause"] == "lost_rank"
    assert {uuid for _, uuid in store.pages} == {None, "before"}
    assert 'data-reload-token="never"' in store.pages[-1][0]


def test_an_update_that_does_not_come_back_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_card, "_FINISH_SECONDS", 0.05)
    store, warnings = _Store(), []
    card = _card(tmp_path, store, warnings)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with card._busy:
            holding.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(10)
    card.finish()
    done.set()
    thread.join()
    assert store.data == []
    assert warnings == ["the card does not show the last state because an earlier update did not finish"]


def test_a_step_that_leaves_through_the_back_door_has_its_last_state_on_the_card(tmp_path: Path) -> None:
    store, warnings = _Store(), []
    card = _card(tmp_path, store, warnings)
    card.start()
    reporter = Reporter(tmp_path, telemetry_seconds=0)
    reporter.close()
    # What the interpreter calls when a step has called sys.exit().
    card.on_exit()
    assert store.data[-1]["status"]["status"] == "ended"
    card.on_exit()
    assert len(store.data) == 2


def test_files_that_cannot_be_copied_do_not_keep_the_card_from_being_written(tmp_path: Path) -> None:
    class Unreachable(TaskFiles):
        def exchange(self, *, all_of_it: bool = False) -> None:
            raise OSError("no route")

    store, warnings = _Store(), []
    LiveCard("n", Unreachable(tmp_path), store, lambda _: None, warnings.append).finish()  # type: ignore[arg-type]
    assert len(store.data) == len(store.pages) == 1
    assert warnings == ["the run's files could not be copied: OSError: no route"]


def test_sigterm_leaves_the_state_of_that_moment_on_the_card(tmp_path: Path) -> None:
    store, warnings = _Store(), []
    card = _card(tmp_path, store, warnings)
    reporter = Reporter(tmp_path, telemetry_seconds=0)
    reporter.metric("loss", 1.0, step=3)
    reporter.on_sigterm()
    card.on_sigterm()
    reporter.close()
    assert store.data[-1]["status"]["status"] == "preempted"
    assert store.data[-1]["failure"]["step"] == 3
    assert store.pages


def test_reporters_that_a_step_left_open_are_ended(tmp_path: Path) -> None:
    ours = Reporter(tmp_path / "ours", telemetry_seconds=0)
    others = Reporter(tmp_path / "others", telemetry_seconds=0)
    end_reporters(tmp_path / "ours", None)
    assert not ours.is_on
    assert others.is_on
    others.close()
    assert '"completed"' in (tmp_path / "ours/traincard/latest.json").read_text()


def test_files_travel_through_a_datastore_and_come_back(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "store"))
    first = DatastoreCopy(tmp_path / "first", storage, "Flow/1/train/2", shared=False)
    with Reporter(first.run_dir, telemetry_seconds=0, attempt=1) as reporter:
        reporter.metric("loss", 1.0, step=1)
    first.exchange(all_of_it=True)
    stored = {path.name for path in (tmp_path / "store/Flow/1/train/2/traincard").iterdir()}
    assert {"events.jsonl", "latest.json"} <= stored
    assert not any("lock" in name for name in stored)
    second = DatastoreCopy(tmp_path / "second", storage, "Flow/1/train/2", shared=False)
    second.fetch()
    assert (second.run_dir / "traincard/events.jsonl").read_bytes() == (
        first.run_dir / "traincard/events.jsonl"
    ).read_bytes()


def test_a_large_growing_file_is_not_sent_at_every_turn(tmp_path: Path) -> None:
    sent: list[str] = []

    class Counting(LocalStorage):  # type: ignore[misc]
        def save_bytes(self, pairs: Any, overwrite: bool = False, len_hint: int = 0) -> None:
            pairs = list(pairs)
            sent.extend(path for path, _ in pairs)
            super().save_bytes(pairs, overwrite, len_hint)

    copy = DatastoreCopy(tmp_path / "run", Counting(str(tmp_path / "store")), "task", shared=False)
    tail = tmp_path / "run/traincard/events.jsonl"
    tail.parent.mkdir(parents=True)
    size = 2_000_000
    tail.write_bytes(b"x" * size)
    for _ in range(40):
        copy.exchange()
        size += 50_000
        tail.write_bytes(b"x" * size)
    assert 2 <= len(sent) <= 5
    copy.exchange(all_of_it=True)
    assert (tmp_path / "store/task/traincard/events.jsonl").stat().st_size == size


def test_the_callback_is_there_under_the_name_of_the_request() -> None:
    callback = HFTrainCardCallback(Reporter(enabled=False))
    assert isinstance(callback, hugging_face.HFTrainCardCallback)
