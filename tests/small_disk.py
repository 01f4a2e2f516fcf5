"""A real file system of a few bytes, to be filled."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mounts one in a new folder; `size` as mount spells it (256k, 1m). Skips where that is not allowed."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here to make a small disk with")
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily: a process that is still ending may have a file open there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Writes a file until the disk is full; removing the file frees the space again."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()
    return ballast


def remount(folder: Path, *, read_only: bool) -> None:
    """Makes a small disk read-only, or writable again. Waits for a file that is open there for writing."""
    command = ["mount", "-o", f"remount,{'ro' if read_only else 'rw'}", str(folder)]
    deadline = time.monotonic() + 30
    while (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode != 0:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.05)
