"""This server as the store of rented jobs: files in a folder, and signed addresses of its own HTTP route.

The worker puts and takes files in the folder directly. A rented instance has addresses only. An address is
signed for one method, one name, one time and one largest size; `opened` checks it, and the route that serves
it (`server/rentals/run_files.py`) checks all else: that the attempt still runs, the quota, the disk.

A name is one of `JobLayout`. An address can write upload batches and the report of the start, and
nothing else, whatever was signed.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self
from urllib.parse import quote, urlencode
from uuid import uuid4

from gpubloom.errors import InputError
from gpubloom.storage.run_store import LONGEST_LIFE_SECONDS, Method
from gpubloom.storage.store import StorageError
from gpubloom.traincard.sync.accepted import Limits

ROUTE = "/api/run-files"
_PIECE_BYTES = 1 << 20
# What a machine says of its start.
_LARGEST_REPORT = 1 << 20
_JOB = r"jobs/(?P<job>[A-Za-z0-9][A-Za-z0-9_-]{0,99})"
# What an address may write, and what it may read.
_WRITABLE = re.compile(_JOB + r"/a(?P<attempt>\d{4,9})/(?:in/\d{8}|start-report)")
_READABLE = re.compile(
    _JOB
    + r"/(?:a(?P<attempt>\d{4,9})/(?:mailbox|control)\.json"
    + r"|bundle/(?:[0-9a-f]{64}|start-(?P<started>\d{1,9})-[0-9a-f]{16}\.py))"
)
_NAME = re.compile(r"jobs(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}){0,6}")


class IncomingFile:
    """Takes its name when it is complete and on the disk, and leaves nothing behind otherwise.

    Hidden until then: `sizes` does not list it, and no address names it.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path
        self._temporary = path.with_name(f".{path.name[:80]}.{uuid4().hex}")
        self._file = self._temporary.open("xb")

    def write(self, piece: bytes) -> int:
        return self._file.write(piece)

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._temporary.replace(self._path)

    def close(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AddressRefused(InputError):
    """An address that was not signed here, was changed, or has expired."""


@dataclass(frozen=True)
class OpenedAddress:
    """What a valid address is for. `attempt`: None for files that all attempts of a job share."""

    name: str
    job_id: str
    attempt: int | None
    most_bytes: int


class ServerStore:
    """`sign` and `has_signed` belong to one installation (`Vault`). `clock`: seconds since 1970."""

    def __init__(
        self,
        folder: Path,
        public_url: str,
        sign: Callable[[str], str],
        has_signed: Callable[[str, str], bool],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._public_url, self._clock = folder, public_url.rstrip("/"), clock
        self._sign, self._has_signed = sign, has_signed

    def path(self, name: str) -> Path:
        """Where an object is. Names come from `JobLayout`; another one is refused."""
        if _NAME.fullmatch(name) is None or ".." in name.split("/"):
            raise StorageError("invalid_object_name", f"{name[:200]!r} is not a name in the store of runs.")
        return self._folder / name

    def put(self, name: str, content: bytes | Path | BinaryIO) -> None:
        with _storage_errors("written", name), self.begin(name) as file:
            if isinstance(content, bytes):
                file.write(content)
            elif isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, _PIECE_BYTES)
            else:
                shutil.copyfileobj(content, file, _PIECE_BYTES)
            file.finish()

    def put_files(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self.put(name, path)

    def begin(self, name: str) -> "IncomingFile":
        """A file that is written piece by piece."""
        return IncomingFile(self.path(name))

    def get(self, name: str, *, most: int | None = None) -> bytes | None:
        with _storage_errors("read", name):
            try:
                with self.path(name).open("rb") as file:
                    if most is not None and os.fstat(file.fileno()).st_size > most:
                        return None
                    return file.read()
            except FileNotFoundError:
                return None

    def has(self, name: str) -> bool:
        with _storage_errors("looked up", name):
            return self.path(name).is_file()

    def sizes(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        top = self.path(folder.rstrip("/"))
        with _storage_errors("listed", folder):
            for parent, _, files in os.walk(top):
                for file in files:
                    if file.startswith("."):
                        continue
                    path = Path(parent, file)
                    try:
                        found[path.relative_to(self._folder).as_posix()] = path.stat().st_size
                    except FileNotFoundError:
                        # Deleted since it was listed.
                        continue
        return found

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with _storage_errors("deleted", name):
                self.path(name).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        top = self.path(folder.rstrip("/"))
        with _storage_errors("deleted", folder):
            try:
                shutil.rmtree(top)
            except FileNotFoundError:
                return

    def addresses(self, method: Method, names: Sequence[str], life_seconds: float) -> list[str]:
        if not 0 < life_seconds <= LONGEST_LIFE_SECONDS:
            raise InputError(
                "invalid_argument",
                f"{life_seconds} seconds is not allowed: a signed address is valid for at most one week",
            )
        expires = int(self._clock() + life_seconds)
        return [self._address(method, name, expires, _largest(method, name)) for name in names]

    def opened(self, method: Method, name: str, expires: str, size: str, signature: str) -> OpenedAddress:
        """What an address allows. AddressRefused: it was not signed here, was changed, or is over."""
        match = (_WRITABLE if method == "PUT" else _READABLE).fullmatch(name)
        numbers = expires.isdecimal() and size.isdecimal() and len(expires) <= 12 and len(size) <= 15
        if (
            match is None
            or not numbers
            or not self._has_signed(_text(method, name, int(expires), int(size)), signature)
        ):
            raise AddressRefused("address_invalid", "This address is not valid, or it was changed.")
        if self._clock() > int(expires):
            raise AddressRefused("address_expired", "This address has expired.")
        groups = match.groupdict()
        attempt = groups.get("attempt") or groups.get("started")
        return OpenedAddress(name, groups["job"], None if attempt is None else int(attempt), int(size))

    def _address(self, method: Method, name: str, expires: int, size: int) -> str:
        query = urlencode(
            {"expires": expires, "size": size, "signature": self._sign(_text(method, name, expires, size))}
        )
        return f"{self._public_url}{ROUTE}/{quote(name)}?{query}"


def _largest(method: Method, name: str) -> int:
    """How many bytes an address takes."""
    if method == "GET":
        return 0
    return Limits().batch_bytes if "/in/" in name else _LARGEST_REPORT


def _text(method: str, name: str, expires: int, size: int) -> str:
    return f"{method}\n{name}\n{expires}\n{size}"


@contextmanager
def _storage_errors(done: str, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else type(problem).__name__
        raise StorageError(
            "store_unavailable", f"{name} in the store of runs cannot be {done}: {reason}."
        ) from problem
