"""Prepares what people brought: fetches it from a hub, inspects it, and clears away what was abandoned.

Each thing is claimed with a lease, worked on in a child process outside of any transaction, and written only
while the token holds. A worker that is killed leaves it as it was; the next one claims it again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import exists, select
from sqlalchemy.exc import SQLAlchemyError

from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.models.tables import Model
from gpubloom.server.settings import Settings
from gpubloom.worker import fetches, inspections, sweeping
from gpubloom.worker.disk import MachineDisk
from gpubloom.worker.file_leases import MOST_ATTEMPTS, claim, expire, holders, renew, settle
from gpubloom.worker.persisting import is_outage

log = structlog.get_logger("bloom.worker")

LOOK_SECONDS = 0.5
RENEW_SECONDS = 1.0
RELEASE_SECONDS = 2.0
SWEEP_SECONDS = 60.0

# What is seen along the way, by the names of the row's columns.
Seen = dict[str, Any]
Work = Callable[[Database, Settings, Any, Seen], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Kind:
    """A table, the status in which its rows wait, who prepares them and how many at once."""

    table: type[Any]
    status: str
    work: Work
    at_once: int


class Preparations:
    """All that one worker prepares, until it is told to stop."""

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
            Kind(Dataset, "inspecting", inspections.inspect_dataset, at_once=1),
            Kind(Dataset, "fetching", fetches.fetch_dataset, at_once=2),
            Kind(Model, "fetching", fetches.fetch_model, at_once=2),
        )
        self._running: dict[Kind, set[asyncio.Task[None]]] = {kind: set() for kind in self._kinds}

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
                    await self._try(lambda: sweeping.sweep(self._database, self._settings))
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
                log.warning("preparing waits for the database or the disk", reason=type(problem).__name__)
            else:
                log.error("preparing failed", exc_info=problem)
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
                if not await session.scalar(select(exists().where(kind.table.status == kind.status))):
                    return
            async with self._database.write() as session:
                row = await claim(session, kind.table, kind.status, self._worker)
            if row is None:
                return
            task = asyncio.create_task(self._prepare(kind, row), name=f"prepare {row.id}")
            self._running[kind].add(task)
            task.add_done_callback(lambda done, kind=kind: self._ended(kind, done))  # type: ignore[misc]

    def _ended(self, kind: Kind, task: asyncio.Task[None]) -> None:
        self._running[kind].discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            # The lease runs out, and somebody tries again.
            log.error("preparing failed", exc_info=problem)

    async def _prepare(self, kind: Kind, row: Any) -> None:
        if row.attempt > MOST_ATTEMPTS:
            sentence = f"This was tried {MOST_ATTEMPTS} times, and each time the worker came to an end."
            await self._settle(kind, row, {"status": "failed", "problem": sentence, "progress": None})
            return
        seen: Seen = {}
        work: asyncio.Task[dict[str, Any]] = asyncio.ensure_future(
            kind.work(self._database, self._settings, row, seen)
        )
        try:
            while not (await asyncio.wait({work}, timeout=RENEW_SECONDS))[0]:
                if not await self._renew(kind, row, seen):
                    # Deleted, or to be read another way now.
                    return
            outcome = work.result()
            if outcome.get("status") == "failed" and await self._disk.examine() is not None:
                # The disk of this machine is at fault: it waits for the next try, which is not counted.
                outcome = {"attempt": row.attempt - 1, "progress": None}
            await self._settle(kind, row, outcome)
        except asyncio.CancelledError:
            # Nothing was wrong with it: it does not count as a try.
            await asyncio.shield(self._settle(kind, row, {"attempt": row.attempt - 1}))
            raise
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self._try(lambda: sweeping.remove_if_gone(self._database, self._settings, row))

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
        for _ in range(30):
            try:
                async with self._database.write() as session:
                    await settle(session, kind.table, row.id, row.lease_token, outcome)
            except (SQLAlchemyError, OSError) as problem:
                if not is_outage(problem):
                    raise
                log.warning("the database does not answer, trying again", reason=type(problem).__name__)
                await asyncio.sleep(1)
            else:
                return
