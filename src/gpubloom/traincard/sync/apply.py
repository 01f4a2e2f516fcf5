"""Apply the entries of a delta to a run directory. Applying an entry twice changes nothing.

Names come from another machine and are not trusted. Only a path on the allow-list of the job's kind is
written, renamed or removed; code, configuration and everything else that the server owns is on no list. A
script may have left links in its folder: no entry is applied through one (`traincard.beneath`).
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gpubloom.traincard.safe_paths import (
    look_beneath,
    move_beneath,
    open_beneath,
    parent_beneath,
    remove_beneath,
)
from gpubloom.traincard.sync.files import is_checkpoint_folder, is_inside

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
# What a name or an offset that no agent sends runs into; other errors are the disk's.
_CAUSED_BY_ENTRY = {
    *(errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EINVAL, errno.EFBIG),
    errno.ENAMETOOLONG,
}


@dataclass(frozen=True)
class AcceptedPaths:
    """The allow-list of one kind of job: what matches `pattern`, less `kept`, the files of the job's owner,
    and `added`."""

    pattern: re.Pattern[str]
    kept: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()

    def without(self, names: Iterable[str]) -> "AcceptedPaths":
        return replace(self, kept=self.kept | set(names))

    def including(self, names: Iterable[str]) -> "AcceptedPaths":
        return replace(self, added=self.added | set(names))

    def __contains__(self, name: str) -> bool:
        return name in self.added or (self.pattern.fullmatch(name) is not None and name not in self.kept)


TRAINING_PATHS = AcceptedPaths(re.compile(rf"{_REPORTS}|(checkpoints|model)/.+"))
# A person's own script runs in `work`; once another machine has sent files, only in the sandbox here.
SCRIPT_PATHS = AcceptedPaths(re.compile(rf"{_REPORTS}|(checkpoints|model|work)/.+"))


def has_received(run_dir: Path) -> bool:
    """Whether another machine has ever sent something into a run directory."""
    return any((run_dir / ARRIVING).glob("received-*.json"))


@contextmanager
def replacing(path: Path, *, modified_ns: int | None = None) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when the block ends; an exception leaves `path` as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.arriving")
    try:
        with temporary.open("wb") as file:
            yield file
        if modified_ns is not None:
            os.utime(temporary, ns=(modified_ns, modified_ns))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class RefusedEntryError(ValueError):
    """An entry asks for something that no agent of ours asks for, or its content is damaged."""


class RunFolder:
    """A run directory that another machine fills. What is not complete yet lies in `.arriving`.

    `left_out`: names that were sent and are not accepted, the first ones of many.
    """

    def __init__(self, run_dir: Path, accepted: AcceptedPaths = TRAINING_PATHS) -> None:
        self._run_dir, self._accepted = run_dir, accepted
        self.left_out: set[str] = set()
        self.arriving = run_dir / ARRIVING
        self.arriving.mkdir(parents=True, exist_ok=True)

    def apply(self, entry: Mapping[str, Any], content: bytes) -> None:
        """RefusedEntryError when it cannot be; OSError when the disk cannot."""
        names = [str(entry["path"]), *([str(entry["to"])] if entry["kind"] == "rename" else [])]
        # Every name is checked before anything is done.
        unlisted = [name for name in names if not self._accepts(name)]
        if unlisted:
            if len(self.left_out) < _MOST_LEFT_OUT:
                self.left_out.update(unlisted)
            return
        try:
            self._do(entry, names, content)
        except OSError as problem:
            if problem.errno in _CAUSED_BY_ENTRY:
                raise RefusedEntryError(f"{names[-1]!r} cannot be reached: {problem.strerror}") from None
            raise

    def _do(self, entry: Mapping[str, Any], names: list[str], content: bytes) -> None:
        name = names[0]
        match entry["kind"]:
            case "whole":
                self._whole(name, content)
            case "grow":
                self._grow(name, int(entry["offset"]), content, fresh=bool(entry.get("fresh")))
            case "rename":
                self._rename(name, names[1])
            case "part":
                self._write_at(_staged(name), int(entry["offset"]), content, os.O_CREAT)
            case "done":
                self._done(name, int(entry["total"]), str(entry["sha256"]))
            case "abandon":
                remove_beneath(self._run_dir, _staged(name))
            case "folder":
                self._folder(name)
            case "remove":
                self._remove(name)
            case kind:
                raise RefusedEntryError(f"unknown kind of entry {kind!r}; update gpubloom")

    def differences(self, tree: Mapping[str, Any]) -> list[str]:
        """Names of files that differ from the sender's files."""
        different = []
        for name, (size, sha256) in sorted(tree.items()):
            if name not in self._accepted:
                continue
            _must_be_inside(name)
            try:
                is_same = self._size(name) == size and self._hash_of(name) == sha256
            except (OSError, RefusedEntryError):
                # A link, or something else that no machine sent.
                is_same = False
            if not is_same:
                different.append(name)
        return different

    def _accepts(self, name: str) -> bool:
        """Whether the sender may write a file; RefusedEntryError when it tries what no agent does."""
        _must_be_inside(name)
        if name in self._accepted:
            return True
        if _SERVER_FILES.fullmatch(name):
            raise RefusedEntryError(f"the sender is not allowed to write {name!r}")
        return False

    def _whole(self, name: str, content: bytes) -> None:
        temporary = f"{ARRIVING}/.whole"
        remove_beneath(self._run_dir, temporary)
        self._write_at(temporary, 0, content, os.O_CREAT | os.O_EXCL)
        move_beneath(self._run_dir, temporary, name)

    def _grow(self, name: str, offset: int, content: bytes, *, fresh: bool) -> None:
        if fresh:
            self._whole(name, content)
            return
        size = self._size(name)
        if size is None or size < offset:
            raise RefusedEntryError(f"{name!r} should already have {offset} bytes, but has {size or 0}")
        self._write_at(name, offset, content)

    def _rename(self, name: str, target: str) -> None:
        # A sealed event stream, a rotated log: nothing that an agent renames changes its folder at the top.
        if name.partition("/")[0] != target.partition("/")[0]:
            raise RefusedEntryError(f"{name!r} cannot be renamed to {target!r}")
        if self._size(name) is not None:
            move_beneath(self._run_dir, name, target)
        elif self._size(target) is None:
            raise RefusedEntryError(f"the file {name!r} to rename does not exist")

    def _done(self, name: str, size: int, sha256: str) -> None:
        staged = _staged(name)
        arrived = self._size(staged)
        if arrived is None and self._size(name) is not None and self._hash_of(name) == sha256:
            return
        if arrived is None or arrived < size:
            raise RefusedEntryError(f"parts of {name!r} are missing")
        # An earlier try of the same file may have been longer.
        descriptor = open_beneath(self._run_dir, staged, os.O_WRONLY)
        try:
            os.truncate(descriptor, size)
        finally:
            os.close(descriptor)
        if self._hash_of(staged) != sha256:
            raise RefusedEntryError(f"{name!r} is damaged: its SHA-256 differs")
        if not self._is_awaited(name):
            move_beneath(self._run_dir, staged, name)

    def _is_awaited(self, name: str) -> bool:
        """Whether a file belongs to a checkpoint folder that is not complete yet."""
        parts = name.split("/")
        is_in_folder = parts[0] == "checkpoints" and len(parts) > 2
        return is_in_folder and look_beneath(self._run_dir, "/".join(parts[:2])) is None

    def _folder(self, name: str) -> None:
        if not is_checkpoint_folder(name):
            raise RefusedEntryError(f"{name!r} is not a checkpoint folder")
        facts = look_beneath(self._run_dir, name)
        if facts is not None and not stat.S_ISDIR(facts.st_mode):
            raise RefusedEntryError(f"{name!r} is not a folder on this machine")
        if facts is not None:
            return
        if look_beneath(self._run_dir, _staged(name)) is not None:
            move_beneath(self._run_dir, _staged(name), name)
        else:
            with parent_beneath(self._run_dir, name, make=True) as (parent, last):
                os.mkdir(last, dir_fd=parent)

    def _remove(self, name: str) -> None:
        # Only what retention rotates is a folder; other folders lose their files one by one.
        is_folder = is_checkpoint_folder(name)
        for path in (name, _staged(name)):
            remove_beneath(self._run_dir, path, folder=is_folder)

    def _size(self, name: str) -> int | None:
        """None: there is no such file. RefusedEntryError: something else is in its place."""
        facts = look_beneath(self._run_dir, name)
        if facts is None:
            return None
        if not stat.S_ISREG(facts.st_mode):
            raise RefusedEntryError(f"{name!r} is not a regular file on this machine")
        return facts.st_size

    def _write_at(self, name: str, offset: int, content: bytes, flags: int = 0) -> None:
        descriptor = open_beneath(self._run_dir, name, os.O_WRONLY | flags, make=bool(flags))
        try:
            written = 0
            while written < len(content):
                written += os.pwrite(descriptor, content[written:], offset + written)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _hash_of(self, name: str) -> str:
        with os.fdopen(open_beneath(self._run_dir, name), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _staged(name: str) -> str:
    return f"{ARRIVING}/{name}"


def _must_be_inside(name: str) -> None:
    parts = PurePosixPath(name).parts
    # One spelling for each file: the lists compare names.
    is_plain = bool(parts) and "/".join(parts) == name and is_inside(name)
    if not is_plain or any(part.startswith(".") for part in parts):
        raise RefusedEntryError(f"{name!r} is not a valid file name in a run directory")
