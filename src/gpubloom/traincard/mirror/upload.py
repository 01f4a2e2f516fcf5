"""One pass of a mirror: compare the run directory with the bucket, and upload what is missing or has grown.

What an earlier mirror stored is read from the bucket's listing, so a pass can begin anywhere: after a
restart, in another process, on another machine. A pass that fails half-way has done part of its work and is
repeated.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from gpubloom.traincard.mirror.store import Bucket, StoredObject
from gpubloom.traincard.mirror.tails import GROWTH, StoredTail, found_in, send, stream_of
from gpubloom.traincard.sync.files import (
    LATEST,
    FileState,
    file_state,
    in_upload_order,
    is_large,
    is_tail,
    kind_of,
    list_files,
)

# A file that is not a tail and changes all the time (a log) is stored whole; this bounds what that costs.
_BYTES_PER_SECOND = 1 << 20


class Upload:
    """The passes of one lane: `large` files, or all others. Not for use by two threads at once."""

    def __init__(self, run_dir: Path, bucket: Bucket, *, large: bool) -> None:
        self._run_dir = run_dir
        self._bucket = bucket
        self._large = large
        self._stored: dict[str, StoredObject] | None = None
        self._sent: dict[str, FileState] = {}
        self._sent_at: dict[str, float] = {}
        self._tails: dict[str, StoredTail] = {}

    def once(self, *, final: bool = False) -> int:
        """Stores what is new; returns how many files that were. `final`: to the last byte."""
        if self._stored is None:
            self._stored = self._bucket.objects()
            self._find_tails(self._stored)
        count = 0
        with ExitStack() as opened:
            # Tails are opened before the segments are listed: one that is sealed in between is stored under
            # its new name before another tail takes the place of its old one.
            tails = {} if self._large else dict(self._open_tails(opened))
            files = list_files(self._run_dir)
            for name in in_upload_order(files):
                seen = files[name]
                if name == LATEST:
                    count += self._send_tails(tails, final)
                if not is_tail(name) and is_large(name, seen.size) == self._large:
                    count += self._send(name, seen, final)
            if LATEST not in files:
                count += self._send_tails(tails, final)
        self._forget_deleted(files)
        return count

    def _open_tails(self, opened: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
        for path in (self._run_dir / "traincard").glob("events*.jsonl"):
            name = path.relative_to(self._run_dir).as_posix()
            if is_tail(name):
                try:
                    yield name, opened.enter_context(path.open("rb"))
                except FileNotFoundError:
                    continue

    def _send_tails(self, tails: dict[str, IO[bytes]], final: bool) -> int:
        count = 0
        for name in sorted(tails):
            before = self._tails.get(name)
            size = before.size if before else 0
            after = send(self._bucket, name, tails[name], before, exact=final)
            if after is not None:
                self._tails[name] = after
                count += after.size != size
        tails.clear()
        return count

    def _send(self, name: str, seen: FileState, final: bool) -> int:
        if self._sent.get(name) == seen or self._is_stored(name, seen):
            return 0
        wait = seen.size / _BYTES_PER_SECOND
        if not final and time.monotonic() - self._sent_at.get(name, -1e9) < wait:
            return 0
        try:
            with (self._run_dir / name).open("rb") as file:
                self._bucket.put(name, file if self._large else file.read())
        except FileNotFoundError:
            return 0
        # If it changed while it was read, its state is not the one of before, and it is uploaded again.
        self._sent[name], self._sent_at[name] = seen, time.monotonic()
        return 1

    def _is_stored(self, name: str, seen: FileState) -> bool:
        """Whether an earlier mirror stored this file already, as it is now."""
        assert self._stored is not None
        before = self._stored.pop(name, None)
        if before is None or before.size != seen.size:
            return False
        # A small file may change without changing its size, and costs nothing; it goes again.
        is_same = kind_of(name) == "immutable" or (
            self._large and before.modified.timestamp() >= seen.modified_ns / 1e9
        )
        if is_same:
            self._sent[name] = seen
        return is_same

    def _find_tails(self, stored: dict[str, StoredObject]) -> None:
        if self._large:
            return
        pieces = [(name, found.size) for name, found in stored.items() if name.startswith(GROWTH)]
        for name in [name for name in stored if is_tail(name)]:
            if tail := found_in(self._bucket, name, stored[name].size, pieces):
                self._tails[name] = tail
        # Left by a mirror that was killed between storing a sealed tail and tidying up.
        known = {tail.stream for tail in self._tails.values()}
        streams = {name: stream_of(name) for name, _ in pieces}
        self._bucket.delete(
            [n for n, s in streams.items() if s not in known and f"traincard/segments/{s}.jsonl" in stored]
        )

    def _forget_deleted(self, files: dict[str, FileState]) -> None:
        """Deletes checkpoints that this mirror stored and the trainer deleted since; nothing else, ever.

        A machine that starts with an empty disk must not empty the bucket: what it never had is not deleted.
        """
        if not (self._run_dir / "traincard").is_dir():
            return
        gone = [n for n in self._sent.keys() - files.keys() if n.startswith("checkpoints/")]
        gone = [name for name in gone if file_state(self._run_dir / name) is None]
        self._bucket.delete(gone)
        for name in gone:
            del self._sent[name]
