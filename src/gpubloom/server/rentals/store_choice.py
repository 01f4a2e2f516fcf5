"""Which store the files of a rented job go through: chosen for each attempt, and shown with every offer.

A bucket comes first: it is there while the server sleeps. Then the provider's own volume, which needs no
set-up. Then this server itself, for instances that can reach it.
"""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.settings import Settings
from gpubloom.server.storage.run_stores import (
    StoreName,
    StoreOut,
    open_bucket,
    read_bucket,
    server_store,
    why_no_bucket,
    why_no_server_store,
)
from gpubloom.storage import RunStore, StorageError, StorageSettings

NO_STORE = (
    "Rented machines cannot exchange files with this server yet. An admin sets up a storage bucket under "
    "Providers or with `bloom providers storage set`; or set BLOOM_PUBLIC_URL to a public https address."
)


@dataclass(frozen=True)
class Stores:
    """What this installation has."""

    settings: Settings
    bucket: StorageSettings | None

    def names(self, target: str | None = None) -> list[StoreName]:
        """The stores that jobs at a provider can use, the best one first; None: at any."""
        found: list[StoreName] = []
        if why_no_bucket(self.bucket) is None:
            found.append("bucket")
        if why_no_server_store(self.settings) is None:
            found.append("server")
        return found

    def best(self, target: str) -> StoreOut | None:
        names = self.names(target)
        return StoreOut.named(names[0]) if names else None

    def open(self, name: StoreName) -> RunStore:
        """In a thread: libraries are imported, files are read. StorageError: it cannot be used any more."""
        if name == "server":
            return server_store(self.settings)
        if self.bucket is None:
            raise StorageError(
                "no_store", "The storage bucket of this job is no longer set up. Set it up again."
            )
        return open_bucket(self.settings, self.bucket)


async def read_stores(session: AsyncSession, settings: Settings) -> Stores:
    return Stores(settings, await read_bucket(session, settings))
