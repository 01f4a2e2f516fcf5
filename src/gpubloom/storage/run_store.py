"""What a store of rented jobs can do, whichever it is: a bucket, this server's disk, a provider's volume."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

Method = Literal["GET", "PUT"]
# The longest life that signatures of S3 can have; the others keep to it.
LONGEST_LIFE_SECONDS = 7 * 24 * 3600.0


class RunStore(Protocol):
    """Objects by their name. Every method raises StorageError when the store refuses or does not answer."""

    def put(self, name: str, content: bytes | Path | BinaryIO) -> None:
        """Store an object: all of it or nothing."""

    def put_files(self, files: Mapping[str, Path]) -> None:
        """Store many files, each as by `put`; where a call takes long, with few of them."""

    def get(self, name: str, *, most: int | None = None) -> bytes | None:
        """None when there is no such object, or one of more than `most` bytes."""

    def has(self, name: str) -> bool: ...

    def sizes(self, folder: str) -> dict[str, int]:
        """All objects in a folder, with their sizes."""

    def delete(self, names: Sequence[str]) -> None:
        """What is not there is fine."""

    def delete_folder(self, folder: str) -> None:
        """Everything in a folder: `JobLayout.folder` for all that a job left."""

    def addresses(self, method: Method, names: Sequence[str], life_seconds: float) -> list[str]:
        """Addresses that work without a key for this method, this object and this time."""
