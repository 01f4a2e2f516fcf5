"""Receive a run from a bucket: upload batches, in the order of their numbers, into a local run directory.

What was applied is recorded entry by entry, so a receiver can be killed anywhere and another one goes on. A
batch is deleted once it is applied. Silence is counted only while the bucket answers.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpubloom.agent import AgentFiles, ExitRecord
from gpubloom.agent.remote.upload_batch import UploadBatch
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.mailbox import Mailbox
from gpubloom.storage.store import StorageError, Store
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.sync.apply import TRAINING_PATHS, AcceptedPaths, RefusedEntryError, RunFolder

# An agent packs 16 MB and a header.
_LARGEST_BATCH = 128 << 20
# Kinds whose bytes are in the body.
_WITH_CONTENT = {"whole", "grow", "part"}

ArrivalState = Literal["waiting", "running", "ended", "vanished"]


class DamagedBatchError(Exception):
    """A batch is damaged. It is neither applied nor deleted; the message says why."""


@dataclass(frozen=True)
class Arrival:
    """Where an attempt stands. waiting: nothing came yet. vanished: the agent broke its promise, or the end
    came without a record. `differences`: files that are not as the other side has them, at the end.
    `left_out`: files that this receiver was sent and did not accept."""

    state: ArrivalState
    applied: int
    news: int
    exit: ExitRecord | None
    differences: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Receiver:
    """One attempt. `once` is called again and again, by one process at a time; it blocks on the network."""

    def __init__(
        self,
        store: Store,
        job_id: str,
        attempt: int,
        run_dir: Path,
        *,
        accepted: AcceptedPaths = TRAINING_PATHS,
        mailbox: Mailbox | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._layout = store, JobLayout(job_id, attempt)
        self._run_dir, self._clock = run_dir, clock
        self._mailbox = mailbox or Mailbox(store, self._layout)
        exit_record = f"agent/{AgentFiles(run_dir).exit(attempt).name}"
        self._folder = RunFolder(run_dir, accepted.including([exit_record]))
        self._record = self._folder.arriving / f"received-{attempt}.json"
        kept = read_json_object(self._record) or {}
        self._applied: int = kept.get("applied", 0)
        self._entries: int = kept.get("entries", 0)
        self._promise: float = kept.get("promise", 0.0)
        self._ended: bool = kept.get("ended", False)
        self._differences: list[str] = kept.get("differences", [])
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
        news = 0
        # Applied by a receiver that was killed before it could delete them.
        self._store.delete([name for name in found if name <= self._layout.slot(self._applied)])
        while (name := self._layout.slot(self._applied + 1)) in found:
            if (content := self._fetch(name, found[name])) is None:
                break
            self._apply(name, content)
            self._store.delete([name])
            news += 1
            if not self._ended:
                self._mailbox.renew(self._applied + 1)
        self._count_silence(news)
        return self._arrival(news)

    def _tell(self) -> None:
        """Upload control.json, if it is newer than what was uploaded before."""
        control = read_json_object(RunFiles(self._run_dir).control)
        if control is not None and control.get("version") != self._told:
            self._store.put(self._layout.control, json.dumps(control).encode())
            self._told = control.get("version")

    def _fetch(self, name: str, size: int) -> bytes | None:
        """None: some buckets list an object a moment before it can be read; the next call reads it."""
        if size > _LARGEST_BATCH:
            raise DamagedBatchError(
                f"{name} has {size} bytes, which is not a valid size for an upload batch."
            )
        content = self._store.get(name)
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
            self._apply_entries(batch)
            differences = self._folder.differences(batch.tree) if batch.ended else []
        except (KeyError, TypeError, ValueError) as problem:
            raise DamagedBatchError(f"{name} cannot be applied: {problem}.") from problem
        self._applied, self._entries = batch.number, 0
        self._promise, self._ended, self._differences = batch.next_in, batch.ended, differences
        self._keep()

    def _apply_entries(self, batch: UploadBatch) -> None:
        offset = 0
        for index, entry in enumerate(batch.entries):
            size = int(entry["size"]) if entry["kind"] in _WITH_CONTENT else 0
            content = batch.body[offset : offset + size]
            if size < 0 or len(content) != size:
                raise RefusedEntryError("the entries and the content do not match")
            offset += size
            if index >= self._entries:
                self._folder.apply(entry, content)
                self._entries = index + 1
                self._keep()

    def _keep(self) -> None:
        content = {
            "applied": self._applied,
            "entries": self._entries,
            "promise": self._promise,
            "ended": self._ended,
            "differences": self._differences,
        }
        replace_file(self._record, json.dumps(content))

    def _count_silence(self, news: int) -> None:
        now = self._clock()
        # A long pause between two looks was ours, not the agent's; after it, it gets its whole promise again.
        paused = self._answered_at is not None and now - self._answered_at > max(self._promise, 60.0)
        if news or paused or self._answered_at is None:
            self._silent = 0.0
        else:
            self._silent += now - self._answered_at
        self._answered_at = now

    def _arrival(self, news: int) -> Arrival:
        files = AgentFiles(self._run_dir)
        record = files.read_exit(self._layout.attempt) if self._ended else None
        state: ArrivalState = "running"
        if self._ended:
            state = "ended" if record is not None else "vanished"
        elif self._applied == 0:
            state = "waiting"
        elif self._silent > self._promise:
            state = "vanished"
        return Arrival(
            state,
            self._applied,
            news,
            record,
            tuple(self._differences),
            tuple(sorted(self._folder.left_out)),
        )
