"""Applies the entries of upload batches to a local run directory. Doing an entry twice is doing it once.

Names come from another machine and are trusted in nothing. Only a path on the allow-list of the job's kind is
written, renamed or removed; code, configuration and everything else that the server owns is on no list.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from gpubloom.agent import AgentFiles

ARRIVING = ".arriving"
# What every run reports, whatever it trains (docs/run-directory.md).
_REPORTS = (
    r"traincard/(events(\.rank\d+)?\.jsonl|segments/a\d+\.r\d+\.s\d+\.(jsonl|buckets\.json)"
    r"|attempts/\d+(\.rank\d+)?|latest\.json|checkpoints\.json|metrics\.prom)"
    r"|logs/[^/]+\.log"
)
# Nothing is protected by this list: it only tells an attempt to change the server's own files, which ends the
# attempt, from a file that a training happened to write beside its results, which is left where it is.
_SERVER_FILES = re.compile(
    r"(agent|inputs)(/.*)?|traincard/(control\.(json|lock)|lock(\.rank\d+)?)"
    r"|(config|config\.before-\d+|plan|task|brought)\.json|(train|task)\.py|requirements\.txt"
)
_MOST_LEFT_OUT = 100


@dataclass(frozen=True)
class AcceptedPaths:
    """The allow-list of one kind of job. `kept`: paths on it that are as the job's owner brought them."""

    pattern: re.Pattern[str]
    kept: frozenset[str] = frozenset()

    def without(self, names: Iterable[str]) -> "AcceptedPaths":
        return replace(self, kept=self.kept | set(names))

    def __contains__(self, name: str) -> bool:
        return self.pattern.fullmatch(name) is not None and name not in self.kept


TRAINING_PATHS = AcceptedPaths(re.compile(rf"{_REPORTS}|(checkpoints|model)/.+"))
# A person's own script runs in `work`: on this machine only in the sandbox, once something came from another.
SCRIPT_PATHS = AcceptedPaths(re.compile(rf"{_REPORTS}|(checkpoints|model|work)/.+"))


def has_received(run_dir: Path) -> bool:
    """Whether another machine has ever sent something into a run directory."""
    return any((run_dir / ARRIVING).glob("received-*.json"))


class RefusedEntryError(ValueError):
    """An entry asks for something that no agent of ours asks for, or its content is damaged."""


class RunFolder:
    """A run directory that grows from afar. What is not whole yet lies in `.arriving`.

    `left_out`: names that were sent and are not accepted, the first ones of many.
    """

    def __init__(self, run_dir: Path, accepted: AcceptedPaths = TRAINING_PATHS, attempt: int = 1) -> None:
        self._run_dir, self._accepted = run_dir, accepted
        self._exit_record = f"agent/{AgentFiles(run_dir).exit(attempt).name}"
        self.left_out: set[str] = set()
        self.arriving = run_dir / ARRIVING
        self.arriving.mkdir(parents=True, exist_ok=True)

    def apply(self, entry: Mapping[str, Any], content: bytes) -> None:
        """RefusedEntryError when it cannot be; OSError when the disk cannot."""
        names = [str(entry["path"]), *([str(entry["to"])] if entry["kind"] == "rename" else [])]
        # Every name is looked at before anything is done.
        unlisted = [name for name in names if not self._accepts(name)]
        if unlisted:
            if len(self.left_out) < _MOST_LEFT_OUT:
                self.left_out.update(unlisted)
            return
        path = self._place(names[0])
        match entry["kind"]:
            case "whole":
                self._whole(path, content)
            case "grow":
                self._grow(path, int(entry["offset"]), content, fresh=bool(entry.get("fresh")))
            case "rename":
                self._rename(path, self._place(names[1]))
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
            if name not in self._accepted:
                continue
            path = self._place(name)
            if not path.is_file() or path.stat().st_size != size or _hash_of(path) != sha256:
                different.append(name)
        return different

    def _place(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        # One spelling for each file: the lists compare names.
        is_inside = bool(parts) and "/".join(parts) == name and "\\" not in name and "\0" not in name
        if not is_inside or any(part.startswith(".") for part in parts):
            raise RefusedEntryError(f"{name!r} is not the name of a file in a run directory")
        return self._run_dir.joinpath(*parts)

    def _accepts(self, name: str) -> bool:
        """Whether the other side may write a file; RefusedEntryError when it tries what no agent does."""
        self._place(name)
        if name == self._exit_record or name in self._accepted:
            return True
        if _SERVER_FILES.fullmatch(name):
            raise RefusedEntryError(f"{name!r} is not for the other side to write")
        return False

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
