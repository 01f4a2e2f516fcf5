"""The worker's tests run on both databases, with the same fixtures as the server's."""

from tests.server.conftest import (  # noqa: F401 - pytest finds fixtures by name
    database_url,
    installation,
    kind,
    migrated_postgres,
    migrated_sqlite,
    postgres,
)
