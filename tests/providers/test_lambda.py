"""Lambda: one machine per key whatever happens on the way, its states, its faults, its bill.

The fake checks every exchange against our contract and, where it is found, the published description.
"""

import asyncio
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gpubloom.providers.cloud import Fault, InstanceState, Launch
from gpubloom.providers.http_client import RateLimit
from gpubloom.providers.lambda_cloud.machine_types import InstanceType, Specs, state_of
from gpubloom.providers.lambda_cloud.provider import LambdaCloud, _explain
from gpubloom.providers.registry import provider_spec
from tests.errors import raises
from tests.providers.launches import ADDRESS, Account, launch
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.web import Clock, Trouble
from tests.waiting import wait_until

# Longer than any answer takes on a busy machine, shorter than a test may wait for none.
IMPATIENT_SECONDS = 4.0


@pytest.fixture
def service() -> Iterator[LambdaService]:
    """Its machines take long to boot: most tests need none that runs."""
    with LambdaService(boot_seconds=3600) as service:
        yield service


@pytest.fixture
def quick() -> Iterator[LambdaService]:
    """Its machines run at once."""
    with LambdaService() as service:
        yield service


ACCOUNT = Account("Lambda", _explain, partial(LambdaCloud, pause_seconds=0.01))
opened, submit, fault_of = ACCOUNT.opened, ACCOUNT.submit, ACCOUNT.fault_of


