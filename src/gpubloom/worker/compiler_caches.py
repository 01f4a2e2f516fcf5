"""What the jobs of each tenant compiled: `cache/compiled/TENANT` of the home.

A job may write anything into the folder of its tenant, links too. So the server only makes, renames and
removes whole folders here, and never opens or copies what a job may have made.
"""

import os
import shutil
from pathlib import Path
from uuid import uuid4

from gpubloom.providers.local.sandbox import CACHE_FOLDER
from gpubloom.server.jobs.files import remove_tree

# Of the server's own cache, what was compiled and measured. It also holds data and runs of the server's user.
_SHARED = ("programs-*", "*.so", "machine-*.json", "processes-*.json")


def tenant_cache(home: Path, tenant: str) -> Path:
    """For a job that starts. It begins with what the server's own user has, which saves a minute."""
    folder = _root(home) / tenant
    if not folder.is_dir():
        _create(folder)
    return folder


def _create(folder: Path) -> None:
    """Complete from the start: while files were copied, another job of the tenant could change where to."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = folder.with_name(f".new-{uuid4()}")
    target = new / CACHE_FOLDER
    for each in (new, target):
        each.mkdir(mode=0o700)
    for pattern in _SHARED:
        for path in server_cache().glob(pattern):
            _copy(path, target / path.name)
    try:
        new.rename(folder)
    except OSError:
        remove_tree(new)
        if not folder.is_dir():
            raise


def _copy(path: Path, target: Path) -> None:
    try:
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True)
        else:
            shutil.copy2(path, target)
    except OSError:
        # A run of the server's user changes it just now, or the disk is full. The job compiles it again.
        remove_tree(target)


def server_cache() -> Path:
    """What the server's own user compiled."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / CACHE_FOLDER


def _root(home: Path) -> Path:
    return home / "cache" / "compiled"
