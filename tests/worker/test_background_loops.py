"""What a worker and a server do in the background goes on after an error that nobody expected."""

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from gpubloom.server.db.database import Database
from gpubloom.server.jobs import recovery
from gpubloom.server.runs import receiving
from gpubloom.server.settings import Settings
from gpubloom.worker import imports, job_storage, rented_jobs
from gpubloom.worker.disk import MachineDisk
from tests.server.bringing import on_sqlite
from tests.server.installation import Installation

Loop = Callable[[Database, Settings, asyncio.Event], Awaitable[None]]


async def _prepare(database: Database, settings: Settings, stopping: asyncio.Event) -> None:
    disk = MachineDisk(settings.home / "runs")
    await imports.Preparations(settings, database, "here:1", lambda name: True, disk).run(stopping)


async def _settle(database: Database, settings: Settings, stopping: asyncio.Event) -> None:
    await recovery.keep_settling(database, settings.machine_timeout)


async def _watch(database: Database, settings: Settings, stopping: asyncio.Event) -> None:
    await receiving.keep_watching(database, settings, None)  # type: ignore[arg-type]


LOOPS: dict[str, tuple[ModuleType, str, str, Loop]] = {
    "preparing": (imports, "sweep", "SWEEP_SECONDS", _prepare),
    "measuring": (
        job_storage,
        "measure_jobs",
        "MEASURE_SECONDS",
        lambda database, settings, stopping: job_storage.keep_measuring(settings, database, "m", stopping),
    ),
    "expiring": (
        rented_jobs,
        "remove_expired",
        "RECONCILE_SECONDS",
        lambda database, settings, stopping: rented_jobs.keep_reconciling(settings, database, stopping),
    ),
    "settling": (recovery, "settle_cancelled", "SETTLE_SECONDS", _settle),
    "watching": (receiving, "watch_once", "_WATCH_SECONDS", _watch),
}


@on_sqlite
@pytest.mark.parametrize("name", LOOPS)
def test_an_unexpected_error_ends_no_loop(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, work, pause, loop = LOOPS[name]
    calls = 0

    async def scenario() -> None:
        called_again = asyncio.Event()

        async def fails(*_: Any, **__: Any) -> int:
            nonlocal calls
            calls += 1
            if calls > 1:
                called_again.set()
            raise KeyError("what nobody thought of")

        monkeypatch.setattr(module, work, fails)
        monkeypatch.setattr(module, pause, 0.01)
        settings = Settings(_env_file=None, home=installation.home, database_url=installation.database_url)
        database, stopping = Database(settings.database), asyncio.Event()
        running = asyncio.ensure_future(loop(database, settings, stopping))
        try:
            waiting = asyncio.create_task(called_again.wait())
            await asyncio.wait({running, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert called_again.is_set()
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await database.close()

    asyncio.run(scenario())
