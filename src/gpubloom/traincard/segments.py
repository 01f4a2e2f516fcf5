"""A rank's stream in pieces that stay readable: sealed when large, condensed beside.

The raw lines are the truth. What is condensed is written behind the writer's back, because formatting it may
take longer than a killed process may lose.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gpubloom.traincard.condensed_files import condensed_bytes
from gpubloom.traincard.condenser import Condenser, condense
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.stream import EventStream

SEGMENT_BYTES = 64 * 1024**2
_CONDENSE_BYTES = 8 * 1024**2


class Segments:
    """Appends to the tail, and seals it when it is full. Not for several threads at once."""

    def __init__(self, files: RunFiles, attempt: int, rank: int, world_size: int, segment_bytes: int) -> None:
        self._files = files
        self._attempt, self._rank, self._world_size = attempt, rank, world_size
        self._segment_bytes = segment_bytes
        self._stream: EventStream | None = None
        self._after = (0, 0)
        self._condenser: Condenser | None = None
        self._condensed_size = 0
        self._saving: threading.Thread | None = None
        self.in_tail: Counter[str] = Counter()
        """How many events of each kind lie in the open tail."""

    def open(self) -> dict[str, Any]:
        """Begins a tail, behind what is there already; returns its `start` record. OSError: not possible."""
        stream, start = EventStream.open(
            self._files, self._attempt, self._rank, self._world_size, self._after
        )
        self._stream, self._condenser, self._condensed_size = stream, Condenser(stream.stream), 0
        self.in_tail.clear()
        self._condenser.add([start])
        return start

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    @property
    def is_gone(self) -> bool:
        """Whether somebody deleted the tail."""
        return self._stream is not None and self._stream.is_gone

    def append(self, records: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], OSError | None]:
        """Writes records in order; returns those on file, with their `seq`, and what stopped the rest."""
        assert self._stream is not None
        assert self._condenser is not None
        written, problem = self._stream.append(records)
        if self._stream.is_gone:
            return [], OSError(f"{self._stream.path} was deleted")
        first = self._stream.next_seq - written
        on_file = [{"seq": first + number, **record} for number, record in enumerate(records[:written])]
        self.in_tail.update(fields["kind"] for fields in on_file)
        self._condenser.add(on_file)
        return on_file, problem

    def let_go(self) -> None:
        """Closes a tail; the next one continues its numbers."""
        if self._stream is not None:
            self._after = (self._stream.stream.segment, self._stream.next_seq)
            self._stream.close()
            self._stream = self._condenser = None

    def make_room(self) -> None:
        """Seals a full tail and begins the next. OSError: sealed, but the next could not be begun."""
        assert self._stream is not None
        if self._stream.size >= self._segment_bytes:
            full, size = self._condenser, self._stream.size
            assert full is not None
            self.let_go()
            self._save_behind(lambda: full.save(self._files, size), wait=True)
            self.open()

    def condense(self) -> None:
        """Condenses, in a thread of its own, a tail that has grown."""
        assert self._stream is not None
        assert self._condenser is not None
        size = self._stream.size
        if size - self._condensed_size >= _CONDENSE_BYTES:
            # A copy, because the writer goes on adding while it is formatted.
            copy = self._condenser.copy()
            if self._save_behind(lambda: copy.save(self._files, size), wait=False):
                self._condensed_size = size

    def condense_earlier(self) -> None:
        """Condenses, in a thread of its own, what earlier processes left behind when they were killed."""
        # Nobody waits for it: it may be much, and it can be done by whoever comes next.
        threading.Thread(target=self._condense_sealed, name="traincard-condense", daemon=True).start()

    def _condense_sealed(self) -> None:
        with contextlib.suppress(OSError):
            self._condense_all_sealed()

    def _condense_all_sealed(self) -> None:
        for stream, path in self._files.sealed().items():
            is_ours = stream.rank == self._rank and stream.attempt != self._attempt
            if is_ours and condensed_bytes(self._files, stream) < path.stat().st_size:
                condense(self._files, stream)

    def _save_behind(self, work: Callable[[], None], *, wait: bool) -> bool:
        if self._saving is not None and self._saving.is_alive():
            if not wait:
                return False
            self._saving.join()

        def run() -> None:
            # Derived data: readers do without it, and a full disk has been complained about already.
            with contextlib.suppress(OSError):
                work()

        self._saving = threading.Thread(target=run, name="traincard-condense", daemon=True)
        self._saving.start()
        return True

    def sync_copy(self) -> Callable[[], None]:
        """As something that another thread can call: puts the tail on disk."""
        assert self._stream is not None
        return self._stream.sync_copy()

    def close(self) -> None:
        """Condenses all of the tail, puts it on disk and closes it. It stays where it is."""
        if self._saving is not None:
            self._saving.join()
        if self._stream is not None and self._condenser is not None:
            with contextlib.suppress(OSError):
                self._condenser.save(self._files, self._stream.size)
                self._stream.sync()
            self._stream.close()

    def forget_after_fork(self) -> None:
        """In a forked child: closes its copy of the file."""
        if self._stream is not None:
            self._stream.close()
