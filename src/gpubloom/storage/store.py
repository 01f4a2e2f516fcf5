"""The bucket, for the side that has its key: objects by name, and presigned addresses for the other side.

S3-compatible services, Google Cloud Storage and Azure Blob Storage, all through obstore.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, Literal

from gpubloom.errors import CodedError, InputError
from gpubloom.storage.run_store import LONGEST_LIFE_SECONDS, Method
from gpubloom.traincard.mirror.store import in_parts

_REQUEST_SECONDS = 60
_REASONS = {
    "RequestTimeTooSkewed": "the clock of this machine differs from the bucket's clock; correct the clock",
    "SignatureDoesNotMatch": "the secret key does not belong to this access key",
    "InvalidAccessKeyId": "the access key is unknown",
    "AccessDenied": "the access key has no permission for this",
    "NoSuchBucket": "the bucket does not exist",
    "ContainerNotFound": "the container does not exist",
    "AuthenticationFailed": "the account key is not accepted",
    "AuthorizationFailure": "the account key is not accepted",
}


class StorageError(CodedError):
    """The bucket cannot do what was asked; the message says what to change or that it is unavailable."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class StoreRefused(StorageError):
    """The store works only after a person has acted, for example with new credentials."""


StorageKind = Literal["s3", "gcs", "azure"]


@dataclass(frozen=True)
class StorageSettings:
    """Where the bucket is and how to open it. `endpoint`: empty for the service's own; `prefix`: a folder.

    `key` and `secret` are an access key and its secret at S3, an account and its key at Azure. At Google
    Cloud Storage `secret` is the JSON key of a service account, and `key` is not used.
    """

    bucket: str
    key: str
    secret: str = field(repr=False)
    endpoint: str = ""
    region: str = "us-east-1"
    prefix: str = ""
    kind: StorageKind = "s3"


class Store:
    """Objects by their name below the prefix. StorageError when the bucket refuses or does not answer."""

    def __init__(self, settings: StorageSettings) -> None:
        try:
            import obstore
        except ModuleNotFoundError as missing:
            raise StorageError(
                "not_installed",
                "The storage bucket needs the package obstore. Install it with: pip install "
                "'gpubloom[storage]'",
            ) from missing
        self.settings = settings
        self._calls: Any = obstore
        try:
            self._store: Any = _open(settings)
        except Exception as problem:
            raise self._error("opened", "", problem) from problem

    def put(self, name: str, content: bytes | Path | BinaryIO) -> None:
        try:
            self._calls.put(self._store, name, content, **in_parts(_length(content)))
        except Exception as problem:
            raise self._error("written", name, problem) from problem

    def put_files(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self.put(name, path)

    def get(self, name: str, *, most: int | None = None) -> bytes | None:
        """None when there is no such object, or one of more than `most` bytes."""
        try:
            found = self._calls.get(self._store, name)
            if most is not None and found.meta["size"] > most:
                return None
            return bytes(found.bytes())
        except FileNotFoundError:
            return None
        except Exception as problem:
            raise self._error("read", name, problem) from problem

    def has(self, name: str) -> bool:
        try:
            self._calls.head(self._store, name)
        except FileNotFoundError:
            return False
        except Exception as problem:
            raise self._error("looked up", name, problem) from problem
        return True

    def sizes(self, folder: str) -> dict[str, int]:
        """All objects in a folder, with their sizes."""
        try:
            found = self._calls.list(self._store, prefix=folder.rstrip("/") + "/")
            return {str(entry["path"]): int(entry["size"]) for chunk in found for entry in chunk}
        except Exception as problem:
            raise self._error("listed", folder, problem) from problem

    def delete(self, names: Sequence[str]) -> None:
        """What is not there is fine."""
        for name in names:
            try:
                self._calls.delete(self._store, name)
            except FileNotFoundError:
                continue
            except Exception as problem:
                raise self._error("deleted", name, problem) from problem

    def delete_folder(self, folder: str) -> None:
        """Everything in a folder: `JobLayout.folder` for all that a job left."""
        self.delete(list(self.sizes(folder)))

    def addresses(self, method: Method, names: Sequence[str], life_seconds: float) -> list[str]:
        """Presigned addresses that work without a key for this method, this object and this time."""
        if not 0 < life_seconds <= LONGEST_LIFE_SECONDS:
            raise InputError(
                "invalid_argument",
                f"{life_seconds} seconds is not allowed: a presigned URL is valid for at most one week",
            )
        signed = self._calls.sign(self._store, method, list(names), timedelta(seconds=life_seconds))
        return [str(address) for address in signed]

    def _error(self, done: str, name: str, problem: Exception) -> StorageError:
        text = str(problem)
        reason = next((meaning for word, meaning in _REASONS.items() if word in text), None)
        if reason is None:
            # What the library says may quote a request; its kind tells enough.
            reason = f"unexpected answer ({type(problem).__name__})"
        what = f"{name} in the bucket" if name else "The bucket"
        return StorageError(
            "bucket_unavailable", f"{what} {self.settings.bucket} cannot be {done}: {reason}."
        )


def _length(content: bytes | Path | BinaryIO) -> int:
    if isinstance(content, bytes):
        return len(content)
    return content.stat().st_size if isinstance(content, Path) else os.fstat(content.fileno()).st_size


def _open(settings: StorageSettings) -> Any:
    from obstore.store import AzureStore, GCSStore, S3Store

    endpoint = settings.endpoint.rstrip("/")
    opened: Any = {"s3": S3Store, "gcs": GCSStore, "azure": AzureStore}[settings.kind]
    config: dict[StorageKind, dict[str, str]] = {
        "s3": {
            "access_key_id": settings.key,
            "secret_access_key": settings.secret,
            "region": settings.region,
            "endpoint": endpoint,
        },
        "gcs": {"service_account_key": settings.secret, "base_url": endpoint},
        "azure": {"account_name": settings.key, "account_key": settings.secret, "endpoint": endpoint},
    }
    return opened(
        settings.bucket,
        prefix=settings.prefix.strip("/") or None,
        config={name: value for name, value in config[settings.kind].items() if value},
        client_options={
            "timeout": timedelta(seconds=_REQUEST_SECONDS),
            "connect_timeout": timedelta(seconds=5),
            "allow_http": endpoint.startswith("http://"),
        },
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_REQUEST_SECONDS)},
    )
