"""A repository of a hub at one commit: which files it has, and their bytes, resumed where they stopped."""

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import quote

from gpubloom.hub.problems import HubProblem, hub_sentences, must_be_installed

Kind = Literal["model", "dataset"]
# No token at all, even where this machine has one: what is fetched for somebody else must not use ours.
ANONYMOUS = ""
_DEFAULT_ENDPOINT = "https://huggingface.co"
_ASKING_SECONDS = 30.0
_PIECE = 1 << 20


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository. `sha256` where the hub keeps it as a large file, else `blob` is git's hash."""

    path: str
    size: int
    sha256: str | None
    blob: str | None


@dataclass(frozen=True)
class RemoteRepository:
    """A repository at one commit, so that all files belong together."""

    id: str
    kind: Kind
    commit: str
    files: tuple[RemoteFile, ...]
    endpoint: str
    # Never printed: dataclasses print their fields.
    _headers: Any

    @classmethod
    def open(
        cls, repository: str, kind: Kind = "model", *, revision: str | None = None, token: str | None = None
    ) -> "RemoteRepository":
        """Asks the hub for the files of a revision. Token: this, else HF_TOKEN or what is logged in."""
        must_be_installed()
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        endpoint, known = hub_endpoint(), hub_token(token)
        with hub_sentences(repository, endpoint):
            found: Any = hub_api(known).repo_info(
                repository, repo_type=kind, revision=revision, files_metadata=True, timeout=_ASKING_SECONDS
            )
        files = tuple(_file(entry) for entry in found.siblings or () if _is_inside(entry.rfilename))
        headers = _Hidden(build_hf_headers(token=known or False))
        return cls(repository, kind, str(found.sha), files, endpoint, headers)

    def file(self, path: str) -> RemoteFile | None:
        return next((file for file in self.files if file.path == path), None)

    def download(self, file: RemoteFile, target: Path, count: Callable[[int], None]) -> None:
        """Writes a file; what is there already is taken for its beginning.

        `count` hears of bytes, new ones and those that were there. What differs from the hub's is removed.
        """
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars("huggingface_hub.http_get")
        # It reports every retry; whoever asked hears of the last one.
        logging.getLogger("huggingface_hub.file_download").setLevel(logging.ERROR)
        api_path = self.id if self.kind == "model" else f"{self.kind}s/{self.id}"
        url = f"{self.endpoint}/{api_path}/resolve/{self.commit}/{quote(file.path)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with hub_sentences(self.id, self.endpoint), target.open("ab") as stream:
            there = stream.tell()
            if there > file.size:
                stream.truncate(0)
                there = 0
            count(there)
            if there < file.size:
                counted: Any = _Counted(stream, count)
                http_get(
                    url,
                    counted,
                    resume_size=there,
                    headers=dict(self._headers.value),
                    expected_size=file.size,
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
                "damaged", f"{file.path} of {self.id} did not arrive as the hub has it: fetch it again."
            )


def hub_endpoint() -> str:
    """Read when it is asked for: the library itself reads it once, at import."""
    return (os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")


def hub_token(token: str | None) -> str | None:
    """The token to use: the given one, HF_TOKEN, or what `hf auth login` left. ANONYMOUS means none."""
    if token is not None:
        return token or None
    from huggingface_hub import get_token

    return os.environ.get("HF_TOKEN") or get_token()


def hub_api(token: str | None) -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=hub_endpoint(), token=token or False)


def _is_inside(path: str) -> bool:
    """Names come from somebody else; none of them may lead out of the folder that is fetched to."""
    return not path.startswith("/") and ".." not in path.split("/") and "\0" not in path and "\\" not in path


def _file(entry: Any) -> RemoteFile:
    large = entry.lfs
    return RemoteFile(
        path=str(entry.rfilename),
        size=int(entry.size or 0),
        sha256=None if large is None else str(large.sha256),
        blob=entry.blob_id if large is None else None,
    )


class _Hidden:
    """A value that no representation shows."""

    def __init__(self, value: dict[str, str]) -> None:
        self.value = value


class _Counted:
    """A file that says how many bytes came."""

    def __init__(self, stream: IO[bytes], count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count

    def write(self, data: bytes) -> int:
        written = self._stream.write(data)
        self._count(len(data))
        return written

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def truncate(self) -> int:
        """At the present place: the server sends from the beginning again."""
        before = self._stream.tell()
        self._count(before - self._stream.seek(0, os.SEEK_END))
        return self._stream.truncate(before)
