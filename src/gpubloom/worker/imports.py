"""Prepare the datasets and models that people bring: download, inspect, delete what was abandoned.

A row that waits is claimed with a lease by the same rules as a job (docs/jobs.md): the token is the right
to write, and every write carries it. The work is done by a child process, outside of any transaction. A
worker that is killed leaves the row as it was, and the next worker claims it again.
"""

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import structlog
from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.hub_tokens import open_hub_token
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.datasets import files as dataset_files
from gpubloom.server.datasets import service as datasets
from gpubloom.server.datasets.files import dataset_file, dataset_folder, problems_file
from gpubloom.server.datasets.reading import MODULE, inspection_request
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.clock import database_time
from gpubloom.server.db.database import Database
from gpubloom.server.models import files as model_files
from gpubloom.server.models import service as models
from gpubloom.server.models.checks import CheckFailed, check_folder
from gpubloom.server.models.files import fetching_folder, own_folder
from gpubloom.server.models.tables import Model
from gpubloom.server.schema import storable
from gpubloom.server.settings import Settings
from gpubloom.server.storage import children
from gpubloom.server.storage.fetch_process import FETCHED
from gpubloom.server.storage.service import room_left
from gpubloom.traincard.number_encoding import plain
from gpubloom.traincard.retry import RetryPolicy
from gpubloom.worker.disk import MachineDisk
from gpubloom.worker.documents import parse_documents
from gpubloom.worker.questions import generate_questions
from gpubloom.worker.retries import DatabaseUnavailable, is_outage, persist
from gpubloom.worker.stray_folders import ABANDONED_AFTER, remove_folder, remove_if_gone, remove_strays

log = structlog.get_logger("bloom.worker")

LEASE = timedelta(seconds=20)
# After this many failed attempts, the next one would fail too.
MOST_ATTEMPTS = 3
LOOK_SECONDS = 0.5
RENEW_SECONDS = 1.0
RELEASE_SECONDS = 2.0
SWEEP_SECONDS = 60.0
# A worker that is told to stop waits no longer than this.
SETTLE_RETRIES = RetryPolicy(first_pause=1.0, longest_pause=1.0, max_calls=30)
_FETCH_MODULE = "gpubloom.server.storage.fetch_process"
# A large model over a slow line takes a day; more is a line that hangs.
_FETCH_SECONDS = 2 * 24 * 3600.0
# A slow disk and a busy machine read this much in a second.
_SLOWEST_BYTES_PER_SECOND = 2_000_000
_LEAST_SECONDS = 300.0

Imported = TypeVar("Imported", Dataset, Model)
# Progress, by the names of the row's columns.
Seen = dict[str, Any]
Work = Callable[[Database, Settings, Any, Seen], Awaitable[dict[str, Any]]]


def _waits(table: type[Imported], status: str) -> ColumnElement[bool]:
    return and_(
        table.status == status, or_(table.lease_expires.is_(None), table.lease_expires < database_time())
    )


async def waiting_people(session: AsyncSession, table: type[Imported], status: str) -> list[UUID]:
    """Who has rows that wait in a status; first whose row has waited longest."""
    oldest = func.min(table.updated_at)
    people = select(table.user_id).where(_waits(table, status)).group_by(table.user_id).order_by(oldest)
    return list(await session.scalars(people))


