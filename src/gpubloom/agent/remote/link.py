"""Requests to presigned addresses. An address is a secret of its own: no message here repeats one."""

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from gpubloom.traincard.sync.apply import replacing

_SECONDS = 60.0
_CHUNK_BYTES = 1 << 20
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
        """To a file, complete and checked, or not at all."""


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
        digest = hashlib.sha256()
        with (
            self._open(urllib.request.Request(address)) as answer,  # noqa: S310 - checked in _open
            replacing(path) as file,
        ):
            while chunk := _read(answer, _CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != sha256:
                raise DamagedError(f"{path.name} is damaged: its SHA-256 differs from the stored file.")

    def _open(self, request: urllib.request.Request) -> Any:
        if request.type not in {"http", "https"}:
            raise Rejected("the address does not use http or https")
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


def _read(answer: Any, size: int = -1) -> bytes:
    try:
        content: bytes = answer.read() if size < 0 else answer.read(size)
    except (OSError, http.client.HTTPException) as problem:
        raise Unavailable(f"the connection broke ({type(problem).__name__})") from None
    return content
