"""The parts of a live card that need no flow: what it writes, what it gives up, what it does in need."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from metaflow.plugins.cards.card_resolver import CardDatastore
from metaflow.plugins.datastores.local_storage import LocalStorage

from gpubloom.traincard import Reporter
from gpubloom.traincard.adapters import hugging_face
from metaflow_traincard import HFTrainCardCallback, live_card
from metaflow_traincard.card_store import CARD_ID, CARD_TYPE, CardStore
from metaflow_traincard.live_card import LiveCard
from metaflow_traincard.reporters import end_reporters
from metaflow_traincard.task_files import DatastoreCopy, TaskFiles


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
    assert HFTrainCardCallback is hugging_face.HFTrainCardCallback
