"""Applies the entries of parcels to a local run directory. Doing an entry twice is doing it once.

Names come from another machine and are trusted in nothing: what would leave the run directory, or belongs to
this side of it, is refused.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

ARRIVING = ".arriving"
# What the other side was given, or is told; files of `inputs` may be links to somebody's originals.
_OURS = re.compile(r"agent(/.*)?|inputs(/.*)?|traincard/(control\.(json|lock)|lock(\.rank\d+)?)")
_EXIT = re.compile(r"agent/exit-\d+\.json")


class RefusedEntryError(ValueError):
    """An entry asks for something that no agent of ours asks for, or its content is damaged."""


class RunFolder:
    """A run directory that grows from afar. What is not whole yet lies in `.arriving`."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.arriving = run_dir / ARRIVING
        self.arriving.mkdir(parents=True, exist_ok=True)

    def apply(self, entry: Mapping[str, Any], content: bytes) -> None:
        """RefusedEntryError when it cannot be; OSError when the disk cannot."""
        path = self._theirs(str(entry["path"]))
        match entry["kind"]:
            case "whole":
                self._whole(path, content)
            case "grow":
                self._grow(path, int(entry["offset"]), content, fresh=bool(entry.get("fresh")))
            case "rename":
                self._rename(path, self._theirs(str(entry["to"])))
            case "part":
                _write_at(_made(self._staged(path)), int(entry["offset"]), content)
            case "done":
                self._done(path, int(entry["total"]), str(entry["sha256"]))
            case "abandon":
                self._staged(path).unlink(missing_ok=True)
            case "folder":
                self._folder(path)
            case "remove":
                self._remove(path)
            case kind:
                raise RefusedEntryError(f"entries of the kind {kind!r} are not known; update gpubloom")

    def differences(self, tree: Mapping[str, Any]) -> list[str]:
        """Names whose file here is not the one that the other side has."""
        different = []
        for name, (size, sha256) in sorted(tree.items()):
            path = self._place(name)
            if not path.is_file() or path.stat().st_size != size or _hash_of(path) != sha256:
                different.append(name)
        return different

    def _place(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        is_inside = bool(parts) and not name.startswith("/") and "\\" not in name and "\0" not in name
        if not is_inside or any(part.startswith(".") for part in parts):
            raise RefusedEntryError(f"{name!r} is not the name of a file in a run directory")
        return self._run_dir.joinpath(*parts)

    def _theirs(self, name: str) -> Path:
        path, parts = self._place(name), PurePosixPath(name).parts
        if _OURS.fullmatch("/".join(parts)) and not _EXIT.fullmatch(name):
            raise RefusedEntryError(f"{name!r} is not for the other side to write")
        return path

    def _staged(self, path: Path) -> Path:
        return self.arriving / path.relative_to(self._run_dir)

    def _whole(self, path: Path, content: bytes) -> None:
        temporary = self.arriving / ".whole"
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(_made(path))

    def _grow(self, path: Path, offset: int, content: bytes, *, fresh: bool) -> None:
        if fresh:
            self._whole(path, content)
            return
        size = path.stat().st_size if path.is_file() else -1
        if size < offset:
            raise RefusedEntryError(f"{path.name} should have {offset} bytes already, and has {max(size, 0)}")
        _write_at(path, offset, content)

    def _rename(self, path: Path, target: Path) -> None:
        if path.exists() or not target.exists():
            path.replace(_made(target))

    def _done(self, path: Path, size: int, sha256: str) -> None:
        staged = self._staged(path)
        if not staged.exists() and path.is_file() and _hash_of(path) == sha256:
            return
        if not staged.is_file() or staged.stat().st_size < size:
            raise RefusedEntryError(f"parts of {path.name} are missing")
        # An earlier try of the same file may have been longer.
        os.truncate(staged, size)
        if _hash_of(staged) != sha256:
            raise RefusedEntryError(f"{path.name} is damaged: its SHA-256 differs")
        if not self._is_awaited(path):
            staged.replace(_made(path))

    def _is_awaited(self, path: Path) -> bool:
        """Whether a file belongs to a checkpoint folder that is not complete yet."""
        parts = path.relative_to(self._run_dir).parts
        is_in_folder = parts[0] == "checkpoints" and len(parts) > 2
        return is_in_folder and not (self._run_dir / parts[0] / parts[1]).exists()

    def _folder(self, path: Path) -> None:
        staged = self._staged(path)
        if staged.is_dir() and not path.exists():
            staged.replace(_made(path))
        path.mkdir(parents=True, exist_ok=True)

    def _remove(self, path: Path) -> None:
        for place in (path, self._staged(path)):
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write_at(path: Path, offset: int, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        written = 0
        while written < len(content):
            written += os.pwrite(descriptor, content[written:], offset + written)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
