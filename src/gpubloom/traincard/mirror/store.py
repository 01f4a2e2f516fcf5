"""The bucket: obstore opened by address, with limits that suit a thread which must be able to stop.

Credentials and endpoint come from the environment, as each provider names them: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL; GOOGLE_APPLICATION_CREDENTIALS,
GOOGLE_SERVICE_ACCOUNT_KEY, GOOGLE_BASE_URL; AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY,
AZURE_STORAGE_ENDPOINT.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from gpubloom.errors import CodedError

_SCHEMES = ("s3", "gs", "az")
_ENDPOINTS = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL_S3",
    "AZURE_STORAGE_ENDPOINT",
    "GOOGLE_BASE_URL",
)
# A request that takes longer is given up and tried again.
_REQUEST_SECONDS = 20
_PART_BYTES = 5 << 20
# S3 and Google Cloud Storage take no more; Azure takes 50,000.
_MOST_PARTS = 10_000
# Parts share the uplink, and each has to arrive within a request's time: 8 Mbit/s are enough here and 3 for
# the store of rented jobs, which waits a minute. The library's own twelve parts at once would need 25 and 8.
_BYTES_AT_ONCE = 20 << 20
_FIRST_LINE_BYTES = 1 << 16


class MirrorError(CodedError):
    """The mirror cannot work as asked; the message says what to change."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class StoredObject:
    """What a listing says of an object."""

    size: int
    modified: datetime


def in_parts(size: int) -> dict[str, int]:
    """How obstore uploads so many bytes: in parts of 5 MiB, and in larger ones if they would be too many."""
    needed = -(-size // _MOST_PARTS)
    part = max(_PART_BYTES, -(-needed >> 20) << 20)
    return {"chunk_size": part, "max_concurrency": max(1, _BYTES_AT_ONCE // part)}


class Bucket:
    """One folder of a bucket. All calls wait; failures are obstore's exceptions or OSError."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        check_url(url)
        try:
            from obstore.store import from_url
        except ModuleNotFoundError as missing:
            raise MirrorError(
                "not_installed",
                "Mirroring needs the package obstore. Install it with: pip install 'gpubloom[mirror]'",
            ) from missing
        plain_http = any(environment.get(name, "").startswith("http://") for name in _ENDPOINTS)
        try:
            self._store: Any = from_url(
                url,
                client_options={
                    "timeout": timedelta(seconds=_REQUEST_SECONDS),
                    "connect_timeout": timedelta(seconds=5),
                    "allow_http": plain_http,
                },
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_REQUEST_SECONDS)},
            )
        except Exception as problem:
            raise MirrorError(
                "bucket_unavailable", f"{url} cannot be opened: {first_line(problem)}"
            ) from problem

    def objects(self) -> dict[str, StoredObject]:
        """Everything in the folder, by path."""
        found: dict[str, StoredObject] = {}
        for page in self._store.list():
            for entry in page:
                found[entry["path"]] = StoredObject(entry["size"], entry["last_modified"])
        return found

    def put(self, path: str, content: Any) -> None:
        """Stores bytes or an open file; readers see the old object or the new one, whole."""
        size = len(content) if isinstance(content, bytes) else os.fstat(content.fileno()).st_size
        # In parts only where it must be: a single request leaves nothing behind when it fails.
        small = isinstance(content, bytes) and size <= _PART_BYTES
        self._store.put(path, content, use_multipart=False if small else None, **in_parts(size))

    def get(self, path: str) -> bytes:
        """FileNotFoundError when there is no such object."""
        return bytes(self._store.get(path).bytes())

    def get_pieces(self, path: str) -> Any:
        """The content of a large object, piece by piece."""
        return self._store.get(path).stream(min_chunk_size=_PART_BYTES)

    def first_line(self, path: str) -> bytes:
        """The first line of an object; the rest is not fetched. Not a range: not every server gives those."""
        found = b""
        for piece in self._store.get(path).stream(min_chunk_size=1):
            found += bytes(piece)
            if b"\n" in found or len(found) > _FIRST_LINE_BYTES:
                break
        return found[: found.find(b"\n") + 1]

    def delete(self, paths: list[str]) -> None:
        if paths:
            self._store.delete(paths)


def check_url(url: str) -> None:
    """MirrorError unless the address names a folder of a bucket that a mirror can use."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise MirrorError(
            "invalid_address",
            f"{url!r} is not the address of a bucket folder. Use s3://bucket/folder, gs://… or "
            "az://container/…",
        )


def first_line(problem: BaseException) -> str:
    """An error of obstore's without the pages that follow its first line."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)
