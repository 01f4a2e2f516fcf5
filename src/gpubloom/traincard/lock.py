"""One trainer per run directory.

The lock is the kernel's (`flock`), held on an open file: it goes when the process goes, however that
happens, so no lock is ever stale. The file's text only says whom to look for.
"""

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Self

from gpubloom.errors import CodedError
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.safe_paths import open_beneath

try:
    import fcntl

    HAS_FLOCK = True
except ImportError:
    # The protocol: a system without flock has no lock.
    HAS_FLOCK = False


_FOLLOWS = "following a script's output"
_FOLLOWER_SECONDS = 10.0


class RunInUseError(CodedError, RuntimeError):
    """Another process trains in this run directory."""

    code = "run_in_use"

    def __init__(self, run_dir: Path, holder: str) -> None:
        self.run_dir = run_dir
        self.holder = holder
        super().__init__(
            f"{run_dir} is in use: {holder} is training there. Wait until it ends, stop it, or use "
            "another directory."
        )


class RunLock:
    """The right to write a rank's files in a run directory; held until `release` or the process ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, run_dir: str | os.PathLike[str], rank: int = 0, *, follows: bool = False) -> Self:
        """Takes the lock or raises RunInUseError; OSError when the folder cannot be written.

        `follows`: give the lock up when a Reporter wants it. For the agent, which reports for a script that
        does not report itself.
        """
        path = RunFiles(run_dir).lock(rank)
        return cls(path, cls._taken(path, follows=follows))

    @staticmethod
    def _taken(path: Path, *, follows: bool = False) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _lock_soon(descriptor) and (follows or not _ask_follower(path, descriptor)):
                raise RunInUseError(path.parent.parent, _holder_text(path))
            note = f", {_FOLLOWS}" if follows else ""
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}{note}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @staticmethod
    def holder(run_dir: str | os.PathLike[str], rank: int = 0) -> str | None:
        """The process that trains here ("process 4711 on host"); None if there is none on this machine."""
        path = RunFiles(run_dir).lock(rank)
        try:
            # Without following a link, and without waiting for a pipe: a run may come from another machine.
            descriptor = open_beneath(Path(run_dir), f"traincard/{path.name}")
        except OSError:
            return None
        try:
            if HAS_FLOCK:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder_text(path)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return None

    @property
    def is_wanted(self) -> bool:
        """Whether another process wants the lock that a follower holds."""
        return _wanted(self.path).exists()

    def renew(self) -> None:
        """Take the lock again after its file was deleted. RunInUseError: another process was faster."""
        again = type(self)._taken(self.path)
        self.release()
        self._descriptor = again

    def release(self) -> None:
        """Lets the next trainer in. In a forked child it closes the copy; the parent's lock stays."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def _lock_soon(descriptor: int) -> bool:
    if not HAS_FLOCK:
        return True
    # A viewer that asks for the holder has the lock, shared, for some microseconds; it must not turn a
    # trainer away.
    for _ in range(20):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def _wanted(path: Path) -> Path:
    return path.with_name(f"{path.name}.wanted")


def _ask_follower(path: Path, descriptor: int) -> bool:
    """A follower releases the lock within a second when asked."""
    if _FOLLOWS not in _holder_text(path):
        return False
    wanted = _wanted(path)
    try:
        wanted.touch()
        deadline = time.monotonic() + _FOLLOWER_SECONDS
        while time.monotonic() < deadline:
            if _lock_soon(descriptor):
                return True
    finally:
        wanted.unlink(missing_ok=True)
    return False


def _holder_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip() or "another process"
    except OSError:
        return "another process"
