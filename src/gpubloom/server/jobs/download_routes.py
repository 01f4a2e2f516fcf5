"""Downloads of a job: its finished model and the files that a script made, one by one or as one archive.

The archive is a tar that is never written to disk: weights do not compress, and any byte range of a plain tar
can be computed from the files. So a broken download continues where it stopped (HTTP Range).
"""

import re
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import quote
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.accounts.shares import HOLDS_DOWNLOAD
from gpubloom.server.audit import record
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.jobs.adapter_base import with_named_base
from gpubloom.server.jobs.files import FoundFile, artifacts, model_files, run_directory
from gpubloom.server.jobs.schemas import ModelFile, ModelFiles
from gpubloom.server.jobs.service import get_job
from gpubloom.server.jobs.stream_routes import OwnJobId
from gpubloom.server.problems import NotFound, Problem
from gpubloom.server.settings import Settings

_BLOCK = 512
_END = b"\0" * (2 * _BLOCK)
_PIECE = 1 << 18


@dataclass(frozen=True)
class _Part:
    """A part of the archive: a header in memory, or a file."""

    size: int
    content: bytes | None = None
    file: FoundFile | None = None


class TarView:
    """The archive of some files under one folder name."""

    def __init__(self, files: Sequence[FoundFile], folder: str) -> None:
        self._parts: list[_Part] = []
        for file in files:
            header = tarfile.TarInfo(f"{folder}/{file.name}")
            header.size = file.size
            header.mode = 0o644
            header.mtime = max(0, file.modified_ns // 10**9)
            content = header.tobuf(format=tarfile.PAX_FORMAT)
            self._parts.append(_Part(len(content), content=content))
            self._parts.append(_Part(file.size, file=file))
            padding = -file.size % _BLOCK
            self._parts.append(_Part(padding, content=b"\0" * padding))
        self._parts.append(_Part(len(_END), content=_END))
        self.size = sum(part.size for part in self._parts)

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to `end`, in pieces."""
        position = 0
        for part in self._parts:
            first, last = max(start - position, 0), min(end - position, part.size)
            position += part.size
            if first >= last:
                continue
            if part.content is not None:
                yield part.content[first:last]
            elif part.file is not None:
                yield from _read_file(part.file, first, last)


def _read_file(found: FoundFile, first: int, last: int) -> Iterator[bytes]:
    """Some bytes of a file, in pieces."""
    with found.open() as file:
        file.seek(first)
        left = last - first
        while left > 0:
            piece = file.read(min(_PIECE, left))
            if not piece:
                raise OSError(f"{found.name} became shorter during the download")
            left -= len(piece)
            yield piece


router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])

Range = Annotated[str | None, Header(alias="Range")]


class RangeNotSatisfiable(Problem):
    status, code = 416, "range_not_satisfiable"


async def _record_download(
    request: Request,
    job_id: UUID,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    range_: Range = None,
) -> AsyncIterator[None]:
    """Records a download that was not refused. The later parts of one download are not recorded again."""
    yield
    if range_ is not None and not range_.startswith("bytes=0-"):
        return
    async with database.write() as session:
        job, project = await get_job(session, principal, job_id)
        record(
            session,
            principal.actor,
            "training_job.downloaded",
            f"training_job:{job.id}",
            project.id,
            name=job.name,
            file=request.url.path.partition(str(job_id))[2].lstrip("/"),
        )


RECORDED = Depends(_record_download, scope="function")


async def _model_files(
    job_id: OwnJobId, principal: CurrentPrincipal, settings: CurrentSettings, database: CurrentDatabase
) -> list[FoundFile]:
    found = await anyio.to_thread.run_sync(model_files, settings, job_id)
    if not found:
        raise NotFound("This job has no finished model.", code="no_model_yet")
    return await with_named_base(database, principal.id, found)


OwnModelFiles = Annotated[list[FoundFile], Depends(_model_files)]


@router.get("/model")
async def list_model_files(job_id: OwnJobId, files: OwnModelFiles) -> ModelFiles:
    """List the files of the finished model."""
    return _listed(files, _archive_name("model", job_id))


@router.get("/model/archive", response_class=StreamingResponse, dependencies=[HOLDS_DOWNLOAD, RECORDED])
async def download_archive(job_id: OwnJobId, files: OwnModelFiles, range_: Range = None) -> StreamingResponse:
    """Download the whole model as one tar archive. A Range header continues an interrupted download."""
    return archive_of(files, _archive_name("model", job_id), range_)


@router.get(
    "/model/files/{path:path}", response_class=StreamingResponse, dependencies=[HOLDS_DOWNLOAD, RECORDED]
)
async def download_file(path: str, files: OwnModelFiles, range_: Range = None) -> StreamingResponse:
    """Download one file of the model. `GET /jobs/{job_id}/model` lists the names."""
    file = _named(files, path)
    if file is None:
        raise NotFound("The model has no file with this name.", code="file_not_found")
    return _whole_or_part(file, range_)


@router.get("/artifacts")
async def list_artifacts(job_id: OwnJobId, settings: CurrentSettings) -> ModelFiles:
    """List the files that a script wrote or changed, also while it runs. Other kinds of jobs have none."""
    return _listed(await _artifact_files(settings, job_id), _archive_name("artifacts", job_id))


@router.get("/artifacts/archive", response_class=StreamingResponse, dependencies=[HOLDS_DOWNLOAD, RECORDED])
async def download_artifacts(
    job_id: OwnJobId, settings: CurrentSettings, range_: Range = None
) -> StreamingResponse:
    """Download all files of the job as one tar archive. A Range header continues an interrupted download."""
    files = await _artifact_files(settings, job_id)
    if not files:
        raise NotFound("This job has not written any files.", code="no_files")
    return archive_of(files, _archive_name("artifacts", job_id), range_)


@router.get(
    "/artifacts/files/{path:path}", response_class=StreamingResponse, dependencies=[HOLDS_DOWNLOAD, RECORDED]
)
async def download_artifact(
    job_id: OwnJobId, path: str, settings: CurrentSettings, range_: Range = None
) -> StreamingResponse:
    """Download one file of the job. `GET /jobs/{job_id}/artifacts` lists the names."""
    file = _named(await _artifact_files(settings, job_id), path)
    if file is None:
        raise NotFound("This job has no file with this name.", code="file_not_found")
    return _whole_or_part(file, range_)


async def _artifact_files(settings: Settings, job_id: UUID) -> list[FoundFile]:
    return await anyio.to_thread.run_sync(artifacts, run_directory(settings, job_id))


def _archive_name(kind: str, job_id: UUID) -> str:
    return f"{kind}-{str(job_id)[:8]}"


def _listed(files: Sequence[FoundFile], name: str) -> ModelFiles:
    return ModelFiles(
        items=[ModelFile(path=file.name, size=file.size) for file in files],
        archive_size=TarView(files, name).size,
    )


def _named(files: Sequence[FoundFile], path: str) -> FoundFile | None:
    # Looked up in the list, never joined to a folder: no name can lead out of it.
    return next((file for file in files if file.name == path), None)


def archive_of(files: Sequence[FoundFile], name: str, range_: str | None) -> StreamingResponse:
    """Files as one tar archive, or the part of it that a Range header asks for."""
    view = TarView(files, name)
    return _part_of(view.read, view.size, range_, f"{name}.tar", "application/x-tar")


def _whole_or_part(file: FoundFile, range_: str | None) -> StreamingResponse:
    name = file.name.rpartition("/")[2]
    return _part_of(partial(_read_file, file), file.size, range_, name, "application/octet-stream")


def _part_of(
    read: Callable[[int, int], Iterator[bytes]], size: int, header: str | None, name: str, media_type: str
) -> StreamingResponse:
    """What a Range header asks for of something to download, or all of it."""
    start, end, partial = _range(header, size)
    named = f'filename="{name}"' if quote(name) == name else f"filename*=utf-8''{quote(name)}"
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "Content-Disposition": f"attachment; {named}",
    }
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(
        read(start, end), status_code=206 if partial else 200, media_type=media_type, headers=headers
    )


def _range(header: str | None, size: int) -> tuple[int, int, bool]:
    """Parse one range. Other forms get the whole file, as RFC 9110 allows."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header or "")
    if found is None or not (found[1] or found[2]):
        return 0, size, False
    if not found[1]:
        start, end = max(0, size - int(found[2])), size
    else:
        start, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
    if start >= end:
        raise RangeNotSatisfiable(
            f"The requested range is outside the file. The file has {size} bytes.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return start, end, True
