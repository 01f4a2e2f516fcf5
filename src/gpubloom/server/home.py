"""The home folder belongs to the server's user alone: new files by the umask, older ones by tightening.

Earlier versions, a restored backup or `mkdir` by hand leave a home that others on the machine can read. The
database, the keys and the folders at the top are closed at every start; nothing below them is reachable then.
Run directories of living jobs are not touched: a job may run as another user in its own folder.
"""

import os
import stat
from pathlib import Path

import structlog

_log = structlog.get_logger("home")
# Of a group and of others.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_umask() -> None:
    """Let every file that this process and its children make be their user's alone."""
    os.umask(_OTHERS)


def protect_home(home: Path) -> list[str]:
    """Close an existing home to others; the names of what was open."""
    opened = [
        name
        for path, name in [(home, "."), *((path, path.name) for path in sorted(home.iterdir()))]
        if _close(path, is_home=path == home)
    ]
    if opened:
        _log.warning("home_permissions_tightened", home=str(home), changed=opened)
    return opened


def _close(path: Path, *, is_home: bool) -> bool:
    try:
        # The home itself may be a link of the operator's; links in it lead out of it.
        mode = path.stat(follow_symlinks=is_home).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) or not mode & _OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    except FileNotFoundError:
        # SQLite's own files come and go.
        return False
    except OSError as problem:
        _log.warning("home_permissions_open", path=str(path), reason=problem.strerror)
        return False
    return True
