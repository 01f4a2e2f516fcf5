"""Receive a run from a bucket: upload batches, in the order of their numbers, into a local run directory.

What was applied is recorded entry by entry, so a receiver can be killed anywhere and another one goes on. A
batch is deleted once it is applied. Silence is counted only while the bucket answers.

A batch is checked as a whole before its first byte is stored: the form of every entry, every name, every
size, the exit record. One that is damaged ends the attempt, never the receiver. What comes faster than the
limit waits in the bucket.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpubloom.agent import AgentFiles, ExitRecord
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.mailbox import Mailbox
from gpubloom.storage.run_store import RunStore
from gpubloom.storage.store import StorageError
from gpubloom.traincard.safe_paths import read_json_beneath
from gpubloom.traincard.sync.accepted import AcceptedPaths, Entry, Limits, RefusedEntryError
from gpubloom.traincard.sync.apply import ARRIVING, RunFolder
from gpubloom.traincard.sync.files import CONTROL
from gpubloom.traincard.sync.upload_batch import UploadBatch
from gpubloom.traincard.untrusted_json import UntrustedJsonError, parse_untrusted

# An agent's own is below 4096 bytes.
_LARGEST_EXIT_RECORD = 1 << 16

ArrivalState = Literal["waiting", "running", "silent", "ended", "vanished"]


class DamagedBatchError(Exception):
    """A batch is damaged. It is neither applied nor deleted; the message says why."""


@dataclass(frozen=True)
class Arrival:
    """Where an attempt stands. waiting: nothing came yet. silent: the next batch is overdue; only the
    provider knows whether the instance runs. vanished: the end came without a record. `waits`: more has come
    than may be applied now. `differences`: files that are not as the other side has them, at the end.
    `left_out`: files that were sent and not accepted."""

    state: ArrivalState
    applied: int
    news: int
    exit: ExitRecord | None
    waits: bool = False
    differences: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Receiver:
    """One attempt. `once` is called again and again, by one process at a time; it blocks on the network."""

    def __init__(
        self,
        store: RunStore,
        job_id: str,
        attempt: int,
        run_dir: Path,
        *,
        accepted: AcceptedPaths,
        limits: Limits | None = None,
        mailbox: Mailbox | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._layout = store, JobLayout(job_id, attempt)
        self._run_dir, self._clock = run_dir, clock
        self._mailbox = mailbox or Mailbox(store, self._layout)
        self._exit_record = f"agent/{AgentFiles(run_dir).exit(attempt).name}"
        self._limits = limits or Limits()
        self._folder = RunFolder(run_dir, accepted.including([self._exit_record]), self._limits)
        self._record = f"received-{attempt}.json"
        kept = read_json_beneath(run_dir, f"{ARRIVING}/{self._record}") or {}
        self._applied: int = kept.get("applied", 0)
        self._entries: int = kept.get("entries", 0)
        self._promise: float = kept.get("promise", 0.0)
        self._ended: bool = kept.get("ended", False)
        self._differences: list[str] = kept.get("differences", [])
        # Bytes that came in parts, less those of files that were put together of them and read once.
        self._unread: int = kept.get("unread", 0)
        self._allowance = self._limits.burst_bytes
        self._filled_at = clock()
        self._told: int | None = None
        self._answered_at: float | None = None
        self._silent = 0.0

    def once(self) -> Arrival:
        """Apply what has arrived. StorageError: the bucket is away. DamagedBatchError: a batch is damaged."""
        try:
            return self._once()
        except StorageError:
            # Nothing could arrive meanwhile: afterwards the agent gets its whole promise again.
            self._answered_at = None
            raise

    def _once(self) -> Arrival:
        self._tell()
        if not self._ended:
            self._mailbox.renew(self._applied + 1)
        found = self._store.sizes(self._layout.batches)
        news, waits = 0, False
        # Applied by a receiver that was killed before it could delete them.
        self._store.delete([name for name in found if name <= self._layout.slot(self._applied)])
        while not self._ended and (name := self._layout.slot(self._applied + 1)) in found:
            if waits := not self._may_take(name, found[name]):
                break
            if (content := self._fetch(name, found[name])) is None:
                break
            self._apply(name, content)
            self._store.delete([name])
            news += 1
            if not self._ended:
                self._mailbox.renew(self._applied + 1)
        self._count_silence(news, waits=waits)
        return self._arrival(news, waits)

    def _tell(self) -> None:
        """Upload control.json, if it is newer than what was uploaded before."""
        control = read_json_beneath(self._run_dir, CONTROL)
        if control is not None and control.get("version") != self._told:
            self._store.put(self._layout.control, json.dumps(control).encode())
            self._told = control.get("version")

    def _may_take(self, name: str, size: int) -> bool:
        """Whether a batch may be fetched now. DamagedBatchError: no agent sends one of this size."""
        if size > self._limits.batch_bytes:
            raise DamagedBatchError(f"{name} has {size} bytes, which is not a valid size for an upload batch")
        now, limits = self._clock(), self._limits
        more = (now - self._filled_at) * limits.bytes_per_second
        self._allowance, self._filled_at = min(limits.burst_bytes, self._allowance + more), now
        if self._allowance < 0:
            return False
        self._allowance -= size
        return True

    def _fetch(self, name: str, size: int) -> bytes | None:
        """None: some buckets list an object a moment before it can be read; the next call reads it."""
        # It may have been written again since it was listed, with any size.
        content = self._store.get(name, most=size)
        return content if content is not None and len(content) == size else None

    def _apply(self, name: str, content: bytes) -> None:
        try:
            batch = UploadBatch.from_bytes(content)
            if (batch.job_id, batch.attempt, self._layout.slot(batch.number)) != (
                self._layout.job_id,
                self._layout.attempt,
                name,
            ):
                raise RefusedEntryError("the batch belongs to another attempt")
            entries = self._folder.checked(batch)
            for entry, content in entries:
                if self._exit_record in entry.names:
                    self._check_exit_record(entry, content)
            self._allowance -= len(entries) * self._limits.entry_bytes
            self._apply_entries(entries)
            differences = self._folder.differences(batch.tree) if batch.ended else []
        except ValueError as problem:
            raise DamagedBatchError(f"{name} cannot be applied: {problem}") from problem
        self._applied, self._entries = batch.number, 0
        self._promise, self._ended, self._differences = batch.next_in, batch.ended, differences
        self._keep()

    def _check_exit_record(self, entry: Entry, content: bytes) -> None:
        if entry.kind != "whole" or len(content) > _LARGEST_EXIT_RECORD:
            raise RefusedEntryError("the exit record is not sent as a whole file")
        try:
            found = ExitRecord.from_json(parse_untrusted(content, most_bytes=_LARGEST_EXIT_RECORD))
        except UntrustedJsonError as problem:
            raise RefusedEntryError(f"the exit record is damaged: {problem}") from None
        if found.attempt != self._layout.attempt:
            raise RefusedEntryError("the exit record belongs to another attempt")

    def _apply_entries(self, entries: list[tuple[Entry, bytes]]) -> None:
        for index, (entry, content) in enumerate(entries):
            if index < self._entries:
                continue
            # Every byte that is read back was sent: a short entry cannot make this machine read for hours.
            unread = self._unread + (len(content) if entry.kind == "part" else 0) - entry.total
            if unread < 0:
                raise RefusedEntryError(f"parts of {entry.path!r} are missing")
            self._folder.apply(entry, content)
            self._entries, self._unread = index + 1, unread
            self._keep()

    def _keep(self) -> None:
        content = {
            "applied": self._applied,
            "entries": self._entries,
            "promise": self._promise,
            "ended": self._ended,
            "differences": self._differences,
            "unread": self._unread,
        }
        self._folder.keep(self._record, json.dumps(content))

    def _count_silence(self, news: int, *, waits: bool) -> None:
        now = self._clock()
        # A long pause between two looks was ours, not the agent's; after it, it gets its whole promise again.
        paused = self._answered_at is not None and now - self._answered_at > max(self._promise, 60.0)
        if news or waits or paused or self._answered_at is None:
            self._silent = 0.0
        else:
            self._silent += now - self._answered_at
        self._answered_at = now

    def _arrival(self, news: int, waits: bool) -> Arrival:
        record = self._read_exit() if self._ended else None
        state: ArrivalState = "running"
        if self._ended:
            state = "ended" if record is not None else "vanished"
        elif self._applied == 0:
            state = "waiting"
        elif self._silent > self._promise:
            state = "silent"
        return Arrival(
            state,
            self._applied,
            news,
            record,
            waits,
            tuple(self._differences),
            tuple(sorted(self._folder.left_out)),
        )

    def _read_exit(self) -> ExitRecord | None:
        try:
            content = read_json_beneath(self._run_dir, self._exit_record, most=_LARGEST_EXIT_RECORD)
            return None if content is None else ExitRecord.from_json(content)
        except ValueError as problem:
            raise DamagedBatchError(f"{self._exit_record} cannot be read: {problem}") from problem