def test_a_job_runs_on_its_own_machine_until_that_is_ended(
    quick: LambdaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_LAMBDA_URL", quick.url)

    async def story() -> None:
        rented = provider_spec("lambda").open(quick.credentials)
        started = await rented.submit(launch())
        assert (started.key, started.state, started.hourly) == ("bloom-5f3c-a1", "starting", 1.29)
        machine = quick.instances[started.id].machine
        wait_until(lambda: (machine.folder / "told").exists())
        assert (machine.folder / "told").read_text() == ADDRESS
        now = await rented.status(started.id)
        assert (now.id, now.key, now.state, now.region) == (started.id, started.key, "running", "us-east-1")
        assert [found.id for found in await rented.list()] == [started.id]
        await rented.cancel(started.id)
        assert (await rented.status(started.id)).state == "ended"
        assert await rented.list() == []
        assert machine.processes() == []
        # What has ended already is no fault.
        await rented.cancel(started.id)
        quick.forget(started.id)
        await rented.cancel(started.id)
        assert (await rented.status(started.id)).state == "ended"
        await rented.close()

    asyncio.run(story())
    assert quick.running == []


def test_the_address_lies_in_a_file_that_only_its_owner_reads(quick: LambdaService) -> None:
    identifier = asyncio.run(submit(quick, launch()))
    folder = quick.instances[identifier].machine.folder / "bloom"
    wait_until(lambda: (folder / "environment").exists() and (folder / "job.log").exists())
    for name in ("environment", "job.sh", "boot.log", "job.log"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_asking_again_with_the_same_key_starts_nothing(service: LambdaService) -> None:
    async def twice() -> None:
        async with opened(service) as one, opened(service) as other:
            first = await one.submit(launch())
            assert (await one.submit(launch())).id == first.id
            assert (await other.submit(launch())).id == first.id
            together = await asyncio.gather(*(one.submit(launch("bloom-2-a1")) for _ in range(3)))
            assert len({found.id for found in together}) == 1

    asyncio.run(twice())
    assert len(service.instances) == 2


@pytest.mark.long
@pytest.mark.parametrize("trouble", ["cut", "late"])
def test_a_launch_whose_answer_is_lost_is_found_and_not_repeated(
    service: LambdaService, trouble: Trouble
) -> None:
    service.fail_next(trouble)
    identifier = asyncio.run(submit(service, launch(), timeout_seconds=IMPATIENT_SECONDS))
    assert list(service.instances) == [identifier]
    assert len(service.calls("launch")) == 1


def test_a_lost_launch_is_looked_for_also_when_the_list_fails_at_first(service: LambdaService) -> None:
    service.fail_next("cut")
    # The first list, before the launch, comes through; the two after it do not.
    service.fail_next("unavailable", times=2, calls="GET /api/v1/instances", after=1)
    identifier = asyncio.run(submit(service, launch()))
    assert list(service.instances) == [identifier]
    assert len(service.calls("GET /api/v1/instances")) >= 4


@pytest.mark.long
def test_a_launch_that_was_never_carried_out_is_said_to_be_uncertain(service: LambdaService) -> None:
    service.fail_next("hang", calls="launch")
    fault = fault_of(service, timeout_seconds=IMPATIENT_SECONDS)
    assert (fault.kind, fault.uncertain, fault.passes) == ("timed_out", True, True)
    assert service.instances == {}
    asyncio.run(submit(service, launch()))
    assert len(service.instances) == 1


def test_when_one_region_is_full_the_next_is_tried(service: LambdaService) -> None:
    service.fail_next("no_capacity")
    identifier = asyncio.run(submit(service, launch()))
    assert service.instances[identifier].description["region_name"] == "europe-central-1"
    service.fail_next("no_capacity", times=2)
    assert fault_of(service, launch("bloom-2-a1")).kind == "no_capacity"


def test_where_nothing_is_free_nothing_is_launched(service: LambdaService) -> None:
    service.sold_out()
    fault = fault_of(service)
    assert (fault.kind, fault.passes) == ("no_capacity", True)
    assert "1× A10" in str(fault)
    assert fault_of(service, launch(gpu="GTX 970")).kind == "refused"
    assert fault_of(service, launch(gpus=3)).kind == "refused"
    assert service.calls("launch") == []


@pytest.mark.parametrize(
    ("wanted", "type_name", "region"),
    [
        (launch(region="eu"), "gpu_1x_a10", "europe-central-1"),
        (launch(region="us-east-1"), "gpu_1x_a10", "us-east-1"),
        (launch(gpu="A100 40GB"), "gpu_1x_a100", "us-west-1"),
        (launch(gpu="A100 40GB", region="us-east-1"), "gpu_1x_a100_sxm4", "us-east-1"),
        (launch(gpu="A100 80GB", gpus=8), "gpu_8x_a100_80gb_sxm4", "us-east-1"),
        (launch(gpu="H100"), "gpu_1x_h100_sxm5", "us-east-1"),
        (launch(gpu="H100 PCIe"), "gpu_1x_h100_pcie", "us-west-1"),
    ],
)
def test_the_cheapest_machine_that_fits_is_taken_where_it_is_wanted(
    service: LambdaService, wanted: Launch, type_name: str, region: str
) -> None:
    sent = service.instances[asyncio.run(submit(service, wanted))].description
    assert (sent["instance_type_name"], sent["region_name"]) == (type_name, region)


def test_prices_come_from_the_service_with_where_machines_are_free(service: LambdaService) -> None:
    async def prices() -> dict[tuple[str, int, str | None], tuple[float, str | None]]:
        async with opened(service) as rented:
            rows = await rented.prices()
            return {(row.gpu, row.gpus, row.region): (row.hourly, row.availability) for row in rows}

    found = asyncio.run(prices())
    assert found["A10", 1, None] == found["A10", 1, "eu"] == found["A10", 1, "us"] == (1.29, "immediate")
    assert found["A100 40GB", 1, "us"] == (1.99, "immediate")
    assert found["A100 80GB", 8, None] == (22.32, "immediate")
    assert found["RTX A6000", 1, None] == (1.09, "unavailable")
    assert ("RTX A6000", 1, "us") not in found
    assert {gpu for gpu, _, _ in found} == {
        "A10",
        "RTX A6000",
        "A100 40GB",
        "A100 80GB",
        "H100 PCIe",
        "H100",
    }


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("Tesla V100 (16 GB)", ("V100", 16)),
        ("A6000 (48 GB)", ("RTX A6000", 48)),
        ("RTX A6000 (48 GB)", ("RTX A6000", 48)),
        ("NVIDIA GH200 (96 GB)", ("GH200", 96)),
        ("B200 (180 GB SXM6)", ("B200", 180)),
        ("N/A", None),
    ],
)
def test_gpus_have_the_names_of_our_price_table(description: str, expected: object) -> None:
    machine = InstanceType(name="x", gpu_description=description, price_cents_per_hour=1, specs=Specs(gpus=1))
    assert machine.gpu == expected


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("booting", "starting"),
        ("active", "running"),
        ("unhealthy", "lost"),
        ("terminating", "ended"),
        ("terminated", "ended"),
        ("preempted", "lost"),
        ("something new", "running"),
    ],
)
def test_every_state_has_a_meaning(status: str, state: InstanceState) -> None:
    assert state_of(status)[0] == state


