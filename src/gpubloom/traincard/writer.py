"""The writer thread: everything slow that a Reporter does.

It takes what was reported at most every `interval` seconds and hands it to the operating system in one
write, so a killed process loses no more than that. When a write fails it keeps what it has, within bounds,
and tries again; it never ends and never raises because of a disk.
"""

import contextlib
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.checkpoints import CheckpointIndex
from gpubloom.traincard.event_queue import DROPPABLE, EventQueue
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.lock import RunInUseError, RunLock
from gpubloom.traincard.number_encoding import to_json
from gpubloom.traincard.ranks import OWN_PROMISE_SECONDS
from gpubloom.traincard.records import Record, RecordMaker
from gpubloom.traincard.segments import SEGMENT_BYTES, Segments
from gpubloom.traincard.state import RunState
from gpubloom.traincard.stream import claim_attempt

logger = logging.getLogger("gpubloom.traincard")

_LINES_PER_WRITE = 512
_LATEST_SECONDS = 1.0
_SYNC_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_HEARTBEAT_SECONDS = 3.0
_DEVICE_SECONDS = 2.0
_TOO_FAST = "events were reported faster than they could be written"
_UNREADABLE = "a value could not be read"
_DEVICE = "the device did not finish computing the value"
_BUG = "the writer failed while writing these events"
_DELETED = "the file of these events was deleted"


@dataclass
class _FlushRequest:
    """Asks the writer to write now and to set `done`. `waits_for_device`: also for what it still computes."""

    last: bool = False
    waits_for_device: bool = True
    done: threading.Event = field(default_factory=threading.Event)


