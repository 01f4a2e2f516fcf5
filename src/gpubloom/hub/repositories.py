"""A repository of a hub at one commit: its files, and their download, which resumes where it stopped.

huggingface_hub lists the files and transfers the bytes. Not its hf_hub_download or snapshot_download: they
delete the partial file when a download stops and compare only its size, while a shard of many gigabytes must
resume in the next process and arrive with the hash that the hub names.
"""

import hashlib
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gpubloom.egress import Policy
from gpubloom.hub.problems import HubProblem, hub_sentences, must_be_installed
from gpubloom.traincard.sync.files import is_inside

Kind = Literal["model", "dataset"]
# No token at all, even if this machine has one: a download for somebody else must not use our token.
ANONYMOUS = ""
_DEFAULT_ENDPOINT = "https://huggingface.co"
_ASKING_SECONDS = 30.0
_PIECE = 1 << 20
# Folders are named after it.
_COMMIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository. Large files (LFS) have a `sha256`, the others git's hash in `blob`."""

    path: str
    size: int
    sha256: str | None
    blob: str | None


@dataclass(frozen=True)
class RemoteRepository:
    """A repository at one commit, so that all its files belong together."""

    id: str
    kind: Kind
    commit: str
    files: tuple[RemoteFile, ...]
    endpoint: str
    # They hold the token.
    _headers: dict[str, str] = field(repr=False, compare=False)

    @classmethod
    def open(
        cls, repository: str, kind: Kind = "model", *, revision: str | None = None, token: str | None = None
    ) -> "RemoteRepository":
        """Asks the hub for the files of a revision. Without `token`: HF_TOKEN, or that of `hf auth login`."""
        must_be_installed()
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        endpoint, known = hub_endpoint(), hub_token(token)
        with hub_sentences(repository, endpoint):
            found: Any = hub_api(known, downloads=True).repo_info(
                repository, repo_type=kind, revision=revision, files_metadata=True, timeout=_ASKING_SECONDS
            )
        commit = str(found.sha)
        if not _COMMIT.fullmatch(commit):
            raise HubProblem("damaged", f"{endpoint} names no usable commit of {repository}.")
        files = tuple(_file(entry) for entry in found.siblings or () if _is_usable(entry.rfilename))
        headers = build_hf_headers(token=known or False)
        return cls(repository, kind, commit, files, endpoint, headers)

    def file(self, path: str) -> RemoteFile | None:
        return next((file for file in self.files if file.path == path), None)

    def download(self, file: RemoteFile, target: Path, count: Callable[[int], None]) -> None:
        """Downloads a file; the content of `target` counts as its beginning.

        `count` is called with numbers of bytes, also of those that were there. A file that differs from the
        hub's is removed.
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get

        # The library warns of every retry; the last failure is an error of its own.
        logging.getLogger("huggingface_hub.file_download").setLevel(logging.ERROR)
        url = hf_hub_url(
            self.id, file.path, repo_type=self.kind, revision=self.commit, endpoint=self.endpoint
        )

        class Counter:
            """Stands where the library would show a progress bar."""

            def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
                count(initial)

            def __enter__(self) -> "Counter":
                return self

            def __exit__(self, *_: object) -> None: ...

            def update(self, more: int) -> None:
                count(more)

        counter: Any = Counter
        target.parent.mkdir(parents=True, exist_ok=True)
        with hub_sentences(self.id, self.endpoint), target.open("ab") as stream:
            if stream.tell() > file.size:
                stream.truncate(0)
            if (there := stream.seek(0, os.SEEK_END)) == file.size:
                count(there)
            else:
                http_get(
                    url,
                    stream,
                    resume_size=there,
                    headers=dict(self._headers),
                    expected_size=file.size,
                    tqdm_class=counter,
                )
        self._verify(file, target)

    def _verify(self, file: RemoteFile, target: Path) -> None:
        expected = file.sha256 or file.blob
        if expected is None:
            return
        digest = (
            hashlib.sha256() if file.sha256 else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        )
        with target.open("rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
        if digest.hexdigest() != expected:
            target.unlink()
            raise HubProblem(
                "damaged", f"{file.path} of {self.id} was damaged during the download. Download it again."
            )


def hub_endpoint() -> str:
    """HF_ENDPOINT as it is now; the library itself reads it once, at import."""
    return (os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")


def hub_token(token: str | None) -> str | None:
    """The token to use: the given one, HF_TOKEN, or that of `hf auth login`. ANONYMOUS means none."""
    if token is not None:
        return token or None
    from huggingface_hub import get_token

    return os.environ.get("HF_TOKEN") or get_token()


def hub_api(token: str | None, *, downloads: bool = False) -> Any:
    """The hub's library. For `downloads` it reaches the hub and the stores that the hub redirects to."""
    from huggingface_hub import HfApi

    # An upload goes to a store that the hub names in an answer, not by a redirect.
    _use_egress_policy(Policy.of_operator(hub_endpoint()), hub_endpoint() if downloads else None)
    return HfApi(endpoint=hub_endpoint(), token=token or False)


@lru_cache(maxsize=1)
def _use_egress_policy(policy: Policy, only: str | None) -> None:
    """Let the hub's library reach its endpoint and public addresses only, also after a redirect."""
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils._http import hf_request_event_hook

    from gpubloom.egress.clients import client

    def factory() -> Any:
        hooks = {"request": [hf_request_event_hook]}
        return client(policy, only=only, event_hooks=hooks, follow_redirects=True, timeout=None)

    set_client_factory(factory)


def _is_usable(path: str) -> bool:
    """File names come from other people; none may lead out of the folder of the download, or lack UTF-8."""
    return is_inside(path) and path.encode("utf-8", "replace").decode() == path


def _file(entry: Any) -> RemoteFile:
    large = entry.lfs
    return RemoteFile(
        path=str(entry.rfilename),
        size=int(entry.size or 0),
        sha256=None if large is None else str(large.sha256),
        blob=entry.blob_id if large is None else None,
    )
