"""The disk under the run directories: whether it can be written, and which errors are its own.

A full, read-only or failing disk is a fault of the machine, not of a job. Meanwhile the worker claims
nothing; jobs that ran into it are queued again, and the worker goes on by itself once a probe succeeds.
"""

import asyncio
import errno
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from gpubloom.traincard.retry import RetryPolicy

log = structlog.get_logger("bloom.worker")

# Below this a disk counts as full: a job could be prepared, and would fail with its first lines.
RESERVE_BYTES = 16 << 20
# How long a good probe is believed, and how often a disk with a fault is probed; seconds.
TRUST_SECONDS = 10.0
PROBE_SECONDS = 1.0
# Pauses after a fault that a probe does not confirm; seconds.
_PAUSES = RetryPolicy(first_pause=1.0, longest_pause=300.0)

Code = Literal["disk_full", "disk_read_only", "disk_failing"]

_CODES: dict[int, Code] = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EROFS: "disk_read_only",
    errno.EIO: "disk_failing",
}
_SENTENCES: dict[Code, str] = {
    "disk_full": "The disk of the worker's machine is full.",
    "disk_read_only": "The disk of the worker's machine is read-only.",
    "disk_failing": "The disk of the worker's machine reports write errors.",
}
# As Python and Rust write error numbers.
_NUMBER = re.compile(r"\b(?:errno|os error) (\d+)\b", re.IGNORECASE)


@dataclass(frozen=True)
class DiskFault:
    """What is wrong with the disk: a stable code, and sentences for operators and for owners of jobs."""

    code: Code

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.code]

    @property
    def for_operator(self) -> str:
        return f"{self.sentence} The worker starts no jobs until it can write to the disk again."

    @property
    def for_owner(self) -> str:
        return f"{self.sentence} The job is queued again and continues when the worker can write to the disk."


def fault_of(problem: BaseException) -> DiskFault | None:
    """The disk fault behind an exception or one of its causes."""
    for each in _chain(problem):
        if isinstance(each, OSError) and each.errno in _CODES:
            return DiskFault(_CODES[each.errno])
    return None


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        yield problem
        problem = problem.__cause__ or problem.__context__


def fault_in(text: str) -> DiskFault | None:
    """The disk fault that the error message of another process describes."""
    for number in _NUMBER.findall(text):
        if (code := _CODES.get(int(number))) is not None:
            return DiskFault(code)
    for known, code in _CODES.items():
        if os.strerror(known).lower() in text.lower():
            return DiskFault(code)
    return None


def probe(folder: Path, reserve_bytes: int = RESERVE_BYTES) -> DiskFault | None:
    """Write a small file and bring it to disk; None when that works and enough space is left."""
    path = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("wb") as file:
                file.write(b"\0" * 4096)
                file.flush()
                os.fsync(file.fileno())
        finally:
            path.unlink(missing_ok=True)
        space = os.statvfs(folder)
    except OSError as problem:
        # Any other number (a stale mount, missing rights) means as well that no run can be written here.
        return fault_of(problem) or DiskFault("disk_failing")
    return DiskFault("disk_full") if space.f_bavail * space.f_frsize < reserve_bytes else None


class MachineDisk:
    """What one worker knows about its disk. `fault`: why it claims nothing; None if the disk is usable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.fault: DiskFault | None = None
        self._probed = float("-inf")
        self._closed_until = float("-inf")
        self._unconfirmed = 0

    async def is_usable(self) -> bool:
        """Whether a job may be claimed. Probes the disk now and then, so a fault is found and cleared
        automatically.
        """
        clock = time.monotonic()
        if clock >= self._closed_until and clock - self._probed >= (
            TRUST_SECONDS if self.fault is None else PROBE_SECONDS
        ):
            await self.examine()
        return self.fault is None

    async def examine(self) -> DiskFault | None:
        """Probe now."""
        found = await asyncio.to_thread(probe, self._folder)
        self._probed = time.monotonic()
        if found is not None or time.monotonic() >= self._closed_until:
            self._note(found)
        return found

    async def confirms(self, fault: DiskFault) -> bool:
        """Something ran into a fault. Says whether a probe finds one, too.

        Where it does not, the worker waits before it claims again, longer each time: what was written may
        not have fitted, although a small file does.
        """
        if await self.examine() is not None:
            return True
        self._note(fault)
        self._unconfirmed += 1
        self._closed_until = time.monotonic() + _PAUSES.pause_after(self._unconfirmed)
        return False

    def worked(self) -> None:
        """An attempt ended without running into a fault."""
        self._unconfirmed = 0

    def _note(self, fault: DiskFault | None) -> None:
        if fault == self.fault:
            return
        self.fault = fault
        if fault is None:
            log.info("the disk is writable again: starting jobs")
        else:
            log.error("not starting jobs", code=fault.code, reason=fault.sentence)
