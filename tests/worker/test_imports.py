"""Inspections by workers: leases, kills, deletions and files that never let go."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.datasets.files import dataset_file, dataset_folder
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.settings import Settings
from gpubloom.server.storage import children
from gpubloom.worker import imports
from gpubloom.worker.disk import MachineDisk
from gpubloom.worker.imports import MOST_ATTEMPTS, Preparations, claim, settle
from tests.server.installation import Installation

LINE = b'{"prompt": "What?", "completion": "That."}\n'
TIMEOUT_SECONDS = 120


@pytest.fixture
def settings(installation: Installation) -> Settings:
    found = Settings(_env_file=None, home=installation.home, database_url=installation.database_url)
    found.home.mkdir(parents=True, exist_ok=True)
    return found


def _dataset(
    installation: Installation,
    settings: Settings,
    content: bytes = LINE * 100,
    owner: User | None = None,
    status: str = "inspecting",
    **more: Any,
) -> Dataset:
    user = owner or installation.add_user(f"u{uuid4().hex}")
    dataset = Dataset(
        id=uuid4(),
        user_id=user.id,
        name="d",
        filename="d.jsonl",
        source="upload",
        status=status,
        size=len(content),
        received=len(content),
        **more,
    )
    folder = dataset_folder(settings, dataset.id)
    folder.mkdir(parents=True)
    dataset_file(settings, dataset).write_bytes(content)
    return installation.add(dataset)


@asynccontextmanager
async def _worker(
    settings: Settings, name: str = "here:1", alive: bool = True
) -> AsyncIterator[asyncio.Task[None]]:
    database = Database(settings.database)
    stopping = asyncio.Event()
    disk = MachineDisk(settings.home / "runs")
    task = asyncio.create_task(Preparations(settings, database, name, lambda _: alive, disk).run(stopping))
    try:
        yield task
    finally:
        stopping.set()
        await task
        await database.close()


async def _when(installation: Installation, dataset_id: UUID, holds: Callable[[Dataset], object]) -> Dataset:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        found = await asyncio.to_thread(installation.get, Dataset, dataset_id)
        assert found is not None
        if holds(found):
            return found
        assert time.monotonic() < deadline, (found.status, found.problem, found.progress)
        await asyncio.sleep(0.05)


def test_a_report_is_stored_and_the_lease_given_up(installation: Installation, settings: Settings) -> None:
    dataset = _dataset(installation, settings)

    async def work() -> Dataset:
        async with _worker(settings):
            return await _when(installation, dataset.id, lambda row: row.status == "ready")

    row = asyncio.run(work())
    assert row.report is not None
    assert (row.report["rows"], row.lease_token, row.worker, row.progress) == (100, None, None, None)


def test_many_files_of_one_person_do_not_hold_up_the_others(
    installation: Installation, settings: Settings
) -> None:
    ada, bo, cy = (installation.add_user(name) for name in ("Ada", "Bo", "Cy"))
    owners = [ada] * 4 + [bo] * 2 + [cy]
    datasets = {_dataset(installation, settings, owner=owner).id: owner.name for owner in owners}

    async def work() -> list[Dataset]:
        async with _worker(settings):
            return [await _when(installation, each, lambda row: row.status == "ready") for each in datasets]

    inspected = sorted(asyncio.run(work()), key=lambda row: row.updated_at)
    assert [datasets[row.id] for row in inspected] == ["Ada", "Bo", "Cy", "Ada", "Bo", "Ada", "Ada"]


def test_long_work_of_one_person_leaves_places_to_the_others(
    installation: Installation, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that are slow to parse, endpoints that are slow to answer."""
    ada, bo = installation.add_user("Ada"), installation.add_user("Bo")
    release = asyncio.Event()
    working: dict[str, set[UUID]] = {"parsing": set(), "generating": set()}

    async def work(*about: Any) -> dict[str, Any]:
        working[about[2].status].add(about[2].user_id)
        await release.wait()
        return {"status": "ready"}

    monkeypatch.setattr(imports, "parse_documents", work)
    monkeypatch.setattr(imports, "generate_questions", work)
    for status in working:
        for owner in (*[ada] * 20, bo):
            _dataset(installation, settings, owner=owner, status=status)

    async def both_are_served() -> None:
        async with _worker(settings):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while any(people != {ada.id, bo.id} for people in working.values()):
                    await asyncio.sleep(0.05)
            release.set()

    asyncio.run(both_are_served())


