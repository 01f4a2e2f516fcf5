"""Which store the files of a rented job go through: chosen for each attempt, and shown with every offer.

A bucket comes first: it is there while the server sleeps, and its results stay. Then the provider's own
volume, which needs no set-up and is also there while the server sleeps. Then this server itself, for
instances that can reach it. Then the machine's own disk, which this server reaches over SSH: it needs no
set-up, and nothing is kept of a machine that is lost.
"""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.providers.registry import gives_ssh_machines, own_store, provider_names
from gpubloom.server.rentals.tables import BILLED, Rental
from gpubloom.server.settings import Settings
from gpubloom.server.storage.run_stores import (
    open_bucket,
    read_bucket,
    server_store,
    why_no_bucket,
    why_no_server_store,
)
from gpubloom.server.storage.schemas import StoreName, StoreOut
from gpubloom.storage import ServerStore, StorageError, StorageSettings, Store
from gpubloom.storage.ssh_store import why_no_ssh

_MOST_NAMED = 5
_NEXT_STEP = (
    "An admin sets up a storage bucket under Providers or with `bloom providers storage set`; or set "
    "BLOOM_PUBLIC_URL to a public https address."
)


async def why_key_is_in_use(session: AsyncSession) -> str | None:
    """Why the installation's key cannot be replaced now, as a sentence for the operator; None: it can.

    Connections over SSH and addresses at this server are signed with it: a worker that starts after the key
    was replaced would not reach these machines, and they would not reach the server.
    """
    rows = await session.scalars(
        select(Rental.job_name)
        .where(Rental.state.in_(BILLED), Rental.store.in_(("ssh", "server")))
        .order_by(Rental.created_at)
    )
    names = rows.all()
    if not names:
        return None
    which = ", ".join(names[:_MOST_NAMED]) + (" and others" if len(names) > _MOST_NAMED else "")
    return (
        f"Rented machines are connected with the present key, for these jobs: {which}. Wait until the jobs "
        "end, or cancel them, then rotate the key."
    )


def no_store(provider: str) -> str:
    """The sentence for somebody whose job at a provider has no store. `provider`: its title."""
    return f"Machines of {provider} cannot exchange files with this server yet. {_NEXT_STEP}"


@dataclass(frozen=True)
class Stores:
    """What this installation has."""

    settings: Settings
    bucket: StorageSettings | None

    def names(self, target: str) -> list[StoreName]:
        """The stores that jobs at a provider can use, the best one first."""
        found: list[StoreName] = []
        if why_no_bucket(self.bucket) is None:
            found.append("bucket")
        if (own := own_store(target)) is not None:
            found.append(own)
        if why_no_server_store(self.settings) is None:
            found.append("server")
        if gives_ssh_machines(target) and why_no_ssh() is None:
            found.append("ssh")
        return found

    def targets(self) -> list[str]:
        """The providers whose jobs have a store."""
        return [name for name in provider_names() if self.names(name)]

    def best(self, target: str) -> StoreOut | None:
        names = self.names(target)
        return StoreOut.named(names[0]) if names else None

    def open(self, name: StoreName) -> Store | ServerStore:
        """In a thread: libraries are imported, files are read. StorageError: it cannot be used any more."""
        if name == "server":
            return server_store(self.settings)
        assert name == "bucket", "other stores belong to one attempt"
        if self.bucket is None:
            raise StorageError(
                "no_store", "The storage bucket of this job is no longer set up. Set it up again."
            )
        return open_bucket(self.settings, self.bucket)


async def read_stores(session: AsyncSession, settings: Settings) -> Stores:
    return Stores(settings, await read_bucket(session, settings))
