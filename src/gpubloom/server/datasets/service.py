"""Operations on datasets. Every query filters by the owner."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Select, case, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.errors import code_of
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.datasets.files import document_suffix, shown_name, suffix_of
from gpubloom.server.datasets.schemas import DatasetChange, DatasetFromHub, NewDataset, NewDocuments
from gpubloom.server.datasets.tables import Dataset, Status
from gpubloom.server.db.pages import Page, read_page
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import FindUse, require_room, require_unused


def visible_to(principal: Principal) -> Select[Dataset]:
    """The datasets a person may see: their own."""
    return select(Dataset).where(Dataset.user_id == principal.id)


async def list_datasets(session: AsyncSession, principal: Principal, page: Page) -> tuple[list[Dataset], int]:
    """A page of a person's datasets, the newest first, and how many there are."""
    return await read_page(
        session,
        visible_to(principal).order_by(Dataset.created_at.desc(), Dataset.id),
        page,
        searched=(Dataset.name, Dataset.filename),
    )


async def get_dataset(session: AsyncSession, principal: Principal, dataset_id: UUID) -> Dataset:
    """One dataset. Datasets of other users are not found."""
    dataset = await session.scalar(visible_to(principal).where(Dataset.id == dataset_id))
    if dataset is None:
        raise NotFound("This dataset does not exist.")
    return dataset


async def get_ready_dataset(session: AsyncSession, principal: Principal, dataset_id: UUID) -> Dataset:
    """One dataset that can be trained on."""
    dataset = await get_dataset(session, principal, dataset_id)
    if dataset.status != "ready":
        raise Conflict(f"The dataset is not ready (status: {dataset.status}).", code="dataset_not_ready")
    if dataset.report is None or not dataset.report["examples"]:
        raise Conflict(
            "The dataset has no row that can be used for training. Set its columns, or look at its problems.",
            code="dataset_without_examples",
        )
    return dataset


def is_here(dataset: Dataset) -> bool:
    """Whether all of the file is on the disk."""
    if dataset.source in {"documents", "questions"}:
        # Their rows are made here, and only then are they complete.
        return dataset.status in {"inspecting", "ready"}
    return dataset.status in {"inspecting", "ready"} or 0 < dataset.size == dataset.received


def _checked_filename(body: NewDataset | NewDocuments, suffix_of: Callable[[str], str]) -> str:
    try:
        suffix_of(body.filename)
    except ValueError as problem:
        raise InvalidInput.for_field("filename", str(problem), code=code_of(problem)) from problem
    filename = shown_name(body.filename)
    if body.size == 0:
        raise InvalidInput.for_field("size", f"{filename} is empty.", code="data_empty")
    return filename


async def create_dataset(
    session: AsyncSession, principal: Principal, settings: Settings, body: NewDataset
) -> Dataset:
    """A dataset that waits for its content."""
    filename = _checked_filename(body, suffix_of)
    await require_room(session, principal, settings, body.size)
    dataset = Dataset(
        id=uuid4(),
        user_id=principal.id,
        name=body.name or filename,
        filename=filename,
        source="upload",
        status="uploading",
        size=body.size,
        format=body.format,
        columns=body.columns,
        encoding=body.encoding,
    )
    session.add(dataset)
    await session.flush()
    record_change(session, principal, "dataset.created", dataset, size=body.size)
    return dataset


async def create_from_hub(
    session: AsyncSession, principal: Principal, settings: Settings, body: DatasetFromHub
) -> Dataset:
    """A dataset that a worker will fetch."""
    await require_room(session, principal, settings, 0)
    dataset = Dataset(
        id=uuid4(),
        user_id=principal.id,
        name=body.name or body.repository,
        # Known when it is fetched.
        filename="",
        source="hub",
        status="fetching",
        origin=body.model_dump(include={"repository", "config", "split", "revision"}),
    )
    session.add(dataset)
    await session.flush()
    record_change(session, principal, "dataset.fetched", dataset, repository=body.repository)
    return dataset


