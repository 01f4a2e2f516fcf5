"""Brings a database to the newest schema, once, however many servers start at the same time.

Servers take turns: an advisory lock on PostgreSQL, a locked file beside the database on SQLite. The second
one finds the work done.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.pool import NullPool

from gpubloom.errors import CodedError, InputError

# Any number will do, as long as every version of this program uses the same one.
ADVISORY_LOCK = 4_170_301_102


class DatabaseNewer(CodedError, RuntimeError):
    """The database has a schema that a later version of this program made."""

    code = "database_newer"

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"The database has the schema revision {revision}, which this version of GPU Bloom does not know "
            f"(its newest is {newest_revision()}). Install the version that used the database last, or "
            "restore a backup from before it."
        )


def _alembic() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _sync_url(address: str) -> URL:
    url = make_url(address)
    if url.get_backend_name() == "sqlite":
        if url.database:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        return url.set(drivername="sqlite")
    return url.set(drivername="postgresql+psycopg")


def _engine(url: URL) -> Engine:
    engine = create_engine(url, poolclass=NullPool)
    if url.get_backend_name() == "sqlite":

        @event.listens_for(engine, "connect")
        def _manual_transactions(connection: object, record: object) -> None:
            connection.isolation_level = None  # type: ignore[attr-defined]

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@contextmanager
def _locked(url: URL, connection: Connection) -> Iterator[None]:
    if url.get_backend_name() == "sqlite":
        if not url.database:
            yield
            return
        with Path(f"{url.database}.migrating").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK})
    connection.commit()
    try:
        yield
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
        connection.commit()


def current_revision(address: str) -> str | None:
    """The revision the database is at; None when it is empty."""
    with _engine(_sync_url(address)).connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


@cache
def _revisions() -> frozenset[str]:
    return frozenset(script.revision for script in ScriptDirectory.from_config(_alembic()).walk_revisions())


@cache
def newest_revision() -> str:
    """The revision this program was written for."""
    head = ScriptDirectory.from_config(_alembic()).get_current_head()
    assert head is not None
    return head


def upgrade(address: str, revision: str = "head") -> bool:
    """Bring the database to the newest schema; returns whether there was anything to do."""
    if revision == "head" and current_revision(address) == newest_revision():
        # The usual start of a server, without a lock and without reading every migration.
        return False
    return _migrate(address, revision, down=False)


def downgrade(address: str, revision: str) -> bool:
    """Take the database down to a revision; `base` empties it."""
    return _migrate(address, revision, down=True)


def _keep_readers_apart(connection: Connection) -> None:
    """Switch an SQLite file to its write-ahead log, while nobody else has it open.

    Of several connections that switch a new file at the same moment, one may fail with "database is locked".
    """
    if connection.dialect.name == "sqlite":
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("PRAGMA journal_mode=WAL").close()


def _migrate(address: str, revision: str, *, down: bool) -> bool:
    url = _sync_url(address)
    with _engine(url).connect() as connection, _locked(url, connection):
        before = MigrationContext.configure(connection).get_current_revision()
        connection.rollback()
        if before is not None and before not in _revisions():
            raise DatabaseNewer(before)
        _keep_readers_apart(connection)
        config = _alembic()
        config.attributes["connection"] = connection
        try:
            (command.downgrade if down else command.upgrade)(config, revision)
        except CommandError as problem:
            raise InputError(
                "unknown_revision",
                f"The database cannot go to the schema revision {revision}: {problem}. Use head, base or a "
                f"number from 0001 to {newest_revision()}.",
            ) from problem
        after = MigrationContext.configure(connection).get_current_revision()
        connection.rollback()
    return before != after
