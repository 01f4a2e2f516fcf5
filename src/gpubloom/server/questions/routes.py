"""The HTTP routes of questions about passages: estimate, order, stop, continue, and what was rejected."""

from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Query
from pydantic import Field

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.datasets.files import rejected_file
from gpubloom.server.datasets.reading import read_problems
from gpubloom.server.datasets.routes import CurrentDatasetCreation, shown
from gpubloom.server.datasets.schemas import DatasetOut
from gpubloom.server.datasets.service import get_dataset
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.questions import service
from gpubloom.server.questions.schemas import (
    NewQuestions,
    QuestionsEstimate,
    QuestionsIn,
    RejectedAnswers,
    RejectedOut,
)
from gpubloom.server.schema import Schema, Whole

router = APIRouter(prefix="/datasets", tags=["datasets"])


class ContinueQuestions(Schema):
    """Another token limit, in place of the one before."""

    most_tokens: Annotated[Whole, Field(ge=1_000, le=10_000_000_000)] | None = None


@router.post("/{dataset_id}/questions/estimate")
async def estimate_questions(
    dataset_id: UUID, body: QuestionsIn, principal: CurrentPrincipal, session: ReadSession
) -> QuestionsEstimate:
    """Estimate what question-answer pairs about the passages of documents would cost. Starts nothing."""
    return await service.estimate(session, principal, dataset_id, body)


@router.post("/{dataset_id}/questions", status_code=201)
async def order_questions(
    dataset_id: UUID,
    body: NewQuestions,
    creation: CurrentDatasetCreation,
) -> DatasetOut:
    """Have a model write question-answer pairs about the passages of documents, as a new dataset.

    A worker sends each passage to the endpoint. Answers that are not the asked JSON are rejected.
    """
    return await creation.create_once(service.create_questions, dataset_id, body)


@router.post("/{dataset_id}/questions/stop")
async def stop_questions(
    dataset_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> DatasetOut:
    """Stop writing pairs. The pairs that were written become the dataset."""
    return await shown(settings, await service.stop(session, principal, dataset_id))


@router.post("/{dataset_id}/questions/continue")
async def continue_questions(
    dataset_id: UUID,
    body: ContinueQuestions,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> DatasetOut:
    """Continue with the passages that were not asked about. No passage is asked twice."""
    return await shown(
        settings, await service.resume(session, principal, settings, dataset_id, body.most_tokens)
    )


@router.get("/{dataset_id}/rejected")
async def list_rejected(
    dataset_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> RejectedAnswers:
    """List the answers and pairs that were rejected, each with its passage and the reason."""
    dataset = await get_dataset(session, principal, dataset_id)
    path = rejected_file(settings, dataset.id)
    items, total = await anyio.to_thread.run_sync(lambda: read_problems(path, offset=offset, limit=limit))
    return RejectedAnswers(items=[RejectedOut.model_validate(item) for item in items], total=total)