async def claim(
    session: AsyncSession, table: type[Imported], status: str, worker: str, *, user_id: UUID | None = None
) -> Imported | None:
    """The row of this person, or of anybody, that has waited longest in a status and has no worker."""
    chosen = (
        select(table.id)
        .where(_waits(table, status), *(() if user_id is None else (table.user_id == user_id,)))
        .order_by(table.updated_at, table.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    claimed: Imported | None = await session.scalar(
        update(table)
        .where(table.id == chosen)
        .values(
            lease_token=uuid4(), lease_expires=database_time(LEASE), worker=worker, attempt=table.attempt + 1
        )
        .returning(table)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return claimed


async def renew(
    session: AsyncSession, table: type[Imported], row_id: UUID, token: UUID, seen: dict[str, Any]
) -> bool:
    """Renew the lease and store the progress; returns whether the lease is still held."""
    renewed = await session.execute(
        update(table)
        .where(table.id == row_id, table.lease_token == token)
        .values(lease_expires=database_time(LEASE), **seen)
        .returning(table.id)
        .execution_options(synchronize_session=False)
    )
    return renewed.one_or_none() is not None


async def settle(
    session: AsyncSession, table: type[Imported], row_id: UUID, token: UUID, outcome: dict[str, Any]
) -> bool:
    """Store the result and release the lease. Nothing is stored if the lease was lost."""
    freed = {"lease_token": None, "lease_expires": None, "worker": None}
    settled = await session.execute(
        update(table)
        .where(table.id == row_id, table.lease_token == token)
        .values(**outcome, **freed)
        .returning(table.id)
        .execution_options(synchronize_session=False)
    )
    return settled.one_or_none() is not None


async def holders(session: AsyncSession, table: type[Imported]) -> set[str]:
    """The workers that hold leases."""
    names = await session.scalars(
        select(table.worker).where(table.lease_expires > database_time()).distinct()
    )
    return {name for name in names if name is not None}


async def expire(session: AsyncSession, table: type[Imported], workers: Collection[str]) -> None:
    """End the leases of workers that are known to be gone."""
    await session.execute(
        update(table)
        .where(table.worker.in_(workers))
        .values(lease_expires=database_time())
        .execution_options(synchronize_session=False)
    )


async def fetch_dataset(
    database: Database, settings: Settings, dataset: Dataset, seen: dict[str, Any]
) -> dict[str, Any]:
    """Download a dataset. Returns the new columns of its row: a file to inspect, or the problem."""
    origin = dataset.origin
    request = {
        "kind": "dataset",
        "staging": str(dataset_folder(settings, dataset.id)),
        **{name: origin.get(name) for name in ("repository", "config", "split", "revision")},
    }
    said = await _fetch(database, settings, dataset, request, seen)
    if "fetched" not in said:
        return _fetch_failed(said)
    found = said["fetched"]
    return {
        "status": "inspecting",
        "filename": found["filename"],
        "size": found["size"],
        "received": found["size"],
        "origin": origin | {name: found[name] for name in ("config", "split", "revision", "notes")},
        "progress": None,
        "problem": None,
        "attempt": 0,
    }


async def fetch_model(
    database: Database, settings: Settings, model: Model, seen: dict[str, Any]
) -> dict[str, Any]:
    """Download a model. Returns the new columns of its row: a checked folder, or the problem."""
    folder, staging = own_folder(settings, model.id), fetching_folder(settings, model.id)
    request = {
        "kind": "model",
        "staging": str(staging),
        "repository": model.repository,
        "revision": model.revision,
    }
    said = await _fetch(database, settings, model, request, seen)
    if "fetched" not in said:
        return _fetch_failed(said)
    await asyncio.to_thread(_move_fetched, staging, folder)
    try:
        check = await check_folder(folder, settings.sandbox_mode)
    except CheckFailed as failure:
        return _fetch_failed({"refused": str(failure)})
    found = said["fetched"]
    return {
        "status": "ready",
        "revision": found["revision"],
        "size": found["size"],
        "received": found["size"],
        "check": check,
        "progress": None,
        "problem": None,
    }


def _move_fetched(staging: Path, folder: Path) -> None:
    # An earlier worker may have moved it and ended before it could say so.
    shutil.rmtree(folder, ignore_errors=True)
    (staging / FETCHED).rename(folder)
    shutil.rmtree(staging, ignore_errors=True)


async def _fetch(
    database: Database,
    settings: Settings,
    row: Dataset | Model,
    request: dict[str, Any],
    seen: dict[str, Any],
) -> dict[str, Any]:
    async with database.read() as session:
        token = await open_hub_token(session, settings, row.user_id)
        # The size that is already counted for this row does not reduce its quota.
        room = await room_left(session, settings, row.user_id) + row.size
    request |= {"token": token, "most_bytes": room, "sandbox": settings.sandbox_mode}
    last: dict[str, Any] = {}
    try:
        async with aclosing(children.answers(_FETCH_MODULE, request, seconds=_FETCH_SECONDS)) as answers:
            async for said in answers:
                if "received" in said:
                    seen["received"], seen["size"] = said["received"], said["size"]
                    seen["progress"] = said["received"] / max(1, said["size"])
                last = said
    except children.ChildFailed as failure:
        return {"refused": f"The download did not finish. {failure}"}
    return last


def _fetch_failed(said: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "failed",
        "problem": str(said.get("refused", "The download process sent no result.")),
        "progress": None,
        "size": 0,
        "received": 0,
    }


async def inspect_dataset(
    database: Database, settings: Settings, dataset: Dataset, seen: dict[str, Any]
) -> dict[str, Any]:
    """Inspect a dataset. Returns the new columns of its row; `seen` holds the progress."""
    if not dataset_file(settings, dataset).is_file():
        return datasets.failed("The file is no longer on the server's disk. Upload it again.")
    seconds = _LEAST_SECONDS + dataset.size / _SLOWEST_BYTES_PER_SECOND
    request = inspection_request(settings, dataset, problems_file(settings, dataset.id), seconds)
    last: dict[str, Any] = {}
    try:
        async with aclosing(children.answers(MODULE, request, seconds=seconds)) as answers:
            async for said in answers:
                if "progress" in said:
                    seen["progress"] = said["progress"]
                last = said
    except children.ChildFailed as failure:
        return datasets.failed(f"The inspection did not finish. {failure}")
    if "report" not in last:
        return datasets.failed(str(last.get("refused", "The inspection process sent no report.")))
    return {"status": "ready", "report": last["report"], "problem": None, "progress": None}


async def sweep(database: Database, settings: Settings) -> None:
    """Finish complete uploads; delete abandoned ones and stray folders."""
    async with database.read() as session:
        uploads = list(await session.scalars(select(Dataset).where(Dataset.status == "uploading")))
        model_uploads = list(await session.scalars(select(Model).where(Model.status == "uploading")))
    for dataset in uploads:
        arriving = dataset_files.arriving_file(settings, dataset)
        if arriving.is_whole:
            async with database.write() as session:
                await datasets.note_received(session, dataset.id, dataset.size)
        elif _is_abandoned(dataset, dataset_files.dataset_folder(settings, dataset.id)):
            await _abandon(database, settings, dataset)
    for model in model_uploads:
        folder = model_files.own_folder(settings, model.id)
        if await asyncio.to_thread(model_files.is_whole, settings, model):
            await _check(database, settings, model, folder)
        elif _is_abandoned(model, folder):
            await _abandon(database, settings, model)
    await remove_strays(database, settings)


def _is_abandoned(row: Dataset | Model, folder: Path) -> bool:
    """Whether neither the row nor a file of it has changed for a day."""
    moments = [row.updated_at.timestamp()]
    if folder.is_dir():
        moments += [path.stat().st_mtime for path in folder.iterdir()]
    return time.time() - max(moments) > ABANDONED_AFTER.total_seconds()


async def _abandon(database: Database, settings: Settings, row: Dataset | Model) -> None:
    async with database.write() as session:
        stored: Dataset | Model | None = await session.get(type(row), row.id)
        if stored is None or stored.updated_at != row.updated_at:
            return
        await session.delete(stored)
        kind = type(row).__name__.lower()
        record(session, SYSTEM, f"{kind}.abandoned", f"{kind}:{row.id}", name=row.name)
    await remove_folder(settings, type(row), row.id)


async def _check(database: Database, settings: Settings, model: Model, folder: Path) -> None:
    try:
        check = await check_folder(folder, settings.sandbox_mode)
    except CheckFailed as failure:
        async with database.write() as session:
            await models.note_failure(session, model.id, str(failure))
        return
    async with database.write() as session:
        await models.note_check(session, model.id, check)


@dataclass(frozen=True)
class Kind:
    """A table, the status in which its rows wait, who prepares them, and how many at once: of all people,
    and of one. Work that a person can make last for hours leaves places to others."""

    table: type[Any]
    status: str
    work: Work
    at_once: int
    per_person: int


class Preparations:
    """The datasets and models that one worker prepares, until it is told to stop."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        worker: str,
        lives: Callable[[str], bool],
        disk: MachineDisk,
    ) -> None:
        self._settings = settings
        self._database = database
        self._worker = worker
        self._lives = lives
        self._disk = disk
        self._kinds: tuple[Kind, ...] = (
            Kind(Dataset, "inspecting", inspect_dataset, at_once=1, per_person=1),
            Kind(Dataset, "fetching", fetch_dataset, at_once=4, per_person=2),
            Kind(Dataset, "parsing", parse_documents, at_once=2, per_person=1),
            Kind(Dataset, "generating", generate_questions, at_once=16, per_person=2),
            Kind(Model, "fetching", fetch_model, at_once=4, per_person=2),
        )
        # Whose row each task prepares.
        self._running: dict[Kind, dict[asyncio.Task[None], UUID]] = {kind: {} for kind in self._kinds}
        # People in the order in which they were last served: many files of one person hold up nobody else's.
        self._served: dict[Kind, dict[UUID, None]] = {kind: {} for kind in self._kinds}

    async def run(self, stopping: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        swept = released = -1e9
        try:
            while not stopping.is_set():
                if clock() - released >= RELEASE_SECONDS:
                    released = clock()
                    await self._try(self._take_over_from_the_dead)
                for kind in self._kinds if await self._disk.is_usable() else ():
                    await self._try(lambda kind=kind: self._claim(kind))  # type: ignore[misc]
                if clock() - swept >= SWEEP_SECONDS:
                    swept = clock()
                    await self._try(lambda: sweep(self._database, self._settings))
                await self._wait(stopping)
        finally:
            tasks = self._tasks()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for running in self._running.values() for task in running]

    async def _wait(self, stopping: asyncio.Event) -> None:
        """A moment, or until there is room for the next one."""
        told = asyncio.create_task(stopping.wait())
        await asyncio.wait({told, *self._tasks()}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (SQLAlchemyError, OSError) as problem:
            if isinstance(problem, OSError) or is_outage(problem):
                log.warning(
                    "preparing datasets and models waits for the database or the disk",
                    reason=type(problem).__name__,
                )
            else:
                log.error("preparing datasets and models failed", exc_info=problem)
            await asyncio.sleep(1)
        except Exception as problem:
            # One row must not end the preparation of all others.
            log.error("preparing datasets and models failed", exc_info=problem)
            await asyncio.sleep(1)

    async def _take_over_from_the_dead(self) -> None:
        tables: tuple[type[Any], ...] = (Dataset, Model)
        for table in tables:
            # A read first: an idle worker takes no write lock.
            async with self._database.read() as session:
                others = await holders(session, table) - {self._worker}
            if gone := [name for name in others if not self._lives(name)]:
                async with self._database.write() as session:
                    await expire(session, table, gone)

    async def _claim(self, kind: Kind) -> None:
        while len(self._running[kind]) < kind.at_once:
            # A read first: an idle worker takes no write lock.
            async with self._database.read() as session:
                people = await waiting_people(session, kind.table, kind.status)
            served = self._served[kind]
            if not people:
                served.clear()
                return
            holding = Counter(self._running[kind].values())
            people = [user_id for user_id in people if holding[user_id] < kind.per_person]
            if not people:
                return
            order = {user_id: position for position, user_id in enumerate(served)}
            chosen = min(people, key=lambda user_id: order.get(user_id, -1))
            async with self._database.write() as session:
                row = await claim(session, kind.table, kind.status, self._worker, user_id=chosen)
            if row is None:
                return
            served.pop(chosen, None)
            served[chosen] = None
            task = asyncio.create_task(self._prepare(kind, row), name=f"prepare {row.id}")
            self._running[kind][task] = chosen
            task.add_done_callback(lambda done, kind=kind: self._ended(kind, done))  # type: ignore[misc]

    def _ended(self, kind: Kind, task: asyncio.Task[None]) -> None:
        self._running[kind].pop(task, None)
        if not task.cancelled() and (problem := task.exception()) is not None:
            # The lease expires, and a worker tries again.
            log.error("preparing a dataset or a model failed", exc_info=problem)

    async def _prepare(self, kind: Kind, row: Any) -> None:
        if row.attempt > MOST_ATTEMPTS:
            sentence = (
                f"Preparing this file failed {MOST_ATTEMPTS} times because the worker stopped each time."
            )
            await self._settle(kind, row, {"status": "failed", "problem": sentence, "progress": None})
            return
        seen: Seen = {}
        work: asyncio.Task[dict[str, Any]] = asyncio.ensure_future(
            kind.work(self._database, self._settings, row, seen)
        )
        try:
            while not (await asyncio.wait({work}, timeout=RENEW_SECONDS))[0]:
                if not await self._renew(kind, row, seen):
                    # The row was deleted, or its owner changed how it is read.
                    return
            outcome = work.result()
            if outcome.get("status") == "failed" and await self._disk.examine() is not None:
                # The disk of this machine is at fault: it waits for the next try, which is not counted.
                outcome = {"attempt": row.attempt - 1, "progress": None}
            await self._settle(kind, row, outcome)
        except asyncio.CancelledError:
            # The worker was told to stop: this does not count as a failed attempt.
            await asyncio.shield(self._settle(kind, row, {"attempt": row.attempt - 1}))
            raise
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self._try(lambda: remove_if_gone(self._database, self._settings, row))

    async def _renew(self, kind: Kind, row: Any, seen: Seen) -> bool:
        try:
            async with self._database.write() as session:
                return await renew(session, kind.table, row.id, row.lease_token, seen)
        except (SQLAlchemyError, OSError) as problem:
            if not is_outage(problem):
                raise
            log.warning("the database does not answer, trying again", reason=type(problem).__name__)
            return True

    async def _settle(self, kind: Kind, row: Any, outcome: dict[str, Any]) -> None:
        # What strangers wrote is in it: names of files, and what is wrong with them.
        kept = plain(outcome, text=storable)

        async def settled() -> None:
            async with self._database.write() as session:
                await settle(session, kind.table, row.id, row.lease_token, kept)

        # Given up, the lease expires, and a worker prepares the row again.
        with contextlib.suppress(DatabaseUnavailable):
            await persist(settled, log, SETTLE_RETRIES)
