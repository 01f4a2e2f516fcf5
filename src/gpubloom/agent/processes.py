"""Processes of this machine as /proc shows them. Linux only.

A process id is used again once its process is gone. Together with the moment the process started, in clock
ticks since the machine did, it means one process for good.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    """One process, never to be mistaken for a later one of the same number."""

    pid: int
    start_ticks: int

    @classmethod
    def this(cls) -> Self:
        return cls.find(os.getpid())

    @classmethod
    def find(cls, pid: int) -> Self:
        """ProcessLookupError when there is none."""
        facts = _facts(pid)
        if facts is None:
            raise ProcessLookupError(f"there is no process {pid}")
        return cls(pid, facts.start_ticks)

    @property
    def lives(self) -> bool:
        """A process that ended and waits for its parent to notice does not live."""
        facts = _facts(self.pid)
        return facts is not None and facts.start_ticks == self.start_ticks and facts.state not in "ZX"

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal to this very process; False when it is gone."""
        if not self.lives:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


@dataclass(frozen=True)
class _Facts:
    state: str
    parent: int
    group: int
    start_ticks: int


def _facts(pid: int) -> _Facts | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name stands in brackets and may hold brackets and blanks of its own.
    fields = text.rpartition(")")[2].split()
    return _Facts(state=fields[0], parent=int(fields[1]), group=int(fields[2]), start_ticks=int(fields[19]))


def group_has(group: int, path: Path) -> bool:
    """Whether some process of a group holds this file open: proof that the group is the one we mean."""
    wanted = path.stat()
    for pid in _pids():
        facts = _facts(pid)
        if facts is None or facts.group != group or facts.state in "ZX":
            continue
        with contextlib.suppress(OSError):
            for entry in (_PROC / str(pid) / "fd").iterdir():
                # A descriptor may be closed while we look.
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                        return True
    return False


def adopt_orphans() -> None:
    """Descendants whose parents end become children of this process, so that it can end them as well."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of(parent: int) -> list[int]:
    return [pid for pid in _pids() if (facts := _facts(pid)) is not None and facts.parent == parent]


def thread_count() -> int:
    """How many threads this process has, those of libraries included."""
    return len(list((_PROC / "self" / "task").iterdir()))


def _pids() -> Iterator[int]:
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            yield int(entry.name)
