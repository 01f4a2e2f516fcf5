"""The fakes of Lambda, RunPod and Paperspace notice what does not fit their contracts, sent or said."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gpubloom.providers.registry import provider_spec
from tests.providers.launches import launch
from tests.providers.services import runpod_service
from tests.providers.services.lambda_contract import lambda_misfits
from tests.providers.services.lambda_service import SPEC, LambdaService
from tests.providers.services.paperspace_contract import paperspace_misfits
from tests.providers.services.paperspace_service import PaperspaceService
from tests.providers.services.runpod_contract import runpod_misfits
from tests.providers.services.runpod_service import RunPodService
from tests.providers.services.spec import misfits, published
from tests.providers.services.web import Exchange, Reply, WebService

HOST = "https://cloud.lambda.ai"


def launched(service: WebService, name: str, gpu: str, monkeypatch: pytest.MonkeyPatch) -> Exchange:
    """The exchange that made a machine."""
    monkeypatch.setenv(service.address_variable, service.url)

    async def submit() -> None:
        rented = provider_spec(name).open(service.credentials)
        await rented.submit(launch(gpu=gpu))
        await rented.close()

    asyncio.run(submit())
    return service.calls(service.launch_call)[0]


def with_body(exchange: Exchange, **changes: Any) -> Exchange:
    return replace(exchange, request=replace(exchange.request, body={**exchange.request.body, **changes}))


def test_our_words_for_lambda_are_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    with LambdaService(boot_seconds=3600) as service:
        good = launched(service, "lambda", "A10", monkeypatch)
    assert list(lambda_misfits(good)) == []
    for wrong in (
        with_body(good, region_name=7),
        with_body(good, quantity=2),
        with_body(good, ssh_key_names=[]),
        with_body(good, tags=[{"key": "Bloom Key", "value": ""}]),
        replace(good, reply=Reply(200, {"data": {"ids": []}})),
        replace(good, reply=Reply(400, {"message": "no"})),
        replace(good, request=replace(good.request, path="/api/v1/instance-operations/boot")),
    ):
        assert len(list(lambda_misfits(wrong))) == 1


def test_our_words_for_paperspace_are_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    with PaperspaceService(boot_seconds=3600) as service:
        good = launched(service, "paperspace", "RTX A4000", monkeypatch)
    assert list(paperspace_misfits(good)) == []
    machine = good.reply.body["data"]
    for wrong in (
        with_body(good, diskSize="50"),
        with_body(good, disk_size=50),
        with_body(good, publicIpType="shared"),
        replace(good, reply=Reply(200, machine)),
        replace(good, reply=Reply(200, {**good.reply.body, "data": {**machine, "state": "booting"}})),
        replace(good, reply=Reply(500, {"error": "no"})),
    ):
        assert list(paperspace_misfits(wrong))


def test_the_published_description_of_lambda_is_really_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = published(SPEC)
    if spec is None:
        pytest.skip(f"{SPEC} is not here; BLOOM_SPECS can name a folder that has it")
    with LambdaService(boot_seconds=3600) as service:
        good = launched(service, "lambda", "A10", monkeypatch)
    assert list(misfits(spec, HOST, good)) == []
    for wrong, part in (
        (with_body(good, region_name=7), "the request"),
        (with_body(good, name="x" * 65), "the request"),
        (replace(good, reply=Reply(200, {"data": {"ids": []}})), "the answer"),
        (replace(good, reply=Reply(400, {"error": {"code": "global/full", "message": "no"}})), "the answer"),
    ):
        found = list(misfits(spec, HOST, wrong))
        assert len(found) == 1
        assert part in found[0]


def test_the_published_description_of_runpod_is_really_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with RunPodService(boot_seconds=3600) as service:
        good = launched(service, "runpod", "RTX 4090", monkeypatch)
    assert list(runpod_misfits(good)) == []
    for wrong in (
        with_body(good, disk="20"),
        with_body(good, cloud="PUBLIC"),
        with_body(good, tags=["bloom"]),
        replace(good, reply=Reply(201, {**good.reply.body, "status": "BOOTING"})),
        replace(good, reply=Reply(400, {"error": "no"})),
    ):
        assert list(runpod_misfits(wrong))
    spec = published(runpod_service.SPEC)
    if spec is None:
        pytest.skip(f"{runpod_service.SPEC} is not here; BLOOM_SPECS can name a folder that has it")
    assert list(misfits(spec, runpod_service.HOST, good)) == []
    for wrong, part in (
        (with_body(good, disk="20"), "the request"),
        (with_body(good, tags=["bloom"]), "the request"),
        (with_body(good, gpu={"id": "x", "count": 0}), "the request"),
        (replace(good, reply=Reply(201, {"id": "x"})), "the answer"),
    ):
        [found] = misfits(spec, runpod_service.HOST, wrong)
        assert part in found


def test_a_test_that_breaks_a_contract_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    service = PaperspaceService(boot_seconds=3600)
    monkeypatch.setattr(service, "_state", lambda rental: "booting")
    with pytest.raises(AssertionError, match=r"POST /machines → 200: the answer"), service:
        launched(service, "paperspace", "RTX A4000", monkeypatch)
