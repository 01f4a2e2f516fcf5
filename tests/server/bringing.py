"""Brings files to a server as clients do, and prepares them as a worker does, in the test's own process."""

import asyncio
import time
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.models.tables import Model
from gpubloom.server.settings import Settings
from gpubloom.worker.disk import MachineDisk
from gpubloom.worker.imports import Preparations, sweep
from tests.server.installation import Browser, Server

TIMEOUT_SECONDS = 120
# For behaviour that lies before or behind the database, which one run shows as well as two.
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def announce(browser: Browser, filename: str, size: int, **more: Any) -> dict[str, Any]:
    """The dataset that waits for its content."""
    answer = browser.post("/api/datasets", json={"filename": filename, "size": size, **more})
    assert answer.status_code == 201, answer.text
    announced: dict[str, Any] = answer.json()
    return announced


def send(browser: Browser, address: str, content: bytes, offset: int = 0) -> Any:
    """One piece at its offset."""
    return browser.patch(
        address,
        content=content,
        headers={"Upload-Offset": str(offset), "Content-Type": "application/octet-stream"},
    )


def upload(browser: Browser, filename: str, content: bytes, **more: Any) -> str:
    """The id of a dataset whose content is all there."""
    dataset_id: str = announce(browser, filename, len(content), **more)["id"]
    answer = send(browser, f"/api/datasets/{dataset_id}/content", content)
    assert answer.status_code == 204, answer.text
    return dataset_id


def prepare(settings: Settings) -> None:
    """Do what a worker does until nothing waits any more."""

    async def work() -> None:
        database = Database(settings.database)
        preparations = Preparations(
            settings, database, "here:1", lambda _: True, MachineDisk(settings.home / "runs")
        )
        stopping = asyncio.Event()
        task = asyncio.create_task(preparations.run(stopping))
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while await _waiting(database):
                assert time.monotonic() < deadline, "preparing takes too long"
                assert not task.done(), task
                await asyncio.sleep(0.05)
        finally:
            stopping.set()
            await task
            await database.close()

    asyncio.run(work())


def clear_away(settings: Settings) -> None:
    """What a worker does every minute."""

    async def work() -> None:
        database = Database(settings.database)
        try:
            await sweep(database, settings)
        finally:
            await database.close()

    asyncio.run(work())


async def _waiting(database: Database) -> bool:
    async with database.read() as session:
        for table in (Dataset, Model):
            waits = table.status.in_(("inspecting", "fetching", "parsing", "generating"))
            if await session.scalar(select(table.id).where(waits).limit(1)) is not None:
                return True
    return False


def inspected(server: Server, browser: Browser, dataset_id: str | UUID) -> dict[str, Any]:
    """A dataset as it is once a worker has looked at it."""
    prepare(server.settings)
    answer = browser.get(f"/api/datasets/{dataset_id}")
    assert answer.status_code == 200, answer.text
    dataset: dict[str, Any] = answer.json()
    assert dataset["status"] in {"ready", "failed"}, dataset
    return dataset


def brought(server: Server, browser: Browser, filename: str, content: bytes, **more: Any) -> dict[str, Any]:
    """A file uploaded and inspected."""
    return inspected(server, browser, upload(browser, filename, content, **more))
