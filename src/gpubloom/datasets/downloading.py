"""One file over HTTP, whole and checked, or a sentence: broken connections are taken up where they broke.

What arrived stays in a hidden file until it is whole. It is only continued when nothing can have changed
meanwhile: the source gives it a tag, or its SHA-256 is known.
"""

import errno
import fcntl
import hashlib
import http.client
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.downloads import opener
from gpubloom.errors import InputError
from gpubloom.traincard.retry import is_host_not_found

# Bytes that are there, and bytes that there will be, where anybody knows.
FetchProgress = Callable[[int, int | None], None]
# What a person should know while a download waits.
Tell = Callable[[str], None]
_PIECE = 1 << 18
_TIMEOUT_SECONDS = 60.0
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# A disk that is full to the last byte stops everything else on the machine.
_LEFT_FREE = 64 << 20


class FetchProblem(InputError):
    """A file cannot be fetched."""


@dataclass(frozen=True)
class Remote:
    """A file somewhere, as far as it is known."""

    address: str
    sha256: str | None = None
    bytes: int | None = None
    # For this host only, not where it redirects to.
    token: str = field(default="", repr=False)
    # Whether the address itself is one that the operator chose, which may lie in a private network.
    listed: bool = True


class _Cut(Exception):
    """The connection ended before the file did."""


