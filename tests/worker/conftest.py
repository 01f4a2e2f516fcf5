"""Fixtures of the worker's tests: an installation as in the server's tests, and toys to run.

What a worker asks of a database is tested on both kinds in tests/server. Whole processes run here, which
takes long: on SQLite in `make test`, on PostgreSQL in `make test-long`. A module whose subject is the
database takes `kind` from tests/server.
"""

import pytest

from tests.server.conftest import (  # noqa: F401 - pytest finds fixtures by name
    _logs,
    database_url,
    installation,
    migrated_postgres,
    migrated_sqlite,
    postgres,
)
from tests.server.installation import Installation
from tests.worker.machine import Machine
from tests.worker.toy_files import use_toys


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine(installation: Installation) -> Machine:  # noqa: F811
    return Machine(installation)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
