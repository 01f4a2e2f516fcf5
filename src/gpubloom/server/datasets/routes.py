"""The HTTP routes of datasets."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, BackgroundTasks, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.accounts.shares import HOLDS_DOWNLOAD
from gpubloom.server.audit import record_apart
from gpubloom.server.datasets import reading, service
from gpubloom.server.datasets.files import arriving_file, dataset_folder, problems_file, remove_dataset
from gpubloom.server.datasets.schemas import (
    DatasetChange,
    DatasetFromHub,
    DatasetOut,
    Datasets,
    NewDataset,
    PreviewOut,
    ReportOut,
    RowProblemOut,
    RowProblems,
)
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.db.pages import PageQuery
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.models.service import folder_to_read
from gpubloom.server.problems import Conflict
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import Readers, Uses
from gpubloom.server.storage.uploads import UploadOffset, offset_answer, take_piece

router = APIRouter(prefix="/datasets", tags=["datasets"])
UPLOADED = ("upload", "documents")


async def shown(settings: Settings, dataset: Dataset) -> DatasetOut:
    received = dataset.received
    if dataset.status == "uploading":
        received = await anyio.to_thread.run_sync(arriving_file(settings, dataset).received)
    return DatasetOut.model_validate(
        {
            **{field: getattr(dataset, field) for field in DatasetOut.model_fields},
            "received": received,
            "origin": dataset.origin or None,
            "report": None if dataset.report is None else ReportOut.model_validate(dataset.report),
        }
    )


@dataclass(frozen=True)
class DatasetCreation:
    """A request that creates a dataset. A repeated request returns the dataset that the first one created."""

    principal: CurrentPrincipal
    database: CurrentDatabase
    settings: CurrentSettings
    creation: CurrentCreation

    async def create_once(self, create: Callable[..., Awaitable[Dataset]], *arguments: object) -> DatasetOut:
        """Create a dataset with `create(session, principal, settings, *arguments)`, and its folder."""
        async with self.database.write() as session:
            if (made_id := await self.creation.find_made(session)) is not None:
                return await shown(self.settings, await service.get_dataset(session, self.principal, made_id))
            dataset = await create(session, self.principal, self.settings, *arguments)
            await self.creation.remember(session, dataset.id)
        # Only here: an upload to a dataset that was deleted must not bring its folder back.
        folder = dataset_folder(self.settings, dataset.id)
        await anyio.to_thread.run_sync(lambda: folder.mkdir(parents=True, exist_ok=True, mode=0o700))
        return await shown(self.settings, dataset)


CurrentDatasetCreation = Annotated[DatasetCreation, Depends()]


@router.get("")
async def list_datasets(
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    page: PageQuery,
) -> Datasets:
    """List your datasets, newest first."""
    rows, total = await service.list_datasets(session, principal, page)
    return Datasets(items=[await shown(settings, row) for row in rows], total=total)


@router.post("", status_code=201)
async def announce_dataset(
    body: NewDataset,
    creation: CurrentDatasetCreation,
) -> DatasetOut:
    """Create a dataset for a file. Upload the bytes of the file to /content, in pieces."""
    return await creation.create_once(service.create_dataset, body)


@router.post("/from-hub", status_code=201)
async def fetch_dataset(
    body: DatasetFromHub,
    creation: CurrentDatasetCreation,
) -> DatasetOut:
    """Download a dataset from the Hugging Face Hub, by its id."""
    return await creation.create_once(service.create_from_hub, body)


@router.get("/{dataset_id}")
async def read_dataset(
    dataset_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> DatasetOut:
    """Return one dataset."""
    return await shown(settings, await service.get_dataset(session, principal, dataset_id))


@router.patch("/{dataset_id}")
async def change_dataset(
    dataset_id: UUID,
    body: DatasetChange,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> DatasetOut:
    """Rename a dataset, or change how its file is read. Such a change starts a new inspection."""
    return await shown(settings, await service.change_dataset(session, principal, dataset_id, body))


@router.delete("/{dataset_id}", status_code=204)
async def delete_dataset(
    dataset_id: UUID,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    uses: Uses,
    after: BackgroundTasks,
) -> None:
    """Delete a dataset and its file. Models that were trained on it are kept."""
    dataset = await service.delete_dataset(session, principal, dataset_id, uses)
    after.add_task(anyio.to_thread.run_sync, remove_dataset, settings, dataset.id)


@router.head("/{dataset_id}/content", status_code=200, response_class=Response)
async def read_offset(
    dataset_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> Response:
    """Return the number of uploaded bytes in the header Upload-Offset."""
    dataset = await service.get_dataset(session, principal, dataset_id)
    if dataset.source not in UPLOADED:
        return offset_answer(dataset.received, status=200)
    received = await anyio.to_thread.run_sync(arriving_file(settings, dataset).received)
    return offset_answer(received, status=200)


@router.patch(
    "/{dataset_id}/content",
    status_code=204,
    response_class=Response,
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}, "required": True}},
)
async def upload_content(
    dataset_id: UUID,
    request: Request,
    upload_offset: UploadOffset,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> Response:
    """Append bytes at an offset. After the last byte, the file is inspected."""
    # No session is held while bytes arrive: that may take hours.
    async with database.read() as session:
        dataset = await service.get_dataset(session, principal, dataset_id)
    if dataset.source not in UPLOADED:
        raise Conflict(
            "The rows of this dataset are made by this server. Files cannot be uploaded to it.",
            code="not_an_upload",
        )
    file = arriving_file(settings, dataset)
    try:
        received = await take_piece(request, file, upload_offset)
    finally:
        # What arrived before a connection broke counts too.
        here = await anyio.to_thread.run_sync(file.received)
        async with database.write() as session:
            await service.note_received(session, dataset.id, here)
    return offset_answer(received)


def _require_file(dataset: Dataset) -> None:
    if not service.is_here(dataset):
        raise Conflict("The file of this dataset is not completely uploaded yet.", code="dataset_not_here")


@router.get("/{dataset_id}/preview")
async def preview_dataset(
    dataset_id: UUID,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    readers: Readers,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0, le=100_000_000_000)] = 0,
    model_id: Annotated[UUID | None, Query()] = None,
    context_length: Annotated[int | None, Query(ge=1, le=100_000_000)] = None,
) -> PreviewOut:
    """Return a page of rows, each as stored and as the model sees it, with the trained tokens marked."""
    async with database.read() as session:
        dataset = await service.get_dataset(session, principal, dataset_id)
        model = None if model_id is None else await folder_to_read(session, principal, settings, model_id)
    _require_file(dataset)
    async with readers:
        found = await reading.read_page(
            settings,
            dataset,
            offset=offset,
            limit=limit,
            model=model,
            context_length=context_length,
        )
    return PreviewOut.model_validate(found)


@router.get("/{dataset_id}/problems")
async def list_problems(
    dataset_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> RowProblems:
    """List the rows that cannot be used, or that are used differently than expected, with line and reason."""
    dataset = await service.get_dataset(session, principal, dataset_id)
    if dataset.report is None:
        return RowProblems(items=[], total=0, kept=0)
    path = problems_file(settings, dataset.id)
    items, kept = await anyio.to_thread.run_sync(
        lambda: reading.read_problems(path, offset=offset, limit=limit)
    )
    found = dataset.report["problems"]
    return RowProblems(
        items=[RowProblemOut.model_validate(item) for item in items],
        total=found["rows_refused"] + found["remarks"],
        kept=kept,
    )


@router.get("/{dataset_id}/converted", response_class=StreamingResponse, dependencies=[HOLDS_DOWNLOAD])
async def download_converted(
    dataset_id: UUID, principal: CurrentPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> StreamingResponse:
    """Download all examples as messages, one JSON object per line. Unusable rows are left out."""
    async with database.read() as session:
        dataset = await service.get_ready_dataset(session, principal, dataset_id)
    await record_apart(
        database, principal.actor, "dataset.downloaded", f"dataset:{dataset.id}", name=dataset.name
    )
    return StreamingResponse(
        reading.converted(settings, dataset),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="dataset-{dataset.id}.jsonl"'},
    )
