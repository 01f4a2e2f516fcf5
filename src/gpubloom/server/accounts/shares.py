"""How much of the server one person may hold at once: event streams, downloads, readers of files.

A share is taken when a request begins and given back when its answer has ended, however it ended. The counts
live in this process: each server of an installation counts its own connections.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, cast
from uuid import UUID

import anyio
from fastapi import Depends, Request

from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.problems import TooManyRequests
from gpubloom.server.settings import Settings

RETRY_SECONDS = 5
# Each reader is a process that may take a few hundred megabytes.
MOST_READERS = 4
# Of these, for one person: others always find some that are free, or wait for few.
READERS_PER_PERSON = 2
# What one person may have running and waiting: a page of the web app asks for several previews at once.
READS_PER_PERSON = 16


class Share:
    """At most `limit` of something at once for one person."""

    def __init__(self, name: str, limit: int, *, setting: str | None = None) -> None:
        self.name = name
        self.limit = limit
        self._setting = setting
        self._held: Counter[UUID] = Counter()

    @contextmanager
    def hold(self, user_id: UUID) -> Iterator[None]:
        """Hold one while the block runs; raises when the person already holds as many as allowed."""
        if self._held[user_id] >= self.limit:
            raise TooManyRequests(self._refusal, code="too_many_at_once", retry_after=RETRY_SECONDS)
        self._held[user_id] += 1
        try:
            yield
        finally:
            self._held[user_id] -= 1
            if not self._held[user_id]:
                del self._held[user_id]

    def held_by(self, user_id: UUID) -> int:
        """How many the person holds now."""
        return self._held[user_id]

    @property
    def _refusal(self) -> str:
        operator = f" The operator can raise {self._setting}." if self._setting else ""
        return (
            f"You already have {self.limit} {self.name} open, which is the limit. Close one, or wait until "
            f"one ends.{operator}"
        )


class Readers:
    """Processes that read people's files: few at once, and never all of them for one person.

    Who asks for one more waits for their own first, and only then for one of the common ones: the queue in
    which everybody stands never holds more than `READERS_PER_PERSON` of one person.
    """

    def __init__(self) -> None:
        self._reads = Share("previews and script checks", READS_PER_PERSON)
        self._own: dict[UUID, anyio.CapacityLimiter] = {}
        self._common = anyio.CapacityLimiter(MOST_READERS)

    @asynccontextmanager
    async def hold(self, user_id: UUID) -> AsyncIterator[None]:
        """Wait for a reader and hold it while the block runs."""
        with self._reads.hold(user_id):
            own = self._own.setdefault(user_id, anyio.CapacityLimiter(READERS_PER_PERSON))
            try:
                async with own, self._common:
                    yield
            finally:
                if self._reads.held_by(user_id) == 1:
                    # The last one: nobody else waits for this limiter.
                    self._own.pop(user_id, None)


class Shares:
    """What one server process shares between people."""

    def __init__(self, settings: Settings) -> None:
        self.streams = Share(
            "live pages", settings.max_streams_per_user, setting="BLOOM_MAX_STREAMS_PER_USER"
        )
        self.downloads = Share(
            "downloads", settings.max_downloads_per_user, setting="BLOOM_MAX_DOWNLOADS_PER_USER"
        )
        self.readers = Readers()


def shares_of(request: Request) -> Shares:
    """The app's shares."""
    return cast("Shares", request.app.state.shares)


CurrentShares = Annotated[Shares, Depends(shares_of)]


# FastAPI ends these after the last byte of the answer, or when the client is gone.
async def _stream(principal: CurrentPrincipal, shares: CurrentShares) -> AsyncIterator[None]:
    with shares.streams.hold(principal.id):
        yield


async def _download(principal: CurrentPrincipal, shares: CurrentShares) -> AsyncIterator[None]:
    with shares.downloads.hold(principal.id):
        yield


# For routes: `dependencies=[HOLDS_DOWNLOAD]`.
HOLDS_STREAM: Any = Depends(_stream, scope="request")
HOLDS_DOWNLOAD: Any = Depends(_download, scope="request")
