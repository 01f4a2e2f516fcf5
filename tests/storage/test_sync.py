"""Whatever happens to a run directory, and whoever is killed in between: the other side becomes the same."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard.sync.accepted import SCRIPT_PATHS, Entry, Limits
from gpubloom.traincard.sync.apply import RunFolder
from gpubloom.traincard.sync.delta import DeltaBuilder
from gpubloom.traincard.sync.upload_batch import UploadBatch
from tests.storage.instances import content


class Trainer:
    """Does to a directory what trainers, Reporters, logs and careless scripts do."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.count = folder, chance, 0
        for name in ("traincard/segments", "logs", "checkpoints", "work/out", "agent"):
            (folder / name).mkdir(parents=True)

    def act(self) -> None:
        self.count += 1
        what = self.chance.choice(
            [
                self.report,
                self.report,
                self.seal,
                self.turn,
                self.save,
                self.forget,
                self.replace,
                self.rewrite,
                self.begin_anew,
            ]
        )
        what()

    def _bytes(self, most: int) -> bytes:
        return self.chance.randbytes(self.chance.randint(1, most))

    def report(self) -> None:
        for name in ("traincard/events.jsonl", "logs/output.log"):
            with (self.folder / name).open("ab") as file:
                file.write(self._bytes(9000))

    def seal(self) -> None:
        tail = self.folder / "traincard/events.jsonl"
        if tail.exists():
            tail.rename(self.folder / f"traincard/segments/a0001.r0000.s{self.count:04d}.jsonl")
        if self.chance.random() < 0.5:
            self.report()

    def turn(self) -> None:
        log = self.folder / "logs/output.log"
        if log.exists():
            log.rename(self.folder / "logs/output.1.log")
        self.report()

    def begin_anew(self) -> None:
        """A log that is deleted, emptied in place, or replaced by another file."""
        log = self.folder / "logs/script.log"
        match self.chance.randrange(3):
            case 0:
                log.unlink(missing_ok=True)
            case 1:
                log.write_bytes(self._bytes(5000))
            case 2:
                new = log.with_name(".new")
                new.write_bytes(self._bytes(5000))
                new.rename(log)

    def save(self) -> None:
        temporary = self.folder / "checkpoints" / f".step-{self.count}"
        temporary.mkdir()
        for name in "ab":
            (temporary / name).write_bytes(self._bytes(40_000))
        temporary.rename(self.folder / "checkpoints" / f"step-{self.count}")
        paths = sorted(f"checkpoints/{found.name}" for found in (self.folder / "checkpoints").glob("step*"))
        text = '{"checkpoints": [' + ", ".join(f'{{"path": "{path}"}}' for path in paths) + "]}"
        (self.folder / "traincard/checkpoints.json").write_text(text)

    def forget(self) -> None:
        for folder in sorted((self.folder / "checkpoints").glob("step*"))[:1]:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()

    def replace(self) -> None:
        new = self.folder / "traincard/.latest"
        new.write_bytes(self._bytes(500))
        new.rename(self.folder / "traincard/latest.json")

    def rewrite(self) -> None:
        (self.folder / "work/out/weights.pt").write_bytes(self.chance.randbytes(1_200_000))
        (self.folder / "work/out/notes.txt").write_bytes(self._bytes(300))
        if self.chance.random() < 0.3:
            (self.folder / "work/out/notes.txt").unlink()


