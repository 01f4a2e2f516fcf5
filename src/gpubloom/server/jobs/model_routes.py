"""Downloading a finished model: as one archive that can be continued, or file by file."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated
from urllib.parse import quote
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from gpubloom.server.accounts.current import CurrentSettings
from gpubloom.server.jobs.archive import TarView, read_file
from gpubloom.server.jobs.files import FoundFile, model_files
from gpubloom.server.jobs.routes import OwnJobId
from gpubloom.server.jobs.schemas import ModelFile, ModelFiles
from gpubloom.server.problems import NotFound, Problem
from gpubloom.server.settings import Settings

router = APIRouter(prefix="/training-jobs/{job_id}/model", tags=["training jobs"])


class RangeNotSatisfiable(Problem):
    status, code = 416, "range_not_satisfiable"


async def _files(settings: Settings, job_id: UUID) -> list[FoundFile]:
    found = await anyio.to_thread.run_sync(model_files, settings, job_id)
    if not found:
        raise NotFound("This job has no finished model.")
    return found


@router.get("")
async def list_model_files(job_id: OwnJobId, settings: CurrentSettings) -> ModelFiles:
    """The files of the finished model."""
    files = await _files(settings, job_id)
    return ModelFiles(
        items=[ModelFile(path=file.name, size=file.size) for file in files],
        archive_size=TarView(files, _folder(job_id)).size,
    )


def _folder(job_id: UUID) -> str:
    return f"model-{str(job_id)[:8]}"


@router.get("/archive", response_class=StreamingResponse)
async def download_archive(
    job_id: OwnJobId,
    settings: CurrentSettings,
    range_: Annotated[str | None, Header(alias="Range")] = None,
) -> StreamingResponse:
    """The whole model as one tar archive; a broken download continues with a Range header."""
    view = TarView(await _files(settings, job_id), _folder(job_id))
    return part_of(view.read, view.size, range_, f"{_folder(job_id)}.tar", "application/x-tar")


def part_of(
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
    """One range; anything else asks for the whole, as the standard allows."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header or "")
    if found is None or not (found[1] or found[2]):
        return 0, size, False
    if not found[1]:
        start, end = max(0, size - int(found[2])), size
    else:
        start, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
    if start >= end:
        raise RangeNotSatisfiable(f"It has {size} bytes.", headers={"Content-Range": f"bytes */{size}"})
    return start, end, True


@router.get("/files/{path:path}", response_class=StreamingResponse)
async def download_file(
    job_id: OwnJobId,
    path: str,
    settings: CurrentSettings,
    range_: Annotated[str | None, Header(alias="Range")] = None,
) -> StreamingResponse:
    """One file of the model, by the name that the list gives."""
    # Looked up in the list, never joined to a folder: no name can lead elsewhere.
    for file in await _files(settings, job_id):
        if file.name == path:
            name = file.name.rpartition("/")[2]
            return part_of(partial(read_file, file), file.size, range_, name, "application/octet-stream")
    raise NotFound("The model has no such file.")
