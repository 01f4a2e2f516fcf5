"""Files that are held: an exclusive `flock`, inherited over fork and exec.

The kernel lets go when the last process that has the descriptor is gone, however it went. So a held file
means that something lives, a free one that nothing does; there are no stale locks.
"""

import fcntl
import os
import time
from pathlib import Path

# Whoever asks whether a file is held has it, shared, for some microseconds; that must not turn a holder away.
_TRIES = 20
_PAUSE_SECONDS = 0.01


def hold(path: Path, *, tries: int = _TRIES) -> int | None:
    """A descriptor that holds the file for as long as it or a copy is open; None: somebody else has it.

    One try is enough for files that nobody asks about with `is_held`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(tries):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def is_held(path: Path) -> bool:
    """Whether some living process of this machine holds the file; a file that is not there is not held."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_still_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one under this path: not deleted, not moved, not replaced."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    ours = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)
