"""A real PostgreSQL server, started from the machine's own programs in a folder of its own.

It listens on a socket file only, so it needs no port and nobody else can reach it. PostgreSQL refuses to run
as root; under root it runs as a user that owns nothing.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

START_SECONDS = 120

_SETTINGS = {"listen_addresses": "", "shared_buffers": "32MB", "max_connections": "80"}
# Nothing here outlives the tests, so nothing waits for the disk.
_IN_TESTS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}


class PostgresMissing(Exception):
    """This machine cannot run PostgreSQL; says why."""


@dataclass
class PostgresServer:
    """A running server; makes and drops databases."""

    folder: Path
    _start: Callable[[], subprocess.Popen[bytes]]
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def start(self) -> None:
        self._process = self._start()
        _wait(self, self._process)

    def stop(self) -> None:
        """End it at once, as a machine that loses power would."""
        if self._process is not None and self._process.poll() is None:
            # "Immediate" shutdown: what was committed is in its log, nothing else is kept.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(20)

    def address(self, database: str) -> str:
        return f"postgresql+psycopg://bloom@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str) -> None:
        with psycopg.connect(
            host=str(self.folder), user="bloom", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(sql.SQL(statement).format(name=sql.Identifier(database)))

    def create(self) -> str:
        name = f"bloom_{next(self._numbers)}"
        self.execute("CREATE DATABASE {name}", name)
        return name

    def drop(self, database: str) -> None:
        self.execute("DROP DATABASE IF EXISTS {name} WITH (FORCE)", database)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        found = str(installed[-1]) if installed else None
    if found is None:
        raise PostgresMissing(f"PostgreSQL is not installed: no program {name!r} (apt install postgresql)")
    return found


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresMissing("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """Start a server; it is stopped and its folder removed whatever happens in between.

    `durable`: a commit is on disk, as an operator would have it.
    """
    initdb, postgres, owner = _program("initdb"), _program("postgres"), _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="bloom-postgres-"))
    identity = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    settings = _SETTINGS if durable else _SETTINGS | _IN_TESTS
    start = partial(_start, postgres, folder, settings, env=environment, **identity)
    server = PostgresServer(folder, start)
    try:
        made = subprocess.run(
            [initdb, "-D", folder / "data", "-U", "bloom", "--auth=trust", "--no-sync", "--encoding=UTF8"],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=environment,
            **identity,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _start(postgres: str, folder: Path, settings: dict[str, str], **process: Any) -> subprocess.Popen[bytes]:
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [postgres, "-D", folder / "data", "-k", folder, *options],
            stdout=log,
            stderr=log,
            cwd=folder,
            **process,
        )


def _wait(server: PostgresServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            server.execute("SELECT 1", "postgres")
        except psycopg.OperationalError:
            log = (server.folder / "log").read_text()
            assert process.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.05)
        else:
            return
