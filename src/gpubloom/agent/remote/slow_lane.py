"""Large files, one at a time, in pieces; the other side sees one when it is whole and its hash is right."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubloom.traincard.mirror.contents import Seen, look


class SlowLane:
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
