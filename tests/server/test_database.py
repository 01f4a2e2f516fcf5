"""Transactions: one writer at a time on SQLite, nothing lost on either database."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import DBAPIError
from starlette.types import Message, Receive, Scope, Send

from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.problems import TooManyRequests
from gpubloom.server.security.rates import Rate, RateCount
from gpubloom.server.settings import Settings
from tests.errors import raises
from tests.server.installation import Browser, Installation

WRITERS, TIMES = 8, 20


def _run(database_url: str, work: Callable[[Database], Awaitable[None]]) -> None:
    async def with_database() -> None:
        database = Database(database_url)
        try:
            await work(database)
        finally:
            await database.close()

    asyncio.run(with_database())


def test_many_writers_at_once_lose_nothing_and_none_is_turned_away(database_url: str) -> None:
    rate = Rate("test", limit=10**6, seconds=10**8)

    async def work(database: Database) -> None:
        # A second pool stands for a second server.
        second = Database(database_url)

        async def count(number: int) -> None:
            for _ in range(TIMES):
                await rate.count((database, second)[number % 2], "key")

        await asyncio.gather(*(count(number) for number in range(WRITERS)))
        async with database.read() as session:
            assert await session.scalar(select(RateCount.count)) == WRITERS * TIMES
        await second.close()

    _run(database_url, work)


def test_one_more_than_the_limit_is_refused_however_they_come(database_url: str) -> None:
    rate = Rate("test", limit=5, seconds=10**8)

    async def work(database: Database) -> None:
        tries = await asyncio.gather(*(rate.count(database, "key") for _ in range(9)), return_exceptions=True)
        assert [isinstance(outcome, TooManyRequests) for outcome in tries].count(True) == 4
        await rate.count(database, "another key")

    _run(database_url, work)


def test_a_writer_that_is_cancelled_amid_a_statement_locks_nobody_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.server.db.database.SQLITE_BUSY_SECONDS", 5)
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000000)"
    rate = Rate("test", limit=10**6, seconds=10**8)

    async def work(database: Database) -> None:
        under_way = asyncio.Event()

        async def write() -> None:
            async with database.write() as session:
                await session.execute(text("DELETE FROM rate_counts"))
                under_way.set()
                await session.execute(text(f"{numbers} SELECT max(x) FROM n"))

        writer = asyncio.create_task(write())
        await under_way.wait()
        await asyncio.sleep(0.05)
        writer.cancel()
        # Kept, as a log or a task that nobody has looked at yet keeps it.
        [kept] = await asyncio.gather(writer, return_exceptions=True)
        assert isinstance(kept, asyncio.CancelledError)
        await rate.count(database, "key")

    _run(database_url, work)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_what_a_writer_read_on_sqlite_no_other_writer_changes(
    installation: Installation, member: User
) -> None:
    async def work(database: Database) -> None:
        async def append(name: str) -> None:
            async with database.write() as session:
                user = await session.scalar(select(User))
                await asyncio.sleep(0.01)
                user.name += name

        await asyncio.gather(*(append(name) for name in "bcdefgh"))

    _run(installation.database_url, work)
    assert sorted(installation.get(User, member.id).name[3:]) == list("bcdefgh")


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_a_process_that_froze_within_a_transaction_keeps_its_locks_for_a_while_only(
    installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.server.db.database.POSTGRESQL_IDLE_SECONDS", 1, raising=False)
    rename = update(User).where(User.id == member.id)

    async def freeze(database: Database) -> None:
        async with database.write() as frozen:
            await frozen.execute(rename.values(name="never stored"))
            async with database.write() as other:
                # Far longer than the lock may last, so that a test that fails comes to an end.
                await other.execute(text("SET LOCAL lock_timeout = '50s'"))
                await other.execute(rename.values(name="Grace"))

    with pytest.raises(DBAPIError):
        _run(installation.database_url, freeze)
    stored = installation.get(User, member.id)
    assert stored is not None
    assert stored.name == "Grace"


def test_a_reader_cannot_write(installation: Installation, member: User) -> None:
    async def work(database: Database) -> None:
        with pytest.raises(DBAPIError, match=r"(?i)read.?only"):
            async with database.read() as session:
                await session.execute(update(User).values(name="changed"))
        async with database.write() as session:
            await session.execute(update(User).values(name="written"))

    _run(installation.database_url, work)
    assert installation.get(User, member.id).name == "written"


def test_a_reader_sees_one_moment_and_does_not_wait_for_writers(
    installation: Installation, member: User
) -> None:
    async def work(database: Database) -> None:
        async with database.read() as reader:
            first = await reader.scalar(select(User.name))
            async with database.write() as writer:
                await writer.execute(update(User).values(name="changed"))
                assert await reader.scalar(select(User.name)) == first
            assert await reader.scalar(select(User.name)) == first
        async with database.read() as reader:
            assert await reader.scalar(select(User.name)) == "changed"

    _run(installation.database_url, work)


def test_an_error_takes_the_whole_transaction_back(installation: Installation, member: User) -> None:
    async def work(database: Database) -> None:
        async def change_and(then: Awaitable[None]) -> None:
            async with database.write() as session:
                await session.execute(update(User).values(name="changed"))
                await then

        async def fail() -> None:
            raise RuntimeError

        with pytest.raises(RuntimeError):
            await change_and(fail())
        # A request that was cancelled half-way.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(change_and(asyncio.sleep(30)), 0.5)
        async with database.write() as session:
            assert await session.scalar(select(func.count()).select_from(User)) == 1

    _run(installation.database_url, work)
    assert installation.get(User, member.id).name == "Ada"


def test_foreign_keys_hold(database_url: str) -> None:
    async def work(database: Database) -> None:
        with pytest.raises(DBAPIError, match=r"(?i)foreign key"):
            async with database.write() as session:
                await session.execute(
                    text(
                        "INSERT INTO accounts (id, user_id, type, provider, provider_account_id, created_at) "
                        "VALUES ('00000000000040008000000000000000', '00000000000040008000000000000000', "
                        "'oauth', 'github', '1', '2026-01-01')"
                    )
                )

    _run(database_url, work)


def test_what_a_client_was_told_is_committed_already(installation: Installation, member: User) -> None:
    """Looked at from outside at the moment when the answer leaves."""
    seen: list[int] = []

    with installation.serve() as server:

        async def watching(scope: Scope, receive: Receive, send: Send) -> None:
            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    seen.append(installation.actions().count("project.created"))
                await send(message)

            await inner(scope, receive, watched)

        browser = server.signed_in(member)
        browser.get("/api/me")
        inner = server.app.middleware_stack
        server.app.middleware_stack = watching
        _create(browser)
    assert seen == [1]


def _create(browser: Browser) -> None:
    body = {"name": "Bloom", "modelArchitecture": "custom", "modelSize": 1}
    assert browser.post("/api/projects", json=body).status_code == 201


@pytest.mark.parametrize("address", ["mysql://localhost/x", "sqlite", "oracle+thing://x"])
def test_another_kind_of_database_is_refused_with_a_sentence(address: str, tmp_path: Path) -> None:
    with raises(ValidationError, code="invalid_database_url"):
        Settings(_env_file=None, home=tmp_path, database_url=address)


@pytest.mark.parametrize(
    ("address", "driver"),
    [
        ("sqlite:////data/bloom.db", "sqlite+aiosqlite"),
        ("postgres://bloom@db/bloom", "postgresql+psycopg"),
        ("postgresql://bloom@db/bloom", "postgresql+psycopg"),
    ],
)
def test_the_usual_ways_to_write_an_address_are_understood(address: str, driver: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, home=tmp_path, database_url=address)
    assert settings.database.partition("://")[0] == driver