class Writer:
    """Owns the files of one rank in one run directory."""

    def __init__(
        self,
        files: RunFiles,
        queue: EventQueue,
        *,
        rank: int,
        world_size: int,
        attempt: int | None,
        lock: RunLock | None,
        interval: float,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._files = files
        self._queue = queue
        self._rank = rank
        self._world_size = world_size
        self.attempt = attempt
        self._lock = lock
        self._lock_is_ours = lock is None
        self._is_looked_after = lock is not None or attempt is not None
        self._interval = interval
        self._segment_bytes = segment_bytes
        self._segments: Segments | None = None
        self._state = RunState()
        self._index: CheckpointIndex | None = None
        self._maker = RecordMaker(files.run_dir, self._complain_about_value)
        self._pending: deque[Record] = deque()
        self._drops: dict[str, Counter[str]] = {}
        self._problem: str | None = None
        self._complained = False
        self._complained_about: set[str] = set()
        self._retry_at = 0.0
        self._latest_at = 0.0
        self._latest_status: str | None = None
        self._latest_seq = -1
        self._synced_at = time.monotonic()
        self._unsynced = False
        self._spoke_at = time.monotonic()
        # A SimpleQueue because its put may be called from a signal handler that interrupted another put.
        self.on_written: Callable[[list[dict[str, Any]]], None] | None = None
        """Called by the writer thread with what is on file now; rank 0 only."""
        self._requests: SimpleQueue[_FlushRequest | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="traincard-writer", daemon=True)

    def open(self) -> None:
        """Takes the lock, the attempt and the tail. RunInUseError: another process has them."""
        if self._lock is None:
            self._lock = RunLock.acquire(self._files.run_dir, self._rank)
        elif not self._lock.path.exists():
            # Somebody deleted it. Where an agent or a trainer looks after the directory, that was a decision.
            if self._is_looked_after and not self._files.run_dir.is_dir():
                raise FileNotFoundError(f"{self._files.run_dir} was deleted")
            self._lock.renew()
        if self.attempt is None:
            self.attempt = claim_attempt(self._files, self._rank)
        if self._rank == 0 and self._index is None:
            self._state = RunState(_readable(self._files.latest))
            try:
                self._index = CheckpointIndex(self._files.checkpoints)
            except ValueError as problem:
                broken = self._files.checkpoints.with_suffix(".unreadable")
                self._files.checkpoints.replace(broken)
                logger.warning(
                    "checkpoints.json could not be read and was renamed to %s: %s", broken.name, problem
                )
                self._index = CheckpointIndex(self._files.checkpoints)
        if self._segments is None:
            self._segments = Segments(
                self._files, self.attempt, self._rank, self._world_size, self._segment_bytes
            )
        self._state.apply(self._segments.open())
        self._write_latest(force=True)

    def start(self) -> None:
        self._thread.start()
        if self._segments is not None:
            self._segments.condense_earlier()

    def problem(self, error: OSError) -> None:
        """Warn once that the run directory cannot be written."""
        self._problem = str(error)
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        if not self._complained:
            self._complained = True
            logger.warning(
                "TrainCard cannot write to %s: %s. Training continues. Up to %d events are kept until "
                "writing works again; older events are dropped and counted.",
                self._files.folder,
                error,
                self._queue.capacity,
            )

    def wake(self) -> None:
        """Asks for a write soon, without waiting."""
        self._requests.put(None)

    def flush(self, timeout: float, *, waits_for_device: bool = True) -> bool:
        """Waits until all that was reported is with the operating system; False when it took too long."""
        request = _FlushRequest(waits_for_device=waits_for_device)
        self._requests.put(request)
        return request.done.wait(timeout)

    def close(self, timeout: float) -> bool:
        """Writes what is left and ends the thread."""
        request = _FlushRequest(last=True)
        self._requests.put(request)
        return request.done.wait(timeout)

    def forget_after_fork(self) -> None:
        """In a forked child: lets go of the parent's files without touching them."""
        if self._segments is not None:
            self._segments.forget_after_fork()
        if self._lock is not None:
            self._lock.release()

    def _run(self) -> None:
        last = False
        next_turn = time.monotonic() + self._interval
        while not last:
            requests = self._requests_until(next_turn)
            # From the start of a turn to the start of the next: what writing costs must not add to what a
            # kill loses.
            next_turn = time.monotonic() + self._interval
            last = any(request.last for request in requests)
            try:
                self._turn(at_once=bool(requests))
                if self._maker.is_waiting and any(request.waits_for_device for request in requests):
                    self._wait_for_device()
                if last:
                    self._finish()
            except Exception:
                # A bug here must cost at most a turn's events, never the training process; tried again, the
                # same events would fail again, and be written again each time.
                logger.exception("TrainCard could not write some events; later events are still written")
                self._drop(_BUG, Counter(record.kind for record in self._pending))
                self._pending.clear()
            for request in requests:
                request.done.set()

    def _requests_until(self, deadline: float) -> list[_FlushRequest]:
        found: list[_FlushRequest] = []
        with contextlib.suppress(Empty):
            first = self._requests.get(timeout=max(0.0, deadline - time.monotonic()))
            while True:
                if first is not None:
                    found.append(first)
                first = self._requests.get_nowait()
        return found

    def _turn(self, *, at_once: bool) -> None:
        self._collect()
        if at_once or time.monotonic() >= self._retry_at:
            try:
                self._write()
            except RunInUseError as error:
                self.problem(OSError(str(error)))
            except OSError as error:
                self.problem(error)
        self._bound_pending()

    def _collect(self) -> None:
        batch, dropped = self._queue.take()
        self._drop(self._problem or _TOO_FAST, dropped)
        self._pending.extend(self._maker.make(batch))
        self._drop(_DEVICE, self._maker.limit_waiting(self._queue.capacity))
        self._drop(_UNREADABLE, self._maker.unreadable)
        self._maker.unreadable = Counter()
        now = time.monotonic()
        if self._pending:
            self._spoke_at = now
        elif now - self._spoke_at >= _HEARTBEAT_SECONDS:
            self._spoke_at = now
            promise = {"expect_next_in": OWN_PROMISE_SECONDS, "auto": True}
            self._pending.append(Record({"t": round(time.time(), 4), "kind": "heartbeat", **promise}))

    def _wait_for_device(self) -> None:
        # The last step's loss is usually still being computed when a loop ends or saves.
        deadline = time.monotonic() + _DEVICE_SECONDS
        while self._maker.is_waiting and time.monotonic() < deadline:
            time.sleep(0.005)
            self._pending.extend(self._maker.make(()))
        self._turn(at_once=True)

    def _drop(self, reason: str, counts: Counter[str]) -> None:
        if counts:
            self._drops.setdefault(reason, Counter()).update(counts)

    def _bound_pending(self) -> None:
        excess = len(self._pending) - self._queue.capacity
        if excess <= 0:
            return
        kept: list[Record] = []
        dropped: Counter[str] = Counter()
        for record in self._pending:
            if excess > 0 and record.kind in DROPPABLE:
                dropped[record.kind] += record.events
                excess -= 1
            else:
                kept.append(record)
        self._pending = deque(kept)
        self._drop(self._problem or _TOO_FAST, dropped)

    def _write(self) -> None:
        if self._segments is None or not self._segments.is_open:
            self.open()
        assert self._segments is not None
        # Drops come first: what was dropped was older than what is left.
        for reason, counts in list(self._drops.items()):
            record = Record(
                {"t": round(time.time(), 4), "kind": "dropped", "counts": dict(counts), "reason": reason}
            )
            self._pending.appendleft(record)
            del self._drops[reason]
        must_sync = False
        while self._pending:
            self._segments.make_room()
            chunk = list(islice(self._pending, _LINES_PER_WRITE))
            written, problem = self._segments.append([record.fields for record in chunk])
            for fields in written:
                self._pending.popleft()
                must_sync |= fields["kind"] in {"checkpoint", "error", "end"}
            self._written(written)
            self._unsynced |= bool(written)
            if problem is not None:
                self._undo_drop_records()
                if self._segments.is_gone:
                    self._begin_again()
                raise problem
        self._segments.condense()
        self._problem = None
        self._save_small_files(force=False)
        if must_sync or (self._unsynced and time.monotonic() - self._synced_at >= _SYNC_SECONDS):
            self._sync_behind()

    def _begin_again(self) -> None:
        """Start a new tail after the old one was deleted, and record which events were lost with it."""
        assert self._segments is not None
        self._drop(_DELETED, self._segments.in_tail)
        self._segments.let_go()
        if self._index is not None:
            self._index.write_again()

    def _undo_drop_records(self) -> None:
        # Counts that could not be written go back to be added up: an outage is one line, not one per try.
        while self._pending and self._pending[0].kind == "dropped":
            fields = self._pending.popleft().fields
            self._drop(fields["reason"], Counter(fields["counts"]))

    def _written(self, written: list[dict[str, Any]]) -> None:
        if self._rank != 0:
            return
        self._state.apply_all(written)
        if self.on_written is not None:
            self.on_written(written)
        assert self._index is not None
        for fields in written:
            if fields["kind"] == "checkpoint":
                self._index.add(fields, self.attempt or 0)
            elif fields["kind"] == "checkpoint_removed":
                self._index.remove(fields["path"])

    def _save_small_files(self, *, force: bool) -> None:
        if self._index is not None:
            self._index.save()
        self._write_latest(force=force)

    def _write_latest(self, *, force: bool) -> None:
        if self._rank != 0:
            return
        now = time.monotonic()
        changed = self._state.status != self._latest_status
        if not (force or changed) and (
            now - self._latest_at < _LATEST_SECONDS or self._state.seq == self._latest_seq
        ):
            return
        self._latest_at = now
        latest = self._state.latest()
        replace_file(self._files.latest, to_json(latest))
        if os.environ.get("BLOOM_OPENMETRICS", "").lower() in {"1", "on"}:
            from gpubloom.traincard.interop.openmetrics import write_openmetrics

            write_openmetrics(self._files.run_dir, latest)
        self._latest_status, self._latest_seq = self._state.status, self._state.seq

    def _sync_behind(self) -> None:
        # fsync may take seconds while a checkpoint is written; on this thread those seconds would be lost
        # by a kill.
        assert self._segments is not None
        self._synced_at, self._unsynced = time.monotonic(), False
        threading.Thread(target=self._segments.sync_copy(), name="traincard-sync", daemon=True).start()

    def _finish(self) -> None:
        if rest := self._maker.rest_of_output(time.time()):
            self._pending.extend(rest)
            self._turn(at_once=True)
        if lost_on_device := self._maker.give_up_waiting():
            self._drop(_DEVICE, lost_on_device)
            self._turn(at_once=True)
        lost = sum(record.events for record in self._pending) + sum(
            sum(c.values()) for c in self._drops.values()
        )
        if lost:
            logger.warning("TrainCard could not write %d events: %s", lost, self._problem)
        if self._segments is not None:
            with contextlib.suppress(OSError):
                self._save_small_files(force=True)
            self._segments.close()
        if self._lock is not None and self._lock_is_ours:
            self._lock.release()

    def _complain_about_value(self, sentence: str) -> None:
        # One per metric name: the reason may differ each step, the name says which line to fix.
        name = sentence.partition(":")[0]
        if name not in self._complained_about:
            self._complained_about.add(name)
            logger.warning("TrainCard: %s", sentence)


def _readable(path: Path) -> dict[str, Any] | None:
    try:
        return read_json_object(path)
    except (OSError, ValueError):
        # Derived from the events, and about to be replaced; nothing is lost by starting afresh.
        return None
