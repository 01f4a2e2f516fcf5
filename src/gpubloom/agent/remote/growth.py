"""Files that only grow: event streams, logs, TensorBoard files. Only what is new of them is sent.

A file is known by its inode and by the bytes before the place that was reached, so that a tail that was
sealed or a log that was turned is recognised under its new name, and a file that was
begun anew is not taken for the old one.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.mirror.contents import Seen, is_tail

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


class Growth:
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
        place = offset + len(piece)
        try:
            mark = _mark(self._run_dir / at, place)
        except OSError:
            # Turned this moment. The next pass sees a file that is not the one it knows.
            mark = ""
        state = {"inode": inode, "size": place, "mark": mark}
        if known is None:
            self._reached[name] = state
        else:
            known.update(state)
        return place == size
