"""The HTTP routes of documents: upload, what became of each, and another length of passages."""

from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Query

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.datasets import reading, service
from gpubloom.server.datasets.files import documents_file
from gpubloom.server.datasets.routes import CurrentDatasetCreation, shown
from gpubloom.server.datasets.schemas import CutAgain, DatasetOut, DocumentOut, Documents, NewDocuments
from gpubloom.server.db.database import ReadSession, WriteSession

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.post("/from-documents", status_code=201)
async def announce_documents(
    body: NewDocuments,
    creation: CurrentDatasetCreation,
) -> DatasetOut:
    """Create a dataset from documents. Upload the document or the .zip to /content, in pieces.

    After the last byte, the documents are parsed in a sandbox and cut to passages, one row each.
    """
    return await creation.create_once(service.create_from_documents, body)


@router.get("/{dataset_id}/documents")
async def list_documents(
    dataset_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Documents:
    """List the uploaded documents with their passages. Documents without text come first, with the reason."""
    dataset = await service.get_dataset(session, principal, dataset_id)
    path = documents_file(settings, dataset.id)
    items, total = await anyio.to_thread.run_sync(
        lambda: reading.read_problems(path, offset=offset, limit=limit)
    )
    return Documents(items=[DocumentOut.model_validate(item) for item in items], total=total)


@router.post("/{dataset_id}/passages")
async def cut_again(
    dataset_id: UUID,
    body: CutAgain,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> DatasetOut:
    """Cut the uploaded documents again, to passages of another length."""
    dataset = await service.cut_again(session, principal, dataset_id, body.passage_characters)
    return await shown(settings, dataset)
