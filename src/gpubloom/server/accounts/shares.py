"""How much of the server one person may hold at once: event streams, downloads, readers of files and runs.

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
# Threads that read run directories or take in batches of runs; the server has 40 for everything.
MOST_RUN_THREADS = 12
RUN_THREADS_PER_PERSON = 4
# A sweep sends many runs at once, and each tries again later.
RUN_REQUESTS_PER_PERSON = 64


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
    """What reads people's files: few at once, and never all of them for one person.

    Who asks for one more waits for their own first, and only then for one of the common ones: the queue in
    which everybody stands never holds more than `per_person` of one person. `waiting` counts all that one
    person may have running and waiting.
    """

    def __init__(self, name: str, *, most: int, per_person: int, waiting: int) -> None:
        self._reads = Share(name, waiting)
        self._own: dict[UUID, anyio.CapacityLimiter] = {}
        self._common = anyio.CapacityLimiter(most)
        self._per_person = per_person

    @asynccontextmanager
    async def hold(self, user_id: UUID) -> AsyncIterator[None]:
        """Wait for a reader and hold it while the block runs."""
        with self._reads.hold(user_id):
            own = self._own.setdefault(user_id, anyio.CapacityLimiter(self._per_person))
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
        # Each is a process.
        self.readers = Readers(
            "previews and script checks",
            most=MOST_READERS,
            per_person=READERS_PER_PERSON,
            waiting=READS_PER_PERSON,
        )
        # Each is a thread of this process: a large run keeps it busy for a while.
        self.runs = Readers(
            "requests that read or send runs",
            most=MOST_RUN_THREADS,
            per_person=RUN_THREADS_PER_PERSON,
            waiting=RUN_REQUESTS_PER_PERSON,
        )


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


async def _run(principal: CurrentPrincipal, shares: CurrentShares) -> AsyncIterator[None]:
    async with shares.runs.hold(principal.id):
        yield


# For routes: `dependencies=[HOLDS_DOWNLOAD]`.
HOLDS_STREAM: Any = Depends(_stream, scope="request")
HOLDS_DOWNLOAD: Any = Depends(_download, scope="request")
HOLDS_RUN: Any = Depends(_run, scope="request")
