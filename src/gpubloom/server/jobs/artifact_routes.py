"""Downloading what a script made: every new or changed file of its folder, one by one or as one archive."""

from functools import partial
from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from gpubloom.server.accounts.principal import CurrentSettings
from gpubloom.server.jobs.files import FoundFile, run_directory
from gpubloom.server.jobs.model_routes import TarView, part_of, read_file
from gpubloom.server.jobs.routes import OwnJobId
from gpubloom.server.jobs.schemas import ModelFile, ModelFiles
from gpubloom.server.jobs.script_files import artifacts
from gpubloom.server.problems import NotFound
from gpubloom.server.settings import Settings

router = APIRouter(prefix="/training-jobs/{job_id}/artifacts", tags=["training jobs"])

Range = Annotated[str | None, Header(alias="Range")]


async def _files(settings: Settings, job_id: UUID) -> list[FoundFile]:
    return await anyio.to_thread.run_sync(artifacts, run_directory(settings, job_id))


def _folder(job_id: UUID) -> str:
    return f"artifacts-{str(job_id)[:8]}"


@router.get("")
async def list_artifacts(job_id: OwnJobId, settings: CurrentSettings) -> ModelFiles:
    """The files that a script wrote or changed, while it runs as well; of other jobs there are none."""
    files = await _files(settings, job_id)
    return ModelFiles(
        items=[ModelFile(path=file.name, size=file.size) for file in files],
        archive_size=TarView(files, _folder(job_id)).size,
    )


@router.get("/archive", response_class=StreamingResponse)
async def download_artifacts(
    job_id: OwnJobId, settings: CurrentSettings, range_: Range = None
) -> StreamingResponse:
    """All of them as one tar archive; a broken download continues with a Range header."""
    files = await _files(settings, job_id)
    if not files:
        raise NotFound("This job has made no files.")
    view = TarView(files, _folder(job_id))
    return part_of(view.read, view.size, range_, f"{_folder(job_id)}.tar", "application/x-tar")


@router.get("/files/{path:path}", response_class=StreamingResponse)
async def download_artifact(
    job_id: OwnJobId, path: str, settings: CurrentSettings, range_: Range = None
) -> StreamingResponse:
    """One of them, by the name that the list gives."""
    # Looked up in the list, never joined to a folder: no name can lead elsewhere.
    for file in await _files(settings, job_id):
        if file.name == path:
            name = file.name.rpartition("/")[2]
            return part_of(partial(read_file, file), file.size, range_, name, "application/octet-stream")
    raise NotFound("The job has made no such file.")
