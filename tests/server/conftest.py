"""Fixtures of the server's tests: an installation on each kind of database.

Migrating takes long, so it happens once: SQLite's file is copied for each test, and PostgreSQL's tables are
emptied, which takes less than a copy.
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from sqlalchemy import MetaData, create_engine, delete
from sqlalchemy.pool import NullPool

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.migrate import upgrade
from gpubloom.server.logs import configure_logs
from gpubloom.server.security import password_hash
from tests.server.installation import Browser, Installation, Server
from tests.server.postgres import PostgresMissing, PostgresServer, postgres_server

KINDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session", autouse=True)
def _logs() -> None:
    configure_logs("text")


_REAL_HASHER = password_hash._hasher


@pytest.fixture(scope="session", autouse=True)
def _cheap_hashes() -> Iterator[None]:
    """Hashing takes long on purpose; most tests only need somebody who has a password."""
    cheap = Argon2Hasher(memory_cost=8, time_cost=1, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(password_hash, "_hasher", PasswordHash((cheap,)))
        yield


@pytest.fixture
def real_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords are hashed as in production."""
    monkeypatch.setattr(password_hash, "_hasher", _REAL_HASHER)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for each test process."""
    try:
        with postgres_server() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "bloom.db"
    upgrade(f"sqlite+aiosqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres: PostgresServer) -> str:
    address = postgres.address(postgres.create())
    upgrade(address)
    return address


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database; tests that use it run once on each."""
    return str(request.param)


@pytest.fixture
def empty_database(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database without tables."""
    if kind == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = server.create()
    yield server.address(name)
    server.drop(name)


@pytest.fixture
def database_url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The address of a migrated database without anybody's rows."""
    if kind == "sqlite":
        path = tmp_path / "bloom.db"
        shutil.copy(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite+aiosqlite:///{path}"
    address: str = request.getfixturevalue("migrated_postgres")
    with create_engine(address, poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql(_emptying(address))
    return address


@cache
def _emptying(address: str) -> str:
    """Statements that delete all rows, sent together: most tables are empty, and asking takes longer."""
    stored = MetaData()
    stored.reflect(create_engine(address, poolclass=NullPool))
    # What migrations made, not people.
    own = {"alembic_version", "installation"}
    tables = [table for table in reversed(stored.sorted_tables) if table.name not in own]
    return "; ".join(str(delete(table)) for table in tables)


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> Installation:
    return Installation(tmp_path / "home", database_url)


@pytest.fixture
def server(installation: Installation) -> Iterator[Server]:
    """A server with the usual settings."""
    with installation.serve() as running:
        yield running


@pytest.fixture
def open_server(installation: Installation, admin: User) -> Iterator[Server]:
    """A server that was set up and where everybody may sign up."""
    with installation.serve(signup="open") as running:
        yield running


@pytest.fixture
def admin(installation: Installation) -> User:
    return installation.add_user("Grace", role="admin")


@pytest.fixture
def member(installation: Installation) -> User:
    return installation.add_user("Ada")


@pytest.fixture
def ada(server: Server, member: User) -> Browser:
    return server.signed_in(member)


@pytest.fixture
def one_rate_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps rates from beginning a new window in the middle of a test."""
    middle = now().replace(minute=5, second=0)
    monkeypatch.setattr("gpubloom.server.security.rates.now", lambda: middle)


@pytest.fixture(scope="module")
def sqlite_server(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for many requests that never get as far as a database; a member is signed in."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(migrated_sqlite, folder / "bloom.db")
    installation = Installation(folder / "home", f"sqlite+aiosqlite:///{folder / 'bloom.db'}")
    secret, row = installation.add_session(installation.add_user("Ada"))
    with installation.serve() as running:
        running.stranger.signed_in_as(secret, row.csrf_token)
        yield running


@pytest.fixture
def sample() -> dict[str, dict[str, Any]]:
    """The sample user and project that the product was first described with; ids are UUIDs here."""
    user_id, project_id = uuid5(NAMESPACE_URL, "usr_12345abc"), uuid5(NAMESPACE_URL, "proj_abcdef12")
    return {
        "user": {"id": user_id, "name": "Alice Smith", "email": "alice.smith@example.com"},
        "project": {
            "id": project_id,
            "userId": user_id,
            "name": "QuantumLeap-130B",
            "description": "Experimenting with Quantum NLP concepts on a 130B parameter model.",
            "modelArchitecture": "transformer",
            "modelSize": 130,
            "trainingDataPath": "s3://my-bucket/datasets/quantum-corpus/",
            "createdAt": datetime(2023, 10, 26, 10, tzinfo=UTC),
        },
    }
