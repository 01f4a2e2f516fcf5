"""Launches for tests of providers, and an account that calls a fake of a service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from gpubloom.providers.cloud import CloudProvider, Fault, Launch
from gpubloom.providers.http_client import Explain, RateLimit, ServiceHttp
from tests.providers.services.web import WebService

Provider = TypeVar("Provider", bound=CloudProvider)

# As secret as a real one: who has it can write into the job.
ADDRESS = "https://bucket.test/bloom/jobs/1/start.py?X-Signature=Hidden-Signature&a='b'"


def launch(key: str = "bloom-5f3c-a1", **changes: Any) -> Launch:
    """A job that keeps what it was told and then stays."""
    wanted: dict[str, Any] = {
        "gpu": "A10",
        "gpus": 1,
        # Renamed into place, so that a test which sees the file sees all of it.
        "command": 'cd; printf %s "$BLOOM_START" >part && mv part told; echo started; sleep 600',
        "start_address": ADDRESS,
    }
    return Launch(key, **{**wanted, **changes})


@dataclass(frozen=True)
class Account(Generic[Provider]):
    """Calls a fake of a service as a worker does. `connect` makes the provider; further arguments of a call,
    such as the name of an SSH key, are passed on to it."""

    title: str
    explain: Explain
    connect: Callable[..., Provider]
    launch: Callable[[], Launch] = launch
    timeout_seconds: float = 30.0

    @asynccontextmanager
    async def opened(
        self,
        service: WebService,
        *options: str,
        rate_limit: RateLimit | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncIterator[Provider]:
        http = ServiceHttp(
            self.title,
            service.url,
            service.api_key,
            rate_limit or RateLimit(0.0),
            self.explain,
            timeout_seconds=timeout_seconds or self.timeout_seconds,
        )
        provider = self.connect(http, *options)
        try:
            yield provider
        finally:
            await provider.close()

    async def submit(
        self, service: WebService, wanted: Launch, *options: str, timeout_seconds: float | None = None
    ) -> str:
        async with self.opened(service, *options, timeout_seconds=timeout_seconds) as provider:
            return (await provider.submit(wanted)).id

    def fault_of(
        self, service: WebService, wanted: Launch | None = None, *, timeout_seconds: float | None = None
    ) -> Fault:
        """What a launch fails with."""
        with pytest.raises(Fault) as raised:
            asyncio.run(self.submit(service, wanted or self.launch(), timeout_seconds=timeout_seconds))
        return raised.value
