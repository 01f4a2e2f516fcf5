"""Order, stop and continue questions about passages. A worker asks the model (`worker/questions.py`).

The order lives in the row of the new dataset. A stop gives the row to the next worker with the mark
`stopping`: whoever asks the model loses the lease, and the pairs that are there become the dataset. To
continue removes the mark. Answers are kept by passage, so no passage is asked or paid twice.
"""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.datasets.documents.questions import request_tokens
from gpubloom.egress import EgressRefused, Policy
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.datasets.service import get_dataset, get_ready_dataset, record_change, restart
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.playground.openai_routes import find_loaded, open_served
from gpubloom.server.problems import Conflict, InvalidInput
from gpubloom.server.questions.schemas import NewQuestions, Playground, QuestionsEstimate, QuestionsIn
from gpubloom.server.secrets.service import require_own
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import require_room

# Of the pairs and the passages that they repeat; the true size is counted at the end.
_BYTES_PER_PAIR = 4_000


async def estimate(
    session: AsyncSession, principal: Principal, dataset_id: UUID, order: QuestionsIn
) -> QuestionsEstimate:
    return _estimate(await _passages_of(session, principal, dataset_id), order)


async def create_questions(
    session: AsyncSession, principal: Principal, settings: Settings, dataset_id: UUID, order: NewQuestions
) -> Dataset:
    """A dataset that waits for its pairs."""
    passages = await _passages_of(session, principal, dataset_id)
    expected = _estimate(passages, order)
    await require_room(session, principal, settings, expected.pairs * _BYTES_PER_PAIR)
    await _check_endpoint(session, principal, order)
    dataset = Dataset(
        id=uuid4(),
        user_id=principal.id,
        name=order.name or f"{passages.name}: questions"[:200],
        filename="questions.jsonl",
        source="questions",
        status="generating",
        format="messages",
        columns={"messages": "messages"},
        questions={
            "dataset_id": str(passages.id),
            **order.model_dump(mode="json", exclude={"name", "most_passages"}),
            "passages": expected.passages,
            "playground": await _playground(session, principal, settings, order),
        },
    )
    session.add(dataset)
    await session.flush()
    record_change(session, principal, "dataset.questions_ordered", dataset, host=_host(order.endpoint))
    return dataset


async def stop(session: AsyncSession, principal: Principal, dataset_id: UUID) -> Dataset:
    """Ask no more; what was answered becomes the dataset."""
    dataset = await _questions_of(session, principal, dataset_id)
    if dataset.status != "generating":
        raise Conflict("No questions are being written for this dataset.", code="not_generating")
    dataset.questions = {**(dataset.questions or {}), "stopping": True}
    restart(dataset, "generating")
    await session.flush()
    record_change(session, principal, "dataset.questions_stopped", dataset)
    return dataset


async def resume(
    session: AsyncSession, principal: Principal, settings: Settings, dataset_id: UUID, most_tokens: int | None
) -> Dataset:
    """Ask about the passages that have no answer yet."""
    dataset = await _questions_of(session, principal, dataset_id)
    said = dict(dataset.questions or {})
    if dataset.status not in {"ready", "failed"}:
        raise Conflict("The questions of this dataset are still being written.", code="not_ended")
    if said.get("passages_done", 0) >= said["passages"]:
        raise Conflict("Every passage was asked about already.", code="nothing_to_continue")
    if most_tokens is not None:
        said["most_tokens"] = most_tokens
    order = QuestionsIn.model_validate(
        {name: said[name] for name in QuestionsIn.model_fields if name in said}
    )
    await _check_endpoint(session, principal, order)
    said["playground"] = await _playground(session, principal, settings, order)
    dataset.questions = {**said, "stopping": False, "end_reason": None}
    restart(dataset, "generating")
    await session.flush()
    record_change(session, principal, "dataset.questions_ordered", dataset, host=_host(order.endpoint))
    return dataset


async def _passages_of(session: AsyncSession, principal: Principal, dataset_id: UUID) -> Dataset:
    dataset = await get_ready_dataset(session, principal, dataset_id)
    if dataset.documents is None:
        raise Conflict(
            "Questions are written about documents. Make a dataset from documents first.",
            code="not_documents",
        )
    return dataset


async def _questions_of(session: AsyncSession, principal: Principal, dataset_id: UUID) -> Dataset:
    dataset = await get_dataset(session, principal, dataset_id)
    if dataset.questions is None:
        raise Conflict("The rows of this dataset are not written by a model.", code="not_generating")
    return dataset


def _estimate(passages: Dataset, order: QuestionsIn) -> QuestionsEstimate:
    made: dict[str, Any] = passages.documents or {}
    count = min(order.most_passages, made["passages"])
    average = -(-made["characters"] // max(1, made["passages"]))
    asked, answered = count * request_tokens(average), count * order.max_answer_tokens
    return QuestionsEstimate(
        passages=count,
        pairs=count * order.pairs,
        input_tokens=asked,
        answer_tokens=answered,
        tokens=min(asked + answered, order.most_tokens),
        limited=asked + answered > order.most_tokens,
    )


async def _check_endpoint(session: AsyncSession, principal: Principal, order: QuestionsIn) -> None:
    if order.endpoint is None:
        if order.secret is not None:
            raise InvalidInput.for_field(
                "secret", "A playground of this server needs no key. Remove it.", code="contradictory_fields"
            )
        return
    policy = Policy.of_operator()
    try:
        host, _ = policy.check_address(order.endpoint)
    except EgressRefused as problem:
        raise InvalidInput.for_field("endpoint", str(problem), code=problem.code) from problem
    if order.secret is None:
        return
    if urlsplit(order.endpoint).scheme != "https" and not policy.is_private(host):
        raise InvalidInput.for_field(
            "endpoint", "A key is sent over https only. Change the address.", code="key_needs_https"
        )
    await require_own(session, principal, order.secret)


async def _playground(
    session: AsyncSession, principal: Principal, settings: Settings, order: QuestionsIn
) -> dict[str, Any] | None:
    """The playground of a model of this server, opened when it is not there."""
    if order.endpoint is not None:
        return None
    served = await find_loaded(session, principal, order.model)
    if served is None:
        served = await open_served(session, principal, settings, order.model)
    return Playground(job_id=served.job_id, which=served.which).model_dump(mode="json")


def _host(endpoint: str | None) -> str:
    return "playground" if endpoint is None else str(urlsplit(endpoint).hostname)
