"""RunPod: one pod per key, a pod that deletes itself and never runs a job twice, stock, faults, the bill.

The fake checks every exchange against our contract and, where it is found, the published description.
"""

import asyncio
import base64
import gzip
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import pytest

from gpubloom.offers.prices import PriceRow
from gpubloom.providers.cloud import ConsoleReader, Fault, InstanceState, Launch
from gpubloom.providers.registry import provider_spec
from gpubloom.providers.runpod.gpu_types import GpuType, part_of_the_world, price_rows, state_of
from gpubloom.providers.runpod.provider import RunPod, _explain
from tests.errors import raises
from tests.providers import launches
from tests.providers.launches import ADDRESS, Account
from tests.providers.services import machine
from tests.providers.services.runpod_service import RunPodService
from tests.providers.services.web import Clock, Trouble
from tests.waiting import wait_until

IMPATIENT_SECONDS = 4.0


def launch(key: str = "bloom-5f3c-a1", **changes: Any) -> Launch:
    return launches.launch(key, **{"gpu": "RTX 4090", **changes})


@pytest.fixture
def service() -> Iterator[RunPodService]:
    """Its pods take long to start: most tests need none that runs."""
    with RunPodService(boot_seconds=3600) as service:
        yield service


@pytest.fixture
def quick() -> Iterator[RunPodService]:
    """Its pods run at once."""
    with RunPodService() as service:
        yield service


ACCOUNT = Account("RunPod", _explain, lambda http: RunPod(http, http.address, pause_seconds=0.01), launch)
opened, submit, fault_of = ACCOUNT.opened, ACCOUNT.submit, ACCOUNT.fault_of