@pytest.mark.long
def test_a_worker_that_is_killed_leaves_the_dataset_to_the_next(
    installation: Installation, settings: Settings
) -> None:
    """A real worker process, killed in the middle of its inspection, with the child that it had."""
    dataset = _dataset(installation, settings, LINE * 200_000)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
    first = subprocess.Popen(
        [sys.executable, "-m", "gpubloom.cli", "server", "worker"],
        env={**clean, "BLOOM_HOME": str(settings.home), "BLOOM_DATABASE_URL": installation.database_url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    async def work() -> Dataset:
        seen = await _when(installation, dataset.id, lambda row: row.lease_token and row.progress)
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert seen.status == "inspecting"
        assert seen.report is None
        async with _worker(settings, "here:2", alive=False):
            return await _when(installation, dataset.id, lambda row: row.status == "ready")

    try:
        row = asyncio.run(work())
    finally:
        first.kill()
        first.wait()
    assert row.report is not None
    assert (row.report["rows"], row.attempt) == (200_000, 2)
    assert [path.name for path in dataset_folder(settings, dataset.id).glob(".*.partial")] == []


@pytest.mark.long
def test_a_dataset_whose_worker_died_is_taken_over_by_one_that_runs_already(
    installation: Installation, settings: Settings
) -> None:
    first = _dataset(installation, settings)

    async def work() -> Dataset:
        async with _worker(settings, "here:2", alive=False):
            await _when(installation, first.id, lambda row: row.status == "ready")
            held = {"lease_token": uuid4(), "lease_expires": now() + timedelta(hours=1), "worker": "here:1"}
            dataset = await asyncio.to_thread(lambda: _dataset(installation, settings, **held))
            return await _when(installation, dataset.id, lambda row: row.status == "ready")

    assert asyncio.run(work()).worker is None


def test_a_worker_that_is_told_to_stop_gives_the_dataset_back_at_once(
    installation: Installation, settings: Settings
) -> None:
    dataset = _dataset(installation, settings, LINE * 500_000)

    async def work() -> None:
        async with _worker(settings):
            await _when(installation, dataset.id, lambda row: row.lease_token)

    asyncio.run(work())
    row = installation.get(Dataset, dataset.id)
    assert row is not None
    assert (row.status, row.lease_token, row.attempt) == ("inspecting", None, 0)


def test_a_dataset_deleted_while_it_is_inspected_ends_the_inspection(
    installation: Installation, settings: Settings
) -> None:
    dataset = _dataset(installation, settings, LINE * 500_000)
    folder = dataset_folder(settings, dataset.id)

    def delete() -> None:
        with installation.session() as session:
            session.delete(session.get_one(Dataset, dataset.id))

    async def work() -> None:
        async with _worker(settings):
            await _when(installation, dataset.id, lambda row: row.lease_token)
            await asyncio.to_thread(delete)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while folder.exists():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    asyncio.run(work())


def test_a_worker_that_lost_its_lease_writes_nothing(installation: Installation, settings: Settings) -> None:
    dataset = _dataset(installation, settings)

    async def work() -> None:
        database = Database(settings.database)
        async with database.write() as session:
            first = await claim(session, Dataset, "inspecting", "first:1")
            assert first is not None
            assert first.lease_token is not None
            assert await claim(session, Dataset, "inspecting", "second:2") is None
        installation.change(dataset, lease_expires=now())
        async with database.write() as session:
            second = await claim(session, Dataset, "inspecting", "second:2")
            assert second is not None
        async with database.write() as session:
            assert not await settle(session, Dataset, dataset.id, first.lease_token, {"status": "failed"})
            assert await settle(session, Dataset, dataset.id, second.lease_token, {"status": "ready"})  # type: ignore[arg-type]
        await database.close()

    asyncio.run(work())
    row = installation.get(Dataset, dataset.id)
    assert row is not None
    assert row.status == "ready"


def test_a_file_that_ends_every_worker_fails_in_the_end(
    installation: Installation, settings: Settings
) -> None:
    dataset = _dataset(installation, settings, attempt=MOST_ATTEMPTS)

    async def work() -> Dataset:
        async with _worker(settings):
            return await _when(installation, dataset.id, lambda row: row.status == "failed")

    assert "3 times" in (asyncio.run(work()).problem or "")


def test_an_inspection_that_takes_too_long_is_ended_with_a_sentence(
    installation: Installation, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_LEAST_SECONDS", 0.01)
    dataset = _dataset(installation, settings)

    async def work() -> Dataset:
        async with _worker(settings):
            return await _when(installation, dataset.id, lambda row: row.status == "failed")

    assert "took longer" in (asyncio.run(work()).problem or "")


def test_a_lost_file_fails_with_a_sentence(installation: Installation, settings: Settings) -> None:
    dataset = _dataset(installation, settings)
    dataset_file(settings, dataset).unlink()

    async def work() -> Dataset:
        async with _worker(settings):
            return await _when(installation, dataset.id, lambda row: row.status == "failed")

    assert "no longer on the server's disk" in (asyncio.run(work()).problem or "")


def test_children_know_no_settings_and_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_DATABASE_URL", "postgresql://user:secret@host/name")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "secret" not in repr(children._environment())


def test_looking_for_work_takes_no_write_lock(
    installation: Installation, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(imports, "SWEEP_SECONDS", 3600.0)
    counts = {"read": 0, "write": 0}

    def count(name: str) -> None:
        original = getattr(Database, name)

        def counted(self: Database) -> Any:
            counts[name] += 1
            return original(self)

        monkeypatch.setattr(Database, name, counted)

    async def looked(times: int) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            until = counts["read"] + times
            while counts["read"] < until:
                await asyncio.sleep(0.01)

    async def work() -> None:
        count("read")
        async with _worker(settings):
            # What is done once at the start may write.
            await looked(5)
            count("write")
            await looked(10)
            assert counts["write"] == 0

    asyncio.run(work())
