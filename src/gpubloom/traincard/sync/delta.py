"""Build deltas: what changed in a run directory since the last delta, as entries and their bytes.

Append-only files go first, then small files. Large files follow in parts, as far as there is room in a
delta; a checkpoint folder is declared complete when all its files were sent, and only then is it in the
index.

An append-only file is identified by its inode and by the bytes before the offset that was reached, so that
a sealed event stream or a rotated log is recognised under its new name, and a file that was started again
is not taken for the old one. The receiver sees a large file when it is complete and its hash is right.
"""

import copy
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubloom.traincard.safe_paths import is_folder_beneath
from gpubloom.traincard.sync.files import (
    CHECKPOINT_INDEX,
    CONTROL,
    FileState,
    file_state,
    in_upload_order,
    is_checkpoint_folder,
    is_large,
    kind_of,
    list_files,
)

_SMALL_BYTES = 1 << 20
# Of each sort in one delta. No receiver takes many more, or a longer list of files (`sync.accepted.Limits`).
_MOST_ENTRIES = 4_000
_LONGEST_TREE_BYTES = 12 << 20

State = dict[str, Any]
# So many bytes before the offset that was reached tell whether a file is still the one that was sent.
_MARK_BYTES = 4096


class DeltaBuilder:
    """`state` values are plain JSON; what `pack` returns becomes the state once the delta was sent.

    `settle_seconds`: how long a large file must look the same before it is sent. Scripts write theirs in
    place, and half of a checkpoint must not replace a whole one.
    """

    def __init__(
        self,
        run_dir: Path,
        part_bytes: int,
        settle_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        listing: Callable[[Path], dict[str, FileState]] = list_files,
    ) -> None:
        self._run_dir, self._part_bytes, self._listing = run_dir, part_bytes, listing
        self._settle_seconds, self._clock = settle_seconds, clock
        self._missing: set[str] = set()
        self._gone: set[str] = set()
        self._since: dict[str, tuple[FileState, float]] = {}
        self._large_files = LargeFileQueue(run_dir)

    @staticmethod
    def first_state(run_dir: Path, known: Mapping[str, str]) -> State:
        """Before anything was sent: `known` are the files of the bundle, with their hashes."""
        files = list_files(run_dir)
        names = [name for name in known if name in files and name != CONTROL]
        return {
            "sent": {name: files[name].as_list() for name in names if not _is_append_only(name)},
            "hashes": {name: known[name] for name in names},
            "grown": {name: reached(run_dir, name) for name in names if _is_append_only(name)},
            "folders": [],
            "large": None,
        }

    def pack(
        self, before: State, *, large: bool, final: bool, room: int | None = None
    ) -> tuple[list[dict[str, Any]], bytes, State] | None:
        """Entries, bytes and the next state; None when nothing changed. `large`: large files, too. `room`:
        bytes for this delta, if not the usual."""
        state = copy.deepcopy(before)
        room = self._part_bytes if room is None else room
        files = {name: seen for name, seen in self._listing(self._run_dir).items() if name != CONTROL}
        tracker = AppendTracker(self._run_dir, state, self._missing)
        entries, appended = tracker.collect(files, room, final=final)
        body = bytearray(appended)
        self._small(state, files, entries, body, room)
        settled = self._settled(files, final)
        large_names = sorted(
            name
            for name, seen in files.items()
            if name in settled and self._is_large(name, seen) and state["sent"].get(name) != seen.as_list()
        )
        if large:
            more, content = self._large_files.collect(state, files, large_names, room - len(body))
            entries += more
            body += content
            entries += self._folders(state, files)
        more, content = self._index(state, files)
        entries += more
        body += content
        entries += self._removed(state, files, final)
        return (entries, bytes(body), state) if entries else None

    def tree(self, state: State) -> dict[str, list[Any]]:
        """Size and hash of every file as it is now; of very many, of the first ones."""
        tree = {}
        room = _LONGEST_TREE_BYTES
        for name, seen in sorted(list_files(self._run_dir).items()):
            # As JSON writes it, with a size and a hash.
            room -= 3 * len(name.encode()) + 100
            if room < 0:
                break
            if name == CONTROL:
                continue
            is_known = name in state["hashes"] and state["sent"].get(name) == seen.as_list()
            tree[name] = [
                seen.size,
                state["hashes"][name] if is_known else _hash_of(self._run_dir / name),
            ]
        return tree

    def _settled(self, files: Mapping[str, FileState], final: bool) -> set[str]:
        now = self._clock()
        before, self._since = self._since, {}
        for name, seen in files.items():
            known = before.get(name)
            self._since[name] = known if known is not None and known[0] == seen else (seen, now)
        return {n for n, (_, since) in self._since.items() if final or now - since >= self._settle_seconds}

    def _is_large(self, name: str, seen: FileState) -> bool:
        return not _is_append_only(name) and (is_large(name, seen.size) or seen.size > _SMALL_BYTES)

    def _small(
        self,
        state: State,
        files: Mapping[str, FileState],
        entries: list[dict[str, Any]],
        body: bytearray,
        room: int,
    ) -> None:
        names = [
            n
            for n, s in files.items()
            if not _is_append_only(n) and not self._is_large(n, s) and n != CHECKPOINT_INDEX
        ]
        for name in in_upload_order(names):
            seen = files[name]
            if state["sent"].get(name) == seen.as_list() or len(body) + seen.size > room:
                continue
            if len(entries) >= _MOST_ENTRIES:
                break
            entry, content = self._whole(state, name, seen)
            if entry is not None:
                entries.append(entry)
                body += content

    def _whole(self, state: State, name: str, seen: FileState) -> tuple[dict[str, Any] | None, bytes]:
        try:
            content = (self._run_dir / name).read_bytes()
        except OSError:
            return None, b""
        # If it changed while it was read, its state is not the one of before, and it is sent again.
        state["sent"][name] = seen.as_list()
        state["hashes"].pop(name, None)
        return {"kind": "whole", "path": name, "size": len(content)}, content

    def _index(self, state: State, files: Mapping[str, FileState]) -> tuple[list[dict[str, Any]], bytes]:
        """The index of checkpoints, once the receiver has all that it names."""
        seen = files.get(CHECKPOINT_INDEX)
        if seen is None or state["sent"].get(CHECKPOINT_INDEX) == seen.as_list():
            return [], b""
        before = copy.deepcopy(state)
        entry, content = self._whole(state, CHECKPOINT_INDEX, seen)
        try:
            named = [str(found["path"]) for found in json.loads(content)["checkpoints"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            named = []
        waits = any(
            (name in files and state["sent"].get(name) != files[name].as_list())
            or (
                is_checkpoint_folder(name)
                and name not in state["folders"]
                and is_folder_beneath(self._run_dir, name)
            )
            for name in named
        )
        if entry is None or waits:
            state.update(before)
            return [], b""
        return [entry], content

    def _folders(self, state: State, files: Mapping[str, FileState]) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        checkpoints = self._run_dir / "checkpoints"
        folders = sorted(checkpoints.iterdir()) if checkpoints.is_dir() else []
        for folder in folders:
            name = f"checkpoints/{folder.name}"
            if folder.name.startswith(".") or not folder.is_dir() or name in state["folders"]:
                continue
            inside = [file for file in files if file.startswith(f"{name}/")]
            if len(entries) < _MOST_ENTRIES and all(
                state["sent"].get(file) == files[file].as_list() for file in inside
            ):
                state["folders"].append(name)
                entries.append({"kind": "folder", "path": name})
        return entries

    def _removed(self, state: State, files: Mapping[str, FileState], final: bool) -> list[dict[str, Any]]:
        gone = {name for name in state["sent"] if name not in files}
        gone |= {name for name in state["folders"] if not (self._run_dir / name).is_dir()}
        # A folder that is renamed while it is listed looks deleted for one pass.
        sure = set(sorted(gone if final else gone & self._gone)[:_MOST_ENTRIES])
        self._gone = gone
        for name in sure:
            state["sent"].pop(name, None)
            state["hashes"].pop(name, None)
        state["folders"] = [name for name in state["folders"] if name not in sure]
        return [{"kind": "remove", "path": name} for name in sorted(sure)]


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_append_only(name: str) -> bool:
    return kind_of(name) == "append_only"


def reached(run_dir: Path, name: str) -> dict[str, Any]:
    """The cursor of an append-only file that the receiver has as it is now."""
    path = run_dir / name
    size = path.stat().st_size
    return {"inode": path.stat().st_ino, "size": size, "mark": _mark(path, size)}


def _mark(path: Path, size: int) -> str:
    """The hash of the bytes before an offset."""
    start = max(0, size - _MARK_BYTES)
    with path.open("rb") as file:
        file.seek(start)
        return hashlib.sha256(file.read(size - start)).hexdigest()


class AppendTracker:
    """One pass over the append-only files: adds entries and bytes until there is no room.

    `state["grown"]`: by name, the cursor {"inode", "size", "mark"} of what was sent; changed in place.
    `missing`: names whose file could not be found in the pass before.
    """

    def __init__(self, run_dir: Path, state: dict[str, Any], missing: set[str]) -> None:
        self._run_dir, self._missing = run_dir, missing
        self._reached: dict[str, dict[str, Any]] = state["grown"]
        self._sent: dict[str, list[int]] = state["sent"]

    def collect(
        self, files: Mapping[str, FileState], room: int, *, final: bool
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
                if _is_append_only(at):
                    self._reached[at] = known
                elif files[at].size == known["size"]:
                    self._sent[at] = files[at].as_list()
            elif name not in files or files[name].inode != known["inode"]:
                # Perhaps renamed while the folders were listed; the next pass finds it, or it is gone.
                if (final or name in self._missing) and len(entries) < _MOST_ENTRIES:
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
            if _is_append_only(name) and name not in held_back:
                self._grow(name, name, entries, body, room)
        return entries, bytes(body)

    def _moved_to(
        self, name: str, known: dict[str, Any], files: Mapping[str, FileState], by_inode: dict[int, list[str]]
    ) -> str | None:
        top = name.partition("/")[0]
        for candidate in by_inode.get(known["inode"], ()):
            # No receiver renames from one folder at the top into another.
            if candidate.partition("/")[0] != top:
                continue
            if candidate != name and self._is_same(candidate, known, files[candidate]):
                return candidate
        return None

    def _is_same(self, name: str, known: dict[str, Any], seen: FileState) -> bool:
        if seen.inode != known["inode"] or seen.size < known["size"]:
            return False
        try:
            return bool(_mark(self._run_dir / name, known["size"]) == known["mark"])
        except OSError:
            return False

    def _grow(self, name: str, at: str, entries: list[dict[str, Any]], body: bytearray, room: int) -> bool:
        """Add what is new in the file at `at`, under its known name; True when all of it found room."""
        known = self._reached.get(name)
        if len(entries) >= _MOST_ENTRIES:
            return False
        try:
            with (self._run_dir / at).open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                size = file.seek(0, 2)
                fresh = known is None or not self._is_same(at, known, FileState(size, 0, inode))
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
            # Rotated this moment. The next pass sees a file that is not the one it knows.
            mark = ""
        state = {"inode": inode, "size": end, "mark": mark}
        if known is None:
            self._reached[name] = state
        else:
            known.update(state)
        return end == size


class LargeFileQueue:
    """`state["large"]` is the file being sent: its name, its state at the start, the offset reached."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        # The hash up to an offset, so that a file is read once. After a restart it is computed again.
        self._running: tuple[str, list[int], int, Any] | None = None

    def collect(
        self, state: dict[str, Any], files: Mapping[str, FileState], names: Sequence[str], room: int
    ) -> tuple[list[dict[str, Any]], bytes]:
        entries: list[dict[str, Any]] = []
        body = bytearray()
        waiting = list(names)
        while room - len(body) > 0 and len(entries) < _MOST_ENTRIES:
            current = state["large"]
            if current is None:
                if not waiting:
                    break
                name = waiting.pop(0)
                seen = files[name]
                current = state["large"] = {
                    "path": name,
                    "seen": seen.as_list(),
                    "offset": 0,
                }
            if not self._piece(state, current, entries, body, room):
                break
            if current["path"] in waiting:
                waiting.remove(current["path"])
        return entries, bytes(body)

    def _piece(
        self,
        state: dict[str, Any],
        current: dict[str, Any],
        entries: list[dict[str, Any]],
        body: bytearray,
        room: int,
    ) -> bool:
        """False when the file needs more room than there is."""
        path, (size, _, _) = current["path"], current["seen"]
        offset = current["offset"]
        try:
            digest = self._digest(path, current["seen"], offset)
            with (self._run_dir / path).open("rb") as file:
                file.seek(offset)
                piece = file.read(min(size - offset, room - len(body)))
        except OSError:
            piece = b""
        seen = file_state(self._run_dir / path)
        is_same = seen is not None and seen.as_list() == current["seen"]
        if not is_same or (not piece and offset < size):
            # Changed while it was being sent: started again once it has settled.
            entries.append({"kind": "abandon", "path": path})
            state["large"] = self._running = None
            return True
        digest.update(piece)
        current["offset"] = offset + len(piece)
        self._running = (path, current["seen"], current["offset"], digest)
        entries.append({"kind": "part", "path": path, "offset": offset, "size": len(piece)})
        body += piece
        if current["offset"] < size:
            return False
        whole = digest.hexdigest()
        entries.append({"kind": "done", "path": path, "total": size, "sha256": whole})
        state["sent"][path], state["hashes"][path] = current["seen"], whole
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
