"""Folders that are complete or absent: written under another name, brought to disk, then renamed."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpubloom.errors import InputError

TEMPORARY = ".writing-"


@contextlib.contextmanager
def complete_or_absent(final: Path) -> Iterator[Path]:
    """A folder to write into: it gets its name when all is well, and else is removed.

    An OSError becomes a sentence that names the folder.
    """
    temporary = final.parent / f"{TEMPORARY}{final.name}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        # What is left of a process that was killed.
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        _sync(temporary)
        temporary.rename(final)
        _sync(final.parent)
    except BaseException as problem:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(problem, OSError):
            raise OSError(
                f"{final} could not be saved: {problem.strerror or problem}. "
                "Files that were saved earlier are intact: free disk space, then resume."
            ) from problem
        raise


def must_have_room(target: Path, needed: int, what: str) -> int:
    """The free bytes of a new folder's disk; InputError when they are too few."""
    # The folders above a new one may be new as well.
    existing = next(folder for folder in target.absolute().parents if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise InputError(
            "disk_full",
            f"{what} needs {needed / 1e9:,.3f} GB of disk space, but only {free / 1e9:,.3f} GB are free in "
            f"{existing}: free some space there, or choose a folder on another disk.",
        )
    return free


def sync_files(folder: Path, already: Mapping[str, str]) -> dict[str, str]:
    """Brings all files to disk; sha256 by name. Those in `already` are on disk and have theirs."""
    checksums = dict(already)
    for file in sorted(folder.iterdir()):
        if file.name not in checksums:
            checksums[file.name] = sha256_of(file)
            _sync(file)
    return checksums


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
