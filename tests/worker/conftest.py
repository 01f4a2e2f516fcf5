"""The worker's tests run on both databases, with the same fixtures as the server's, and with toys to run."""

import pytest

from tests.server.conftest import (  # noqa: F401 - pytest finds fixtures by name
    database_url,
    installation,
    kind,
    migrated_postgres,
    migrated_sqlite,
    postgres,
)
from tests.worker.toy_files import use_toys


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
