"""Apply the entries of a delta to a run directory. Applying an entry twice changes nothing.

Names come from another machine and are not trusted. Only a path on the allow-list of the job's kind is
written, renamed or removed (`traincard.sync.accepted`); code, configuration and everything else that the
server owns is on no list. A script may have left links in its folder: no entry is applied through one, and
none into a file with a second name (`traincard.safe_paths`).
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from gpubloom.traincard.safe_paths import (
    look_beneath,
    move_beneath,
    open_beneath,
    parent_beneath,
    remove_beneath,
    replace_beneath,
    walk_beneath,
)
from gpubloom.traincard.sync.accepted import AcceptedPaths, Entry, Limits, RefusedEntryError, is_accepted
from gpubloom.traincard.sync.files import is_checkpoint_folder, is_valid_name
from gpubloom.traincard.sync.upload_batch import UploadBatch

ARRIVING = ".arriving"
_MOST_LEFT_OUT = 100
# Faults of this machine. Any other error of the file system comes from an entry that no agent sends.
_OF_THIS_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
    *(errno.EINTR, errno.ESTALE),
}
# Linked to files outside of the run directory, or not what a machine sends.
_NOT_COUNTED = {"inputs"}


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


class RunFolder:
    """A run directory that another machine fills. What is not complete yet lies in `.arriving`.

    `left_out`: names that were sent and are not accepted, the first ones of many.
    """

    def __init__(self, run_dir: Path, accepted: AcceptedPaths, limits: Limits | None = None) -> None:
        self._run_dir, self._accepted, self._limits = run_dir, accepted, limits or Limits()
        self.left_out: set[str] = set()
        run_dir.mkdir(parents=True, exist_ok=True)
        # At least as much as there is: counted again when it seems too much.
        self._files, self._bytes = _count(run_dir)

    def keep(self, name: str, text: str) -> None:
        """Writes a note of the receiver beside what is not complete yet."""
        replace_beneath(self._run_dir, _staged(name), text)

    def checked(self, batch: UploadBatch) -> list[tuple[Entry, bytes]]:
        """The entries with their bytes. RefusedEntryError, before anything is stored: one is not valid."""
        if len(batch.entries) > self._limits.entries:
            raise RefusedEntryError(f"the batch has more than {self._limits.entries} entries")
        checked, offset = [], 0
        for given in batch.entries:
            entry = Entry.parse(given)
            content = batch.body[offset : offset + entry.size]
            if len(content) != entry.size:
                raise RefusedEntryError("the entries and the content do not match")
            offset += entry.size
            self._is_wanted(entry)
            checked.append((entry, content))
        if offset != len(batch.body):
            raise RefusedEntryError("the entries and the content do not match")
        return checked

    def _is_wanted(self, entry: Entry) -> bool:
        """Whether the sender may write these names; others are noted in `left_out`, or refused."""
        unlisted = [name for name in entry.names if not is_accepted(name, self._accepted)]
        if len(self.left_out) < _MOST_LEFT_OUT:
            self.left_out.update(unlisted)
        return not unlisted

    def apply(self, entry: Entry, content: bytes) -> None:
        """RefusedEntryError when it cannot be; OSError when the disk cannot."""
        if not self._is_wanted(entry):
            return
        self._make_room(entry, len(content))
        try:
            self._do(entry, content)
        except OSError as problem:
            if problem.errno in _OF_THIS_MACHINE:
                raise
            reason = problem.strerror or str(problem)
            raise RefusedEntryError(f"{entry.names[-1]!r} cannot be reached: {reason}") from None

    def _make_room(self, entry: Entry, size: int) -> None:
        limits = self._limits
        # With the folders on the way to it.
        added = entry.names[-1].count("/") + 2
        if self._files + added > limits.run_files or self._bytes + size > limits.run_bytes:
            self._files, self._bytes = _count(self._run_dir)
        self._files += added
        self._bytes += size
        if size and self._bytes > limits.run_bytes:
            raise RefusedEntryError(f"the run would be larger than {limits.run_bytes} bytes")
        if self._files > limits.run_files and entry.kind not in {"remove", "abandon"}:
            raise RefusedEntryError(f"the run would have more than {limits.run_files} files")

    def _do(self, entry: Entry, content: bytes) -> None:
        name = entry.path
        match entry.kind:
            case "whole":
                self._whole(name, content)
            case "grow":
                self._grow(name, entry.offset, content, fresh=entry.fresh)
            case "rename":
                self._rename(name, entry.to)
            case "part":
                self._part(name, entry.offset, content)
            case "done":
                self._done(name, entry.total, entry.sha256)
            case "abandon":
                remove_beneath(self._run_dir, _staged(name))
            case "folder":
                self._folder(name)
            case "remove":
                self._remove(name)

    def differences(self, tree: Mapping[str, Sequence[Any]]) -> list[str]:
        """Names of files that differ from the sender's files."""
        different = []
        for name, (size, sha256) in sorted(tree.items()):
            if not is_valid_name(name):
                raise RefusedEntryError("the list of files names one that cannot be in a run directory")
            if name not in self._accepted:
                continue
            try:
                is_same = self._size(name) == size and self._hash_of(name) == sha256
            except (OSError, RefusedEntryError):
                # Not there, a link, or something else that no machine sent.
                is_same = False
            if not is_same:
                different.append(name)
        return different

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
        if self._size(name) is not None:
            move_beneath(self._run_dir, name, target)
        elif self._size(target) is None:
            raise RefusedEntryError(f"the file {name!r} to rename does not exist")

    def _part(self, name: str, offset: int, content: bytes) -> None:
        staged = _staged(name)
        # Without a hole: one that is read back as zeros takes hours and no bytes to send.
        if offset > (self._size(staged) or 0):
            raise RefusedEntryError(f"parts of {name!r} before byte {offset} are missing")
        self._write_at(staged, offset, content, os.O_CREAT)

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
        facts = look_beneath(self._run_dir, name)
        if facts is not None and not stat.S_ISDIR(facts.st_mode):
            raise RefusedEntryError(f"{name!r} is not a folder on this machine")
        if facts is not None:
            return
        if (staged := look_beneath(self._run_dir, _staged(name))) is not None:
            if not stat.S_ISDIR(staged.st_mode):
                raise RefusedEntryError(f"{name!r} did not arrive as a folder")
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


def _count(run_dir: Path) -> tuple[int, int]:
    """How many files and folders a run has, and how many bytes. Links are not followed."""
    files = size = 0
    for name, facts in walk_beneath(run_dir):
        if name.partition("/")[0] not in _NOT_COUNTED:
            files += 1
            size += facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return files, size
