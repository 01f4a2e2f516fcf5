"""How the agent reaches its store: requests to presigned addresses, or files of a mounted volume.

A presigned address is a secret of its own: no message here repeats one.
"""

import hashlib
import http
import http.client
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any, Protocol

from gpubloom.traincard.sync.apply import replacing
from gpubloom.traincard.sync.files import is_inside

# What stands behind it is the name of a file in the volume that is mounted in the folder of this variable.
VOLUME_SCHEME = "volume:"
VOLUME_VARIABLE = "BLOOM_VOLUME"

_SECONDS = 60.0
_SYNC_SECONDS = 300.0
_CHUNK_BYTES = 1 << 20
# A store behind Cloudflare, such as a server with a public address, refuses the name of Python's own library.
_USER_AGENT = "gpubloom"
# Answers that say "later" rather than "no".
_LATER = {408, 425, 429}


class Unavailable(Exception):
    """The bucket does not answer, or asks to try later."""


class Rejected(Exception):
    """The bucket does not accept this address (any more)."""


class DamagedError(Exception):
    """What was fetched is not what was stored."""


class Link(Protocol):
    """What the agent needs of a network."""

    def get(self, address: str) -> bytes: ...

    def put(self, address: str, body: bytes) -> None: ...

    def fetch(self, address: str, path: Path, sha256: str) -> None:
        """To a file, complete and checked, or not at all. Called again, it goes on where it stopped."""


class HttpLink:
    """Unavailable, Rejected or DamagedError when a request fails."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds

    def get(self, address: str) -> bytes:
        with self._open(urllib.request.Request(address)) as answer:  # noqa: S310 - checked in _open
            return _read(answer)

    def put(self, address: str, body: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        if {"sv", "sig"} <= urllib.parse.parse_qs(urllib.parse.urlsplit(address).query).keys():
            # Azure's signature does not say what kind of object it is for.
            headers["x-ms-blob-type"] = "BlockBlob"
        request = urllib.request.Request(  # noqa: S310 - checked in _open
            address, data=body, method="PUT", headers=headers
        )
        with self._open(request) as answer:
            _read(answer)

    def fetch(self, address: str, path: Path, sha256: str) -> None:
        # Named by its content: what an earlier call, or an agent that was killed, left is of the same file.
        part = path.with_name(f".{sha256}.part")
        with part.open("ab+") as file:
            digest = self._append(address, file)
        if digest != sha256:
            part.unlink()
            raise DamagedError(f"{path.name} is damaged: its SHA-256 differs from the stored file.")
        part.replace(path)

    def _append(self, address: str, file: IO[bytes]) -> str:
        """What the file lacks; the digest of all of it."""
        digest = hashlib.sha256()
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
        with self._open_from(address, file.tell()) as answer:
            if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                digest = hashlib.sha256()
                file.truncate(0)
            while chunk := _read(answer, _CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            # Python says nothing of a connection that was closed too early.
            if answer.length:
                raise Unavailable("the connection broke before the end of the file")
        return digest.hexdigest()

    def _open_from(self, address: str, begin: int) -> Any:
        """The rest of an object, or all of it from a store that does not give parts."""
        request = urllib.request.Request(address)  # noqa: S310 - checked in _open
        if begin:
            request.add_header("Range", f"bytes={begin}-")
            try:
                return self._open(request)
            except Rejected:
                # There is nothing after `begin`, for example. Expired addresses are rejected again.
                request = urllib.request.Request(address)  # noqa: S310 - checked in _open
        return self._open(request)

    def _open(self, request: urllib.request.Request) -> Any:
        if request.type not in {"http", "https"}:
            raise Rejected("the address does not use http or https")
        request.add_header("User-Agent", _USER_AGENT)
        try:
            return urllib.request.urlopen(request, timeout=self._seconds)  # noqa: S310 - checked above
        except urllib.error.HTTPError as problem:
            with problem:
                code = problem.code
            if code >= 500 or code in _LATER:
                raise Unavailable(f"the bucket answered with status {code}") from None
            raise Rejected(f"the bucket refused the request with status {code}") from None
        except (OSError, http.client.HTTPException) as problem:
            reason = getattr(problem, "reason", problem)
            raise Unavailable(f"the bucket cannot be reached ({type(reason).__name__})") from None


class VolumeLink:
    """The same with the files of a mounted volume. `sync` on its folder makes what was written visible
    elsewhere: some volumes show nothing before that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, address: str) -> bytes:
        try:
            return self._path(address).read_bytes()
        except OSError as problem:
            raise Unavailable(f"a file of the volume cannot be read ({type(problem).__name__})") from None

    def put(self, address: str, body: bytes) -> None:
        path = self._path(address)
        temporary = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(body)
            temporary.replace(path)
            # By its name: it is that of the machine, wherever it is.
            command = ["sync", str(self._folder)]
            subprocess.run(command, check=True, timeout=_SYNC_SECONDS)
        except (OSError, subprocess.SubprocessError) as problem:
            raise Unavailable(f"the volume cannot be written ({type(problem).__name__})") from None

    def fetch(self, address: str, path: Path, sha256: str) -> None:
        try:
            source = self._path(address).open("rb")
        except OSError as problem:
            raise Unavailable(f"a file of the volume cannot be read ({type(problem).__name__})") from None
        with source, replacing(path) as file:
            shutil.copyfileobj(source, file, _CHUNK_BYTES)
            source.seek(0)
            if hashlib.file_digest(source, "sha256").hexdigest() != sha256:
                raise DamagedError(f"{path.name} is damaged: its SHA-256 differs from the stored file.")

    def _path(self, address: str) -> Path:
        name = address.removeprefix(VOLUME_SCHEME)
        if not is_inside(name):
            raise Rejected("the address is outside the volume")
        return self._folder / name


class StoreLink:
    """The link that an address asks for."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._http = HttpLink(seconds)

    def get(self, address: str) -> bytes:
        return self._of(address).get(address)

    def put(self, address: str, body: bytes) -> None:
        self._of(address).put(address, body)

    def fetch(self, address: str, path: Path, sha256: str) -> None:
        self._of(address).fetch(address, path, sha256)

    def _of(self, address: str) -> Link:
        folder = os.environ.get(VOLUME_VARIABLE, "")
        if not address.startswith(VOLUME_SCHEME):
            return self._http
        if not folder:
            raise Rejected("no volume is mounted on this machine")
        return VolumeLink(Path(folder))


def _read(answer: Any, size: int = -1) -> bytes:
    try:
        content: bytes = answer.read() if size < 0 else answer.read(size)
    except (OSError, http.client.HTTPException) as problem:
        raise Unavailable(f"the connection broke ({type(problem).__name__})") from None
    return content