def test_a_machine_in_a_state_that_is_not_known_is_still_ours_to_end(
    service: LambdaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            identifier = (await rented.submit(launch())).id
            read = rented._http.read

            async def renamed(method: str, path: str, *rest: Any, **options: Any) -> Any:
                answer = await read(method, path, *rest, **options)
                for machine in answer.data if path == "/api/v1/instances" else ():
                    machine.status = "migrating"
                return answer

            monkeypatch.setattr(rented._http, "read", renamed)
            assert [found.id for found in await rented.list()] == [identifier]

    asyncio.run(story())


def test_a_machine_boots_runs_and_is_taken_away() -> None:
    clock = Clock()
    with LambdaService(clock=clock, boot_seconds=300) as service:

        async def story() -> None:
            async with opened(service) as rented:
                identifier = (await rented.submit(launch())).id
                assert (await rented.status(identifier)).state == "starting"
                clock.advance(301)
                assert (await rented.status(identifier)).state == "running"
                clock.advance(3600)
                assert service.billed_seconds(identifier) == pytest.approx(3601, abs=5)
                service.preempt(identifier)
                clock.advance(3600)
                now = await rented.status(identifier)
                assert (now.state, now.detail) == ("lost", "Lambda preempted the machine.")
                assert await rented.list() == []
                assert service.billed_seconds(identifier) == pytest.approx(3601, abs=5)

        asyncio.run(story())


def test_the_switch_of_a_dead_man_ends_the_job_but_not_the_bill(quick: LambdaService) -> None:
    identifier = asyncio.run(submit(quick, launch(longest_seconds=0.5)))
    machine = quick.instances[identifier].machine
    wait_until(lambda: not machine.running)
    assert (machine.folder / "powered-off").read_text() == "-P now\n"

    async def look() -> None:
        async with opened(quick) as rented:
            assert (await rented.status(identifier)).state == "lost"
            # Lambda bills it all the same, so it is still to be ended.
            assert [found.id for found in await rented.list()] == [identifier]
            await rented.cancel(identifier)
            assert await rented.list() == []

    asyncio.run(look())


def test_what_people_started_themselves_is_not_ours_whatever_its_name(service: LambdaService) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            identifier = (await rented.submit(launch())).id
            theirs = replace(service.instances[identifier], id="theirs", description={})
            theirs.description = {**service.instances[identifier].description, "tags": []}
            service.instances["theirs"] = theirs
            assert [found.id for found in await rented.list()] == [identifier]

    asyncio.run(story())


def test_an_account_without_ssh_keys_gets_one_that_nobody_can_log_in_with(service: LambdaService) -> None:
    asyncio.run(submit(service, launch()))
    asyncio.run(submit(service, launch("bloom-2-a1")))
    assert [key["name"] for key in service.ssh_keys] == ["bloom"]
    assert set(service.ssh_keys[0]) == {"id", "name", "public_key"}
    assert service.ssh_keys[0]["public_key"].startswith("ssh-ed25519 ")


def test_a_key_of_the_account_is_used_and_the_one_that_was_named_before_others(
    service: LambdaService,
) -> None:
    service.ssh_keys = [
        {"id": str(number), "name": name, "public_key": "ssh-ed25519 AAAA"}
        for number, name in enumerate(("laptop", "desk"))
    ]
    first = asyncio.run(submit(service, launch()))
    second = asyncio.run(submit(service, launch("bloom-2-a1"), "desk"))
    assert service.instances[first].description["ssh_key_names"] == ["laptop"]
    assert service.instances[second].description["ssh_key_names"] == ["desk"]
    assert service.calls("POST /api/v1/ssh-keys") == []

    async def check(name: str) -> str:
        async with opened(service, name) as rented:
            return await rented.check()

    assert "laptop, desk" in asyncio.run(check("desk"))
    with raises(Fault, code="refused", match="'gone'.*laptop, desk"):
        asyncio.run(check("gone"))


def test_launches_wait_for_their_turn(service: LambdaService) -> None:
    slept: list[float] = []
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    async def story() -> None:
        async with opened(service, rate_limit=RateLimit(1.0, 12.0, lambda: now, sleep)) as rented:
            await rented.submit(launch())
            await rented.submit(launch("bloom-2-a1"))

    asyncio.run(story())
    # List, types, keys, a new key and the launch, then the same without a new key.
    assert max(slept) == 9
    assert now == 4 + 12


def test_without_a_key_nothing_is_opened() -> None:
    with raises(Fault, code="bad_credentials"):
        provider_spec("lambda").open({"api_key": " "})