def tell_on_stderr(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def download(
    remote: Remote, target: Path, progress: FetchProgress | None = None, tell: Tell = tell_on_stderr
) -> tuple[str, int]:
    """SHA-256 and size of what is in `target` then. A wrong file is deleted, a broken one is kept."""
    tried = 0
    while True:
        before = _size(target)
        try:
            _more(remote, target, progress)
            break
        except _Cut as cut:
            # What brings bytes each time may break as often as it likes.
            tried = 0 if _size(target) > before else tried + 1
            if tried >= len(_PAUSES):
                advice = "Start again: what has arrived is kept." if before else "Check the connection."
                raise FetchProblem(
                    "no_network", f"{remote.address} cannot be downloaded: {cut} {advice}"
                ) from None
            if tried == 1:
                seconds = sum(_PAUSES[1:])
                tell(f"{remote.address} cannot be downloaded: {cut} Trying again for up to {seconds:g} s.")
            time.sleep(_PAUSES[tried])
    digest, size = digest_of(target), _size(target)
    if remote.sha256 is not None and digest != remote.sha256:
        target.unlink()
        _tag(target).unlink(missing_ok=True)
        raise FetchProblem(
            "damaged",
            f"{remote.address} is not the expected file: its SHA-256 is {digest}, not {remote.sha256}.",
        )
    _tag(target).unlink(missing_ok=True)
    return digest, size


def _more(remote: Remote, target: Path, progress: FetchProgress | None) -> None:
    have = _size(target)
    tag = _tag(target).read_text() if _tag(target).is_file() else ""
    if have and not tag and remote.sha256 is None:
        target.unlink()
        have = 0
    headers = {"User-Agent": "gpubloom", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if tag:
            headers["If-Range"] = tag
    request = urllib.request.Request(remote.address, headers=headers)  # noqa: S310 - checked by the opener
    if remote.token:
        request.add_unredirected_header("Authorization", f"Bearer {remote.token}")
    # A listed address is in our table or in that of the operator; where it redirects to is not.
    opening = opener(Policy.of_operator(*([remote.address] if remote.listed else [])))
    try:
        with opening.open(request, timeout=_TIMEOUT_SECONDS) as response:
            _store(response, have, remote, target, progress)
    except urllib.error.HTTPError as problem:
        with problem:
            _refused(problem, remote, target, have)
    except EgressRefused as problem:
        raise FetchProblem("egress_refused", f"{remote.address} cannot be downloaded. {problem}") from None
    except urllib.error.URLError as problem:
        # What has begun to arrive comes from a host that exists.
        if is_host_not_found(problem.reason) and not have:
            raise FetchProblem(
                "host_not_found",
                f"{remote.address} cannot be downloaded: no host has the name in this address, or that of "
                "the proxy. Check the spelling.",
            ) from None
        if isinstance(problem.reason, ssl.SSLCertVerificationError):
            raise FetchProblem(
                "certificate_invalid",
                f"{remote.address} cannot be downloaded: {problem.reason.verify_message}. Check the address, "
                "and the clock of this machine.",
            ) from None
        raise _Cut(f"{problem.reason}.") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError) as problem:
        raise _Cut(f"{type(problem).__name__}.") from None


def _store(response: Any, have: int, remote: Remote, target: Path, progress: FetchProgress | None) -> None:
    continues = response.status == 206
    if continues and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        target.unlink()
        raise _Cut("The server sent the wrong part of the file.")
    start = have if continues else 0
    told = response.headers.get("Content-Length")
    total = start + int(told) if told and told.isdecimal() else remote.bytes
    if remote.bytes is not None and total is not None and total != remote.bytes and remote.sha256 is not None:
        target.unlink(missing_ok=True)
        raise FetchProblem(
            "damaged",
            f"{remote.address} has {total:,} bytes, but the expected file has {remote.bytes:,}.",
        )
    if total is not None:
        must_have_room(target.parent, total - start, remote.address)
    # A weak tag says that two files mean the same, not that their bytes are the same.
    tag = response.headers.get("ETag") or ""
    _tag(target).write_text("" if tag.startswith("W/") else tag)
    with target.open("r+b" if continues else "wb") as file:
        file.seek(start)
        done = _pour(response, file, start, total, progress)
    if total is not None and done < total:
        raise _Cut(f"The connection broke after {done:,} of {total:,} bytes.")


def _pour(
    response: Any, file: IO[bytes], done: int, total: int | None, progress: FetchProgress | None
) -> int:
    try:
        # What has come, not a whole piece: a source that sends a byte a minute must not keep a caller from
        # stopping.
        while piece := response.read1(_PIECE):
            file.write(piece)
            done += len(piece)
            if progress is not None:
                progress(done, total)
    except http.client.IncompleteRead as cut:
        file.write(cut.partial)
        raise _Cut(f"The connection broke after {done + len(cut.partial):,} bytes.") from None
    return done


def _refused(problem: urllib.error.HTTPError, remote: Remote, target: Path, have: int) -> None:
    if problem.code == 416 and have:
        told = problem.headers.get("Content-Range", "").rpartition("/")[2]
        if told == str(have):
            return  # It was whole already.
        target.unlink()
        raise _Cut("The file on the server is now shorter than the downloaded part.")
    if problem.code in {408, 429} or problem.code >= 500:
        raise _Cut(f"The server responded with HTTP status {problem.code}.")
    if problem.code in {404, 410}:
        raise FetchProblem("not_found", f"The file {remote.address} does not exist.")
    raise FetchProblem(
        "refused", f"The server refused the download of {remote.address}: HTTP status {problem.code}."
    )


def must_have_room(folder: Path, needed: int, what: str, problem: type[InputError] = FetchProblem) -> None:
    """Raises `problem` when the disk of a folder has no room for so many more bytes."""
    free = shutil.disk_usage(folder).free
    if needed + min(_LEFT_FREE, needed) > free:
        raise problem(
            "disk_full",
            f"{what} needs {needed / 1e9:,.3f} GB, but only {free / 1e9:,.3f} GB of disk space are free: "
            "free some space.",
        )


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def fetching_alone(folder: Path) -> Iterator[None]:
    """One process at a time fetches into a folder; the others wait, and then find it done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """Within it, a full or forbidden disk becomes a sentence. What had arrived goes: a disk that is full to
    the last byte stops everything else."""
    try:
        yield
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            for part in folder.glob(".*.part"):
                part.unlink(missing_ok=True)
            raise FetchProblem(
                "disk_full", f"The disk of {folder} is full: delete files to make space."
            ) from None
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FetchProblem(
                "cannot_write", f"The folder {folder} cannot be written to: {problem.strerror}."
            ) from None
        raise


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _tag(target: Path) -> Path:
    return target.with_name(f"{target.name}.tag")
