"""Try a bucket live, step by step, as a job will use it: write, list, presigned upload, delete."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal
from uuid import uuid4

from gpubloom.agent.remote.link import HttpLink, Rejected, Unavailable
from gpubloom.storage.run_store import RunStore
from gpubloom.storage.store import StorageError

StepName = Literal["write", "list", "upload", "delete"]
_ADDRESS_SECONDS = 300.0
_REQUEST_SECONDS = 20.0
_CONTENT = b"GPU Bloom tests this bucket."


@dataclass(frozen=True)
class Step:
    """`ok`: None when an earlier step failed, so that this one was not tried. `problem`: what to change."""

    name: StepName
    title: str
    ok: bool | None
    problem: str | None = None


def check_bucket(open_store: Callable[[], RunStore]) -> list[Step]:
    """Every step in its order. Nothing stays in the bucket; never raises for what the bucket answers."""
    trial = _Trial(open_store)
    tries: list[tuple[StepName, str, Callable[[], None]]] = [
        ("write", "Write a file", trial.write),
        ("list", "List files", trial.list_files),
        ("upload", "Upload through a presigned address", trial.upload),
        ("delete", "Delete files", trial.delete),
    ]
    steps: list[Step] = []
    for name, title, attempt in tries:
        if not all(step.ok for step in steps):
            steps.append(Step(name, title, None))
            continue
        try:
            attempt()
        except StorageError as problem:
            steps.append(Step(name, title, False, trial.plain(problem)))
        else:
            steps.append(Step(name, title, True))
    return steps


class _Trial:
    def __init__(self, open_store: Callable[[], RunStore]) -> None:
        self._open = open_store
        self._folder = f"bloom-check/{uuid4().hex}"
        self._written, self._uploaded = f"{self._folder}/written", f"{self._folder}/uploaded"

    @cached_property
    def _store(self) -> RunStore:
        return self._open()

    def write(self) -> None:
        self._store.put(self._written, _CONTENT)

    def list_files(self) -> None:
        if self._written not in self._store.sizes(self._folder):
            raise _fault("The file that was written is not listed. Allow the key to list files.")

    def upload(self) -> None:
        [address] = self._store.addresses("PUT", [self._uploaded], _ADDRESS_SECONDS)
        try:
            HttpLink(_REQUEST_SECONDS).put(address, _CONTENT)
        except (Rejected, Unavailable) as problem:
            raise _fault(
                f"A presigned upload failed: {problem}. Check the endpoint and the region."
            ) from problem
        if self._store.get(self._uploaded) != _CONTENT:
            raise _fault("The uploaded file cannot be read back unchanged.")

    def delete(self) -> None:
        self._store.delete([self._written, self._uploaded])
        if self._store.has(self._written):
            raise _fault(
                "A deleted file is still there. Allow the key to delete, and switch object lock off."
            )

    def plain(self, problem: StorageError) -> str:
        """Without the names of files that mean nothing to a person."""
        return re.sub(rf"{self._folder}(/\w+)? in the bucket", "The bucket", str(problem))


def _fault(sentence: str) -> StorageError:
    return StorageError("bucket_unavailable", sentence)