@pytest.mark.long
def test_a_job_runs_in_its_own_pod_until_that_is_deleted(
    quick: RunPodService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_RUNPOD_URL", quick.url)

    async def story() -> None:
        rented = provider_spec("runpod").open(quick.credentials)
        assert await rented.check() == "account with 0 pods"
        started = await rented.submit(launch())
        assert (started.key, started.hourly, started.region) == ("bloom-5f3c-a1", 0.74, "US-KS-2")
        assert started.billed_from is not None
        container = quick.instances[started.id].machine
        wait_until(lambda: (container.folder / "told").exists())
        assert (container.folder / "told").read_text() == ADDRESS
        assert (await rented.status(started.id)).state == "running"
        assert [found.id for found in await rented.list()] == [started.id]
        assert isinstance(rented, ConsoleReader)
        wait_until(lambda: "started\n" in container.text)
        assert "started" in await rented.console(started.id)
        await rented.cancel(started.id)
        assert (await rented.status(started.id)).state == "ended"
        assert await rented.list() == []
        assert await rented.console(started.id) == []
        # What has ended already is no fault.
        await rented.cancel(started.id)
        await rented.close()

    asyncio.run(story())
    assert quick.running == []


def test_a_pod_deletes_itself_when_its_job_has_ended(quick: RunPodService) -> None:
    report = 'echo "$(date +%s) start - running" >>"$BLOOM_REPORT"; '
    identifier = asyncio.run(submit(quick, launch(command=report + 'touch "$HOME/done"')))
    wait_until(lambda: quick.instances[identifier].ended)
    assert [each.request.method for each in quick.calls(f"/v2/pods/{identifier}")] == ["DELETE"]


def test_a_pod_deletes_itself_also_without_curl(
    quick: RunPodService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(machine._STUBS, "curl", "#!/bin/sh\nexit 127\n")
    report = 'echo "$(date +%s) start - running" >>"$BLOOM_REPORT"; '
    identifier = asyncio.run(submit(quick, launch(command=report + "true")))
    wait_until(lambda: quick.instances[identifier].ended)


def test_a_pod_at_its_longest_life_deletes_itself_while_its_job_runs(quick: RunPodService) -> None:
    identifier = asyncio.run(submit(quick, launch(longest_seconds=1)))
    wait_until(lambda: quick.instances[identifier].ended)


@pytest.mark.long
def test_a_pod_whose_container_is_started_again_runs_no_job_twice(quick: RunPodService) -> None:
    wanted = launch(command='echo "one more" >>"$BLOOM_HOME/count"; sleep 600')
    identifier = asyncio.run(submit(quick, wanted))
    folder = quick.instances[identifier].machine.folder
    wait_until(lambda: (folder / "bloom/count").exists())
    quick.instances[identifier].machine.vanish()

    async def look() -> None:
        async with opened(quick) as rented:
            await rented.status(identifier)

    asyncio.run(look())
    assert quick.restarts == {identifier: 1}
    wait_until(lambda: quick.instances[identifier].ended)
    assert (folder / "bloom/count").read_text() == "one more\n"
    assert " start ! restarted " in (folder / "bloom/report").read_text()


def test_the_key_of_a_pod_and_the_addresses_are_not_in_the_environment_of_the_job(
    quick: RunPodService,
) -> None:
    command = 'env >"$BLOOM_HOME/env.part"; mv "$BLOOM_HOME/env.part" "$BLOOM_HOME/env"; sleep 600'
    wanted = launch(command=command, secrets={"HF_TOKEN": "hf_it's"})
    identifier = asyncio.run(submit(quick, wanted))
    told = quick.instances[identifier].machine.folder / "bloom/env"
    wait_until(told.exists)
    assert "HF_TOKEN=hf_it's\n" in told.read_text()
    assert "RUNPOD_API_KEY" not in told.read_text()
    assert "BLOOM_SCRIPT" not in told.read_text()


def test_what_is_sent_has_an_image_a_disk_and_a_floor_for_cuda(service: RunPodService) -> None:
    sent = service.instances[asyncio.run(submit(service, launch(disk_gb=200, region="eu")))].description
    assert sent["gpu"] == {"id": "NVIDIA GeForce RTX 4090", "count": 1, "minCudaVersion": "12.8"}
    assert sent["mounts"] == {"persistent": {"size": 200, "path": "/bloom"}}
    assert sent["dataCenterIds"] == ["EU-RO-1"]
    script = gzip.decompress(base64.b64decode(sent["env"]["BLOOM_SCRIPT"])).decode()
    assert ADDRESS.partition("'")[0] in script
    assert ADDRESS.partition("?")[0] not in sent["args"]


def test_asking_again_with_the_same_key_starts_nothing(service: RunPodService) -> None:
    async def twice() -> None:
        async with opened(service) as one, opened(service) as other:
            first = await one.submit(launch())
            assert (await other.submit(launch())).id == first.id
            together = await asyncio.gather(*(one.submit(launch("bloom-2-a1")) for _ in range(3)))
            assert len({found.id for found in together}) == 1

    asyncio.run(twice())
    assert len(service.instances) == 2


@pytest.mark.long
@pytest.mark.parametrize("trouble", ["cut", "late"])
def test_a_launch_whose_answer_is_lost_is_found_and_not_repeated(
    service: RunPodService, trouble: Trouble
) -> None:
    service.fail_next(trouble)
    identifier = asyncio.run(submit(service, launch(), timeout_seconds=IMPATIENT_SECONDS))
    assert list(service.instances) == [identifier]
    assert len(service.calls("POST /v2/pods")) == 1


@pytest.mark.parametrize(
    ("trouble", "kind", "passes"),
    [
        ("no_capacity", "no_capacity", True),
        ("quota", "inactive_account", False),
        ("bad_credentials", "bad_credentials", False),
        ("no_access", "refused", False),
        ("rate_limited", "rate_limited", True),
        ("unavailable", "unavailable", True),
        ("refused", "refused", False),
    ],
)
def test_each_fault_has_its_kind(service: RunPodService, trouble: Trouble, kind: str, passes: bool) -> None:
    service.fail_next(trouble, times=4, calls="POST /v2/pods")
    fault = fault_of(service)
    assert (fault.kind, fault.passes) == (kind, passes)


def test_a_gpu_that_the_account_has_no_access_to_does_not_blame_the_credentials(
    service: RunPodService,
) -> None:
    service.fail_next("no_access", calls="POST /v2/pods")
    sentence = str(fault_of(service))
    assert "access denied" in sentence
    assert "another offer" in sentence
    assert "does not accept the credentials" not in sentence


def test_where_nothing_is_free_nothing_is_launched(service: RunPodService) -> None:
    assert fault_of(service, launch(gpu="H100 PCIe")).kind == "no_capacity"
    assert fault_of(service, launch(region="asia")).kind == "no_capacity"
    for unfit in (launch(gpu="GTX 970"), launch(gpu="V100"), launch(gpu="RTX A6000", gpus=8)):
        assert fault_of(service, unfit).kind == "refused"
    service.sold_out()
    assert fault_of(service).kind == "no_capacity"
    assert service.calls("POST /v2/pods") == []


def test_prices_and_stock_come_from_the_catalogue(service: RunPodService) -> None:
    async def prices() -> Sequence[PriceRow]:
        async with opened(service) as rented:
            return await rented.prices()

    rows = asyncio.run(prices())
    found = {(row.gpu, row.gpus, row.region): (row.hourly, row.availability) for row in rows}
    most = {row.gpu: row.most_gpus for row in rows if row.gpus == 1}
    assert found["RTX 4090", 1, None] == found["RTX 4090", 1, "eu"] == (0.74, "immediate")
    assert found["H100", 8, "us"] == (31.92, "immediate")
    assert found["H100 PCIe", 1, None] == (2.89, "unavailable")
    # Two boards of one GPU: the cheaper one with stock.
    assert found["A100 80GB", 1, "us"] == (1.64, "immediate")
    assert ("RTX A6000", 4, "asia") in found
    assert ("RTX A6000", 8, None) not in found
    assert most["RTX A6000"] == 4
    assert not {"V100", "MI300X"} & {gpu for gpu, _, _ in found}


def test_a_level_of_stock_that_is_not_known_is_stock() -> None:
    kind = GpuType.model_validate(
        {
            "id": "NVIDIA L4",
            "name": "L4",
            "manufacturer": "NVIDIA",
            "memory": 24,
            "secure": True,
            "price": {"secure": 0.49, "community": 0},
            "maxCount": {"secure": 8, "community": 0},
            "availability": "PLENTY",
            "dataCenters": [
                {"id": "US-1", "availability": "PLENTY"},
                {"id": "US-2", "availability": "NONE"},
                {"id": "US-3", "availability": "LOW"},
            ],
        }
    )
    assert kind.centers("us") == ["US-3", "US-1"]
    assert [row.availability for row in price_rows({1: [kind]}, date(2026, 1, 1))] == ["immediate"] * 2


def test_the_bill_is_runpods_own() -> None:
    clock = Clock()
    with RunPodService(clock=clock) as service:

        async def story() -> None:
            async with opened(service) as rented:
                identifier = (await rented.submit(launch())).id
                assert await rented.bill(identifier) is None
                clock.advance(1800)
                assert await rented.bill(identifier) == pytest.approx(0.37, abs=0.01)
                await rented.cancel(identifier)
                assert await rented.bill(identifier) == pytest.approx(0.37, abs=0.01)

        asyncio.run(story())


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", "starting"),
        ("STARTING", "starting"),
        ("RUNNING", "running"),
        ("EXITED", "lost"),
        ("ERROR", "lost"),
        ("TERMINATED", "ended"),
        ("SOMETHING_NEW", "running"),
    ],
)
def test_every_state_has_a_meaning(status: str, state: InstanceState) -> None:
    assert state_of(status)[0] == state


def test_data_centers_lie_in_parts_of_the_world() -> None:
    centers = ("US-KS-2", "CA-MTL-1", "EU-RO-1", "EUR-IS-1", "SEA-SG-1", "XX-1")
    assert [part_of_the_world(center) for center in centers] == ["us", "us", "eu", "eu", "asia", "xx"]


def test_pods_that_people_started_themselves_are_not_ours(service: RunPodService) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            identifier = (await rented.submit(launch())).id
            service.instances[identifier].name = "bloom-experiments"
            assert await rented.list() == []

    asyncio.run(story())


def test_without_a_key_nothing_is_opened() -> None:
    with raises(Fault, code="bad_credentials"):
        provider_spec("runpod").open({"api_key": " "})
