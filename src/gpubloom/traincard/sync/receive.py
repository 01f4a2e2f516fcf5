"""Receive upload batches one by one, in the order of their numbers, into a run directory.

A batch that comes twice changes nothing; one that comes too early is refused with the number that is
expected. What was applied is recorded entry by entry, so a receiver can be killed anywhere: the sender sends
the same batch again, and the rest of it is applied. A batch is checked as a whole before its first byte is
stored.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpubloom.traincard.safe_paths import open_beneath, read_json_beneath
from gpubloom.traincard.sync.accepted import AcceptedPaths, Limits, RefusedEntryError
from gpubloom.traincard.sync.apply import ARRIVING, RunFolder
from gpubloom.traincard.sync.upload_batch import UploadBatch

_RECORD = "received-1.json"


@dataclass(frozen=True)
class Received:
    """`next`: the number of the batch that is expected. `applied`: whether this batch was new."""

    next: int
    applied: bool
    left_out: tuple[str, ...] = ()


class EarlyBatchError(Exception):
    """A batch came before the one that is expected."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"batch {expected} is expected")
        self.expected = expected


def expected_number(run_dir: Path) -> int:
    """The number of the batch that a run directory needs next."""
    kept = read_json_beneath(run_dir, f"{ARRIVING}/{_RECORD}") if run_dir.is_dir() else None
    return int((kept or {}).get("next", 1))


def receive(run_dir: Path, batch: UploadBatch, accepted: AcceptedPaths, limits: Limits) -> Received:
    """Apply a batch. RefusedEntryError: no sender of ours sends it. EarlyBatchError: there is a gap."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with _alone(run_dir):
        kept = read_json_beneath(run_dir, f"{ARRIVING}/{_RECORD}") or {}
        number, done, unread = (int(kept.get(name, first)) for name, first in _FIRST)
        if batch.number < number:
            return Received(number, applied=False)
        if batch.number > number:
            raise EarlyBatchError(number)
        folder = RunFolder(run_dir, accepted, limits)
        for index, (entry, content) in enumerate(folder.checked(batch)):
            if index < done:
                continue
            # Every byte that is read back was sent: a short entry cannot make this machine read for hours.
            unread += (len(content) if entry.kind == "part" else 0) - entry.total
            if unread < 0:
                raise RefusedEntryError(f"parts of {entry.path!r} are missing")
            folder.apply(entry, content)
            folder.keep(_RECORD, json.dumps({"next": number, "entries": index + 1, "unread": unread}))
        folder.keep(_RECORD, json.dumps({"next": number + 1, "entries": 0, "unread": unread}))
        return Received(number + 1, applied=True, left_out=tuple(sorted(folder.left_out)))


_FIRST = (("next", 1), ("entries", 0), ("unread", 0))


@contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Two requests of one sender, in this process or in another, are applied one after the other."""
    descriptor = open_beneath(run_dir, f"{ARRIVING}/.receiving", os.O_RDWR | os.O_CREAT, make=True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
