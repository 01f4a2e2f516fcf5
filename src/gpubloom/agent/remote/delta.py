"""What of a run directory is news: turns what changed since the last parcel into the next one.

News goes first: what grows, then small files. Large files follow in pieces, as far as there is room; a
checkpoint folder is declared complete when all its files were sent, and only then is it in the index.

Files that only grow: event streams, logs, TensorBoard files. Only what is new of them is sent.

A file is known by its inode and by the bytes before the place that was reached, so that a tail that was
sealed or a log that was turned is recognised under its new name, and a file that was
begun anew is not taken for the old one.

Large files, one at a time, in pieces; the other side sees one when it is whole and its hash is right.
"""

import copy
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubloom.traincard.mirror.contents import Seen, files_of, is_large, is_tail, look

_CONTROL = "traincard/control.json"
_INDEX = "traincard/checkpoints.json"
_LATEST = "traincard/latest.json"
_SMALL_BYTES = 1 << 20

State = dict[str, Any]


class DeltaBuilder:
    """`state` values are plain JSON; what `pack` returns becomes the state once the parcel is delivered.

    `settle_seconds`: how long a large file must look the same before it is sent. Scripts write theirs in
    place, and half of a checkpoint must not replace a whole one.
    """

    def __init__(
        self,
        run_dir: Path,
        part_bytes: int,
        settle_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_dir, self._part_bytes = run_dir, part_bytes
        self._settle_seconds, self._clock = settle_seconds, clock
        self._missing: set[str] = set()
        self._gone: set[str] = set()
        self._since: dict[str, tuple[Seen, float]] = {}
        self._slow = LargeFileQueue(run_dir)

    @staticmethod
    def first_state(run_dir: Path, known: Mapping[str, str]) -> State:
        """Before anything was sent: `known` are the files of the bundle, with their hashes."""
        files = files_of(run_dir)
        names = [name for name in known if name in files and name != _CONTROL]
        return {
            "sent": {name: _as_list(files[name]) for name in names if not grows(name)},
            "hashes": {name: known[name] for name in names},
            "grown": {name: reached(run_dir, name) for name in names if grows(name)},
            "folders": [],
            "large": None,
        }

    def pack(
        self, before: State, *, large: bool, final: bool
    ) -> tuple[list[dict[str, Any]], bytes, State] | None:
        """Entries, bytes and the state afterwards; None when there is no news. `large`: large files, too."""
        state = copy.deepcopy(before)
        files = {name: seen for name, seen in files_of(self._run_dir).items() if name != _CONTROL}
        growth = AppendTracker(self._run_dir, state, self._missing)
        entries, grown = growth.collect(files, self._part_bytes, final=final)
        body = bytearray(grown)
        self._small(state, files, entries, body)
        settled = self._settled(files, final)
        slow_names = sorted(
            name
            for name, seen in files.items()
            if name in settled and self._is_slow(name, seen) and state["sent"].get(name) != _as_list(seen)
        )
        if large:
            more, content = self._slow.collect(state, files, slow_names, self._part_bytes - len(body))
            entries += more
            body += content
            entries += self._folders(state, files)
        more, content = self._index(state, files)
        entries += more
        body += content
        entries += self._removed(state, files, final)
        return (entries, bytes(body), state) if entries else None

    def tree(self, state: State) -> dict[str, list[Any]]:
        """Size and hash of every file as it is now."""
        tree = {}
        for name, seen in sorted(files_of(self._run_dir).items()):
            if name == _CONTROL:
                continue
            is_known = name in state["hashes"] and state["sent"].get(name) == _as_list(seen)
            tree[name] = [
                seen.size,
                state["hashes"][name] if is_known else _hash_of(self._run_dir / name),
            ]
        return tree

    def _settled(self, files: Mapping[str, Seen], final: bool) -> set[str]:
        now = self._clock()
        before, self._since = self._since, {}
        for name, seen in files.items():
            known = before.get(name)
            self._since[name] = known if known is not None and known[0] == seen else (seen, now)
        return {n for n, (_, since) in self._since.items() if final or now - since >= self._settle_seconds}

    def _is_slow(self, name: str, seen: Seen) -> bool:
        return not grows(name) and (is_large(name, seen.size) or seen.size > _SMALL_BYTES)

    def _small(
        self, state: State, files: Mapping[str, Seen], entries: list[dict[str, Any]], body: bytearray
    ) -> None:
        names = [n for n, s in files.items() if not grows(n) and not self._is_slow(n, s) and n != _INDEX]
        for name in sorted(names, key=lambda name: (name == _LATEST, name)):
            seen = files[name]
            if state["sent"].get(name) == _as_list(seen) or len(body) + seen.size > self._part_bytes:
                continue
            entry, content = self._whole(state, name, seen)
            if entry is not None:
                entries.append(entry)
                body += content

    def _whole(self, state: State, name: str, seen: Seen) -> tuple[dict[str, Any] | None, bytes]:
        try:
            content = (self._run_dir / name).read_bytes()
        except OSError:
            return None, b""
        # If it changed while it was read, its look before that is not the one of now, and it goes again.
        state["sent"][name] = _as_list(seen)
        state["hashes"].pop(name, None)
        return {"kind": "whole", "path": name, "size": len(content)}, content

    def _index(self, state: State, files: Mapping[str, Seen]) -> tuple[list[dict[str, Any]], bytes]:
        """The index of checkpoints, once the other side has all that it names."""
        seen = files.get(_INDEX)
        if seen is None or state["sent"].get(_INDEX) == _as_list(seen):
            return [], b""
        before = copy.deepcopy(state)
        entry, content = self._whole(state, _INDEX, seen)
        try:
            named = [str(found["path"]) for found in json.loads(content)["checkpoints"]]
        except (ValueError, KeyError, TypeError):
            named = []
        waits = any(
            (name in files and state["sent"].get(name) != _as_list(files[name]))
            or ((self._run_dir / name).is_dir() and _is_folder(name) and name not in state["folders"])
            for name in named
        )
        if entry is None or waits:
            state.update(before)
            return [], b""
        return [entry], content

    def _folders(self, state: State, files: Mapping[str, Seen]) -> list[dict[str, Any]]:
        entries = []
        checkpoints = self._run_dir / "checkpoints"
        folders = sorted(checkpoints.iterdir()) if checkpoints.is_dir() else []
        for folder in folders:
            name = f"checkpoints/{folder.name}"
            if folder.name.startswith(".") or not folder.is_dir() or name in state["folders"]:
                continue
            inside = [file for file in files if file.startswith(f"{name}/")]
            if all(state["sent"].get(file) == _as_list(files[file]) for file in inside):
                state["folders"].append(name)
                entries.append({"kind": "folder", "path": name})
        return entries

    def _removed(self, state: State, files: Mapping[str, Seen], final: bool) -> list[dict[str, Any]]:
        gone = {name for name in state["sent"] if name not in files}
        gone |= {name for name in state["folders"] if not (self._run_dir / name).is_dir()}
        # A folder that is renamed while it is listed looks deleted for one pass.
        sure = gone if final else gone & self._gone
        self._gone = gone
        for name in sure:
            state["sent"].pop(name, None)
            state["hashes"].pop(name, None)
        state["folders"] = [name for name in state["folders"] if name not in sure]
        return [{"kind": "remove", "path": name} for name in sorted(sure)]


def _is_folder(name: str) -> bool:
    return name.startswith("checkpoints/") and name.count("/") == 1


def _as_list(seen: Seen) -> list[int]:
    return [seen.size, seen.modified_ns, seen.inode]


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_GROWS = re.compile(r"(.*/)?(.*\.(log|jsonl)|events\.out\.tfevents\..*)")
_FOR_GOOD = "traincard/segments/"
_MARK_BYTES = 4096


def grows(name: str) -> bool:
    """Whether a file of this name is expected to grow at its end only."""
    return is_tail(name) or (_GROWS.fullmatch(name) is not None and not name.startswith(_FOR_GOOD))


def reached(run_dir: Path, name: str) -> dict[str, Any]:
    """What is known of a file that the other side has as it is now."""
    path = run_dir / name
    size = path.stat().st_size
    return {"inode": path.stat().st_ino, "size": size, "mark": _mark(path, size)}


def _mark(path: Path, size: int) -> str:
    """The bytes before a place, as a hash."""
    start = max(0, size - _MARK_BYTES)
    with path.open("rb") as file:
        file.seek(start)
        return hashlib.sha256(file.read(size - start)).hexdigest()


class AppendTracker:
    """One pass over the growing files: adds entries and bytes until there is no room.

    `state["grown"]`: by name, {"inode", "size", "mark"} of what was sent; changed in place. `missing`: names
    whose file could not be found in the pass before.
    """

    def __init__(self, run_dir: Path, state: dict[str, Any], missing: set[str]) -> None:
        self._run_dir, self._missing = run_dir, missing
        self._reached: dict[str, dict[str, Any]] = state["grown"]
        self._sent: dict[str, list[int]] = state["sent"]

    def collect(
        self, files: Mapping[str, Seen], room: int, *, final: bool
    ) -> tuple[list[dict[str, Any]], bytes]:
        entries: list[dict[str, Any]] = []
        body = bytearray()
        by_inode: dict[int, list[str]] = {}
        for name, seen in files.items():
            by_inode.setdefault(seen.inode, []).append(name)
        held_back: set[str] = set()
        # Those that moved first: their old name may be taken by a new file.
        for name, known in sorted(self._reached.items()):
            if (at := self._moved_to(name, known, files, by_inode)) is not None:
                if not self._grow(name, at, entries, body, room):
                    held_back.add(name)
                    continue
                entries.append({"kind": "rename", "path": name, "to": at})
                del self._reached[name]
                if grows(at):
                    self._reached[at] = known
                elif files[at].size == known["size"]:
                    self._sent[at] = [files[at].size, files[at].modified_ns, files[at].inode]
            elif name not in files or files[name].inode != known["inode"]:
                # Perhaps renamed while the folders were listed; the next pass finds it, or it is gone.
                if final or name in self._missing:
                    del self._reached[name]
                    self._missing.discard(name)
                    if name not in files:
                        entries.append({"kind": "remove", "path": name})
                else:
                    self._missing.add(name)
                    held_back.add(name)
            else:
                self._missing.discard(name)
        for name in sorted(files):
            if grows(name) and name not in held_back:
                self._grow(name, name, entries, body, room)
        return entries, bytes(body)

    def _moved_to(
        self, name: str, known: dict[str, Any], files: Mapping[str, Seen], by_inode: dict[int, list[str]]
    ) -> str | None:
        for candidate in by_inode.get(known["inode"], ()):
            if candidate != name and self._is_same(candidate, known, files[candidate]):
                return candidate
        return None

    def _is_same(self, name: str, known: dict[str, Any], seen: Seen) -> bool:
        if seen.inode != known["inode"] or seen.size < known["size"]:
            return False
        try:
            return bool(_mark(self._run_dir / name, known["size"]) == known["mark"])
        except OSError:
            return False

    def _grow(self, name: str, at: str, entries: list[dict[str, Any]], body: bytearray, room: int) -> bool:
        """Sends of the file at `at` what is new, under its known name; True when all of it found room."""
        known = self._reached.get(name)
        try:
            with (self._run_dir / at).open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                size = file.seek(0, 2)
                fresh = known is None or not self._is_same(at, known, Seen(size, 0, inode))
                offset = 0 if fresh or known is None else int(known["size"])
                if size == offset and not fresh:
                    return True
                length = min(size - offset, room - len(body))
                if length <= 0 and size > offset:
                    return False
                file.seek(offset)
                piece = file.read(length)
        except OSError:
            return True
        entry = {"kind": "grow", "path": name, "offset": offset, "size": len(piece)}
        entries.append({**entry, "fresh": True} if fresh else entry)
        body += piece
        end = offset + len(piece)
        try:
            mark = _mark(self._run_dir / at, end)
        except OSError:
            # Turned this moment. The next pass sees a file that is not the one it knows.
            mark = ""
        state = {"inode": inode, "size": end, "mark": mark}
        if known is None:
            self._reached[name] = state
        else:
            known.update(state)
        return end == size


class LargeFileQueue:
    """`state["large"]` is the file on its way: its name, its look at the beginning, the place reached."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        # The hash up to a place, so that a file is read once. After a restart it is computed again.
        self._running: tuple[str, list[int], int, Any] | None = None

    def collect(
        self, state: dict[str, Any], files: Mapping[str, Seen], names: Sequence[str], room: int
    ) -> tuple[list[dict[str, Any]], bytes]:
        entries: list[dict[str, Any]] = []
        body = bytearray()
        waiting = list(names)
        while room - len(body) > 0:
            under_way = state["large"]
            if under_way is None:
                if not waiting:
                    break
                name = waiting.pop(0)
                seen = files[name]
                under_way = state["large"] = {
                    "path": name,
                    "seen": [seen.size, seen.modified_ns, seen.inode],
                    "offset": 0,
                }
            if not self._piece(state, under_way, entries, body, room):
                break
            if under_way["path"] in waiting:
                waiting.remove(under_way["path"])
        return entries, bytes(body)

    def _piece(
        self,
        state: dict[str, Any],
        under_way: dict[str, Any],
        entries: list[dict[str, Any]],
        body: bytearray,
        room: int,
    ) -> bool:
        """False when the file needs more room than there is."""
        path, (size, _, _) = under_way["path"], under_way["seen"]
        offset = under_way["offset"]
        try:
            digest = self._digest(path, under_way["seen"], offset)
            with (self._run_dir / path).open("rb") as file:
                file.seek(offset)
                piece = file.read(min(size - offset, room - len(body)))
        except OSError:
            piece = b""
        seen = look(self._run_dir / path)
        is_same = seen is not None and [seen.size, seen.modified_ns, seen.inode] == under_way["seen"]
        if not is_same or (not piece and offset < size):
            # Written again while it was on its way: begun anew once it has settled.
            entries.append({"kind": "abandon", "path": path})
            state["large"] = self._running = None
            return True
        digest.update(piece)
        under_way["offset"] = offset + len(piece)
        self._running = (path, under_way["seen"], under_way["offset"], digest)
        entries.append({"kind": "part", "path": path, "offset": offset, "size": len(piece)})
        body += piece
        if under_way["offset"] < size:
            return False
        whole = digest.hexdigest()
        entries.append({"kind": "done", "path": path, "total": size, "sha256": whole})
        state["sent"][path], state["hashes"][path] = under_way["seen"], whole
        state["large"] = self._running = None
        return True

    def _digest(self, path: str, seen: list[int], offset: int) -> Any:
        if self._running is not None and self._running[:3] == (path, seen, offset):
            return self._running[3].copy()
        digest = hashlib.sha256()
        with (self._run_dir / path).open("rb") as file:
            left = offset
            while left > 0 and (chunk := file.read(min(left, 1 << 20))):
                digest.update(chunk)
                left -= len(chunk)
        return digest
