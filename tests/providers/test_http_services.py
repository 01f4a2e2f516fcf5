"""What holds at every service that is reached over HTTP: faults have our names, nothing is left behind."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gpubloom.providers.cloud import Fault, FaultKind, Launch
from gpubloom.providers.registry import provider_spec
from tests.providers.launches import launch
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.paperspace_service import PaperspaceService
from tests.providers.services.replicate_service import ReplicateService
from tests.providers.services.web import Trouble, WebService


@dataclass(frozen=True)
class _Known:
    name: str
    service: WebService
    launch: Launch


@pytest.fixture(params=["lambda", "paperspace", "replicate"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Known]:
    """Machines take long to boot: no test here needs one that runs."""
    kind, gpu = {
        "lambda": (LambdaService, "A10"),
        "paperspace": (PaperspaceService, "RTX A4000"),
        "replicate": (ReplicateService, "L40S"),
    }[request.param]
    with kind(boot_seconds=3600) as service:
        monkeypatch.setenv(service.address_variable, service.url)
        yield _Known(request.param, service, launch(gpu=gpu))


@pytest.mark.parametrize(
    ("trouble", "kind", "passes"),
    [
        ("quota", "quota", False),
        ("bad_credentials", "bad_credentials", False),
        ("rate_limited", "rate_limited", True),
        ("unavailable", "unavailable", True),
        ("refused", "refused", False),
    ],
)
def test_a_launch_fails_by_its_name_and_leaves_nothing(
    known: _Known, trouble: Trouble, kind: FaultKind, passes: bool
) -> None:
    async def submit() -> None:
        rented = provider_spec(known.name).open(known.service.credentials)
        try:
            await rented.submit(known.launch)
        finally:
            await rented.close()

    known.service.fail_next(trouble, calls=known.service.launch_call)
    with pytest.raises(Fault) as raised:
        asyncio.run(submit())
    fault = raised.value
    assert (fault.kind, fault.passes) == (kind, passes)
    assert fault.retry_after_seconds == (7 if trouble == "rate_limited" else None)
    # A service may quote what it was sent.
    assert "Hidden" not in str(fault)
    assert known.service.instances == {}


def test_credentials_that_are_revoked_meanwhile_are_told(known: _Known) -> None:
    async def story() -> None:
        rented = provider_spec(known.name).open(known.service.credentials)
        identifier = (await rented.submit(known.launch)).id
        known.service.revoke()
        for ask in (rented.status(identifier), rented.list(), rented.cancel(identifier), rented.check()):
            with pytest.raises(Fault, match="does not accept the credentials") as raised:
                await ask
            assert raised.value.kind == "bad_credentials"
        await rented.close()

    asyncio.run(story())