async def create_from_documents(
    session: AsyncSession, principal: Principal, settings: Settings, body: NewDocuments
) -> Dataset:
    """A dataset that waits for its documents."""
    filename = _checked_filename(body, document_suffix)
    await require_room(session, principal, settings, body.size)
    stem = filename.rpartition(".")[0]
    dataset = Dataset(
        id=uuid4(),
        user_id=principal.id,
        name=body.name or stem,
        filename=f"{stem}.jsonl",
        source="documents",
        status="uploading",
        size=body.size,
        format="text",
        columns={"text": "text"},
        documents={
            "filename": filename,
            "size": body.size,
            "passage_characters": body.passage_characters,
        },
    )
    session.add(dataset)
    await session.flush()
    record_change(session, principal, "dataset.created", dataset, size=body.size)
    return dataset


async def cut_again(
    session: AsyncSession, principal: Principal, dataset_id: UUID, passage_characters: int
) -> Dataset:
    """Cut the documents of a dataset to passages of another length."""
    dataset = await get_dataset(session, principal, dataset_id)
    if dataset.documents is None:
        raise Conflict("This dataset was not made from documents.", code="not_documents")
    if dataset.status not in {"parsing", "inspecting", "ready", "failed"}:
        raise Conflict(f"The documents are not here yet (status: {dataset.status}).", code="dataset_not_here")
    dataset.documents = {**dataset.documents, "passage_characters": passage_characters}
    restart(dataset, "parsing")
    await session.flush()
    record_change(session, principal, "dataset.changed", dataset)
    return dataset


def restart(dataset: Dataset, status: Status) -> None:
    """Let a worker begin anew in this status; whoever works on the row is no longer asked."""
    dataset.status = status
    dataset.progress = dataset.problem = dataset.report = None
    dataset.attempt = 0
    dataset.lease_token = dataset.lease_expires = dataset.worker = None


def failed(sentence: str) -> dict[str, Any]:
    """The new columns of a dataset that could not be made or read."""
    return {"status": "failed", "problem": sentence[:2_000], "progress": None, "report": None}


async def note_received(session: AsyncSession, dataset_id: UUID, received: int) -> None:
    """Keep how much has arrived; all of it is what a worker then inspects."""
    changes: dict[str, object] = {"received": received, "progress": None}
    whole = Dataset.size == received
    waiting = (Dataset.id == dataset_id, Dataset.status == "uploading")
    await session.execute(update(Dataset).where(*waiting, ~whole).values(changes))
    next_status = case((Dataset.source == "documents", "parsing"), else_="inspecting")
    await session.execute(update(Dataset).where(*waiting, whole).values(changes | {"status": next_status}))


async def change_dataset(
    session: AsyncSession, principal: Principal, dataset_id: UUID, body: DatasetChange
) -> Dataset:
    """Another name, or another way to read the file."""
    dataset = await get_dataset(session, principal, dataset_id)
    said = body.model_dump(exclude_unset=True)
    if body.name is not None:
        dataset.name = body.name
    said.pop("name", None)
    if "columns" in said and "format" not in said:
        # Columns alone decide the format, and no columns leave it to be guessed.
        said["format"] = body.format
    if "format" in said and "columns" not in said:
        # Those of another format would mean nothing.
        said["columns"] = {}
    if said:
        for field, value in said.items():
            setattr(dataset, field, value)
        if is_here(dataset):
            restart(dataset, "inspecting")
    await session.flush()
    record_change(session, principal, "dataset.changed", dataset)
    return dataset


async def delete_dataset(
    session: AsyncSession, principal: Principal, dataset_id: UUID, uses: Sequence[FindUse]
) -> Dataset:
    """Remove a dataset that nothing unfinished needs; its files are removed by the caller."""
    dataset = await get_dataset(session, principal, dataset_id)
    await require_unused(session, uses, "dataset", dataset.id)
    await session.execute(delete(Dataset).where(Dataset.id == dataset.id))
    record_change(session, principal, "dataset.deleted", dataset)
    return dataset


def record_change(
    session: AsyncSession, principal: Principal, action: str, dataset: Dataset, **details: str | int
) -> None:
    """Record a change of a dataset in the audit trail."""
    record(session, principal.actor, action, f"dataset:{dataset.id}", name=dataset.name, **details)