@pytest.mark.parametrize("seed", range(8))
def test_any_history_arrives(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    chance = random.Random(seed)
    trainer = Trainer(tmp_path / "there", chance)
    here = RunFolder(tmp_path / "here", SCRIPT_PATHS)
    delta_builder, state = (
        DeltaBuilder(trainer.folder, part_bytes=50_000),
        DeltaBuilder.first_state(trainer.folder, {}),
    )

    def deliver(final: bool) -> bool:
        nonlocal delta_builder, state
        if chance.random() < 0.15:
            # Another process goes on with what was kept.
            delta_builder = DeltaBuilder(trainer.folder, part_bytes=50_000)
        packed = delta_builder.pack(state, large=final or chance.random() < 0.8, final=final)
        if packed is None:
            return False
        entries, body, state = packed
        apply(here, UploadBatch.from_bytes(UploadBatch("job", 1, 1, 1.0, entries, body).to_bytes()), chance)
        announced(tmp_path / "here", trainer.folder)
        return True

    for _ in range(60):
        trainer.act()
        for _ in range(chance.randint(0, 3)):
            deliver(final=False)
    while deliver(final=True):
        pass
    assert content(tmp_path / "here") == content(trainer.folder)
    assert here.differences(delta_builder.tree(state)) == []
    assert not [path for path in (tmp_path / "here/.arriving").rglob("*") if path.is_file()]


def test_very_many_files_and_odd_names_stay_within_what_a_receiver_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr("gpubloom.traincard.sync.delta._MOST_ENTRIES", 40)
    there, limits = tmp_path / "there", Limits(entries=200)
    (there / "work/logs").mkdir(parents=True)
    (there / "model").mkdir()
    for number in range(150):
        (there / f"work/{number}.txt").write_text("x" if number % 3 else "")
        (there / f"work/logs/{number}.log").write_text("line\n")
        (there / f"model/{number}.bin").write_text("w")
    for odd in ("line\nbreak", "back\\slash", ".hidden", "y" * 250 + "\udc80"):
        (there / "work" / odd).write_text("odd")
    os.mkfifo(there / "work/pipe")
    here = RunFolder(tmp_path / "here", SCRIPT_PATHS, limits)
    builder, state = DeltaBuilder(there, part_bytes=1 << 20), DeltaBuilder.first_state(there, {})

    def deliver() -> None:
        nonlocal state
        while packed := builder.pack(state, large=True, final=True):
            entries, body, state = packed
            assert len(entries) <= limits.entries
            apply(here, UploadBatch("job", 1, 1, 1.0, entries, body), random.Random(1))

    deliver()
    names = {path.relative_to(tmp_path / "here").as_posix() for path in (tmp_path / "here").rglob("*.*")}
    assert {f"work/{n}.txt" for n in range(150)} | {f"work/logs/{n}.log" for n in range(150)} <= names
    assert {f"model/{n}.bin" for n in range(150)} <= names
    assert not [name for name in names if "\n" in name or "\\" in name or "hidden" in name]
    for path in (there / "work").glob("*.txt"):
        path.unlink()
    deliver()
    assert not list((tmp_path / "here/work").glob("*.txt"))


def apply(folder: RunFolder, batch: UploadBatch, chance: random.Random) -> None:
    offset = 0
    for entry in map(Entry.parse, batch.entries):
        piece = batch.body[offset : offset + entry.size]
        offset += entry.size
        # Sometimes twice: a receiver that was killed before it could note that it was done.
        for _ in range(1 + (chance.random() < 0.3)):
            folder.apply(entry, piece)


def announced(here: Path, there: Path) -> None:
    """A checkpoint that the index names is complete, unless its trainer has deleted it since."""
    index: Any = here / "traincard/checkpoints.json"
    for folder in (here / "checkpoints").glob("step*"):
        original = there / "checkpoints" / folder.name
        if original.is_dir():
            assert content(folder) == content(original)
    if index.exists():
        named = [part.split('"')[0] for part in index.read_text().split('"path": "')[1:]]
        assert all((here / name).is_dir() or not (there / name).is_dir() for name in named)


@pytest.mark.parametrize("path", ["checkpoints/" + "x" * 1_000, "checkpoints/\0", "x" * 10_000, 5, ["x"]])
def test_an_index_that_names_impossible_folders_is_sent_all_the_same(tmp_path: Path, path: object) -> None:
    (tmp_path / "traincard").mkdir()
    (tmp_path / "traincard/checkpoints.json").write_text(json.dumps({"checkpoints": [{"path": path}]}))
    builder = DeltaBuilder(tmp_path, 1 << 20)
    news = builder.pack(DeltaBuilder.first_state(tmp_path, {}), large=True, final=True)
    assert news is not None
    assert [entry["path"] for entry in news[0]] == ["traincard/checkpoints.json"]
