"""Paperspace: one machine per key whatever happens on the way, nothing left behind, its states and faults.

The fake checks every exchange against a contract that is written from the types of Paperspace's client.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpubloom.providers.cloud import Fault, FaultKind, InstanceState, Launch
from gpubloom.providers.paperspace.api_client import PaperspaceApi, explain
from gpubloom.providers.paperspace.machine_types import Machine, state_of
from gpubloom.providers.paperspace.provider import Paperspace
from gpubloom.providers.registry import provider_spec
from tests.providers.launches import ADDRESS, Account, launch
from tests.providers.services.paperspace_service import PaperspaceService
from tests.providers.services.web import Clock, Trouble
from tests.waiting import wait_until

NY2, CA1, AMS1 = "East Coast (NY2)", "West Coast (CA1)", "Europe (AMS1)"
# Longer than any answer takes on a busy machine, shorter than a test may wait for none.
IMPATIENT_SECONDS = 4.0


def wanted(key: str = "bloom-5f3c-a1", **changes: Any) -> Launch:
    return launch(key, **{"gpu": "RTX A4000", **changes})


@pytest.fixture
def service() -> Iterator[PaperspaceService]:
    """Its machines take long to boot: most tests need none that runs."""
    with PaperspaceService(boot_seconds=3600) as service:
        yield service


@pytest.fixture
def quick() -> Iterator[PaperspaceService]:
    """Its machines run at once."""
    with PaperspaceService() as service:
        yield service


ACCOUNT = Account(
    "Paperspace",
    explain,
    lambda http, template="": Paperspace(PaperspaceApi(http), template, pause_seconds=0.01),
    wanted,
)
opened, submit, fault_of = ACCOUNT.opened, ACCOUNT.submit, ACCOUNT.fault_of


def test_a_job_runs_on_its_own_machine_and_leaves_neither_machine_nor_script(
    quick: PaperspaceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_PAPERSPACE_URL", quick.url)

    async def story() -> None:
        rented = provider_spec("paperspace").open(quick.credentials)
        assert await rented.check() == "ada@example.org, team ada"
        assert await rented.prices() == []
        started = await rented.submit(wanted())
        assert (started.key, started.hourly, started.region) == ("bloom-5f3c-a1", 0.76, NY2)
        machine = quick.instances[started.id].machine
        wait_until(lambda: (machine.folder / "told").exists())
        assert (machine.folder / "told").read_text() == ADDRESS
        assert (await rented.status(started.id)).state == "running"
        assert [found.id for found in await rented.list()] == [started.id]
        await rented.cancel(started.id)
        assert (await rented.status(started.id)).state == "ended"
        assert await rented.list() == []
        assert machine.processes() == []
        await rented.cancel(started.id)
        await rented.close()

    asyncio.run(story())
    assert quick.running == []
    assert quick.scripts == {}


def test_a_machine_is_made_from_the_newest_template_with_libraries_that_fits_it(
    service: PaperspaceService,
) -> None:
    one = service.instances[asyncio.run(submit(service, wanted()))].description
    # The template wants 100 GB, more than was asked for.
    assert (one["machineType"], one["templateId"], one["diskSize"]) == ("A4000", "tml2204", 100)
    two = service.instances[
        asyncio.run(submit(service, wanted("bloom-2-a1", gpus=2, disk_gb=120)))
    ].description
    assert (two["machineType"], two["templateId"], two["diskSize"]) == ("A4000x2", "tub2204", 250)
    named = asyncio.run(submit(service, wanted("bloom-3-a1"), "tub2004"))
    assert service.instances[named].description["templateId"] == "tub2004"
    for description in (one, two):
        assert description["startOnCreate"]
        assert not description["autoShutdownEnabled"]


def test_what_paperspace_does_not_have_is_refused_before_anything_is_made(service: PaperspaceService) -> None:
    assert "no machine with GTX 970" in str(fault_of(service, wanted(gpu="GTX 970")))
    assert "not in eu" in str(fault_of(service, wanted(gpu="A100 80GB", region="eu")))
    assert "no Ubuntu template" in str(fault_of(service, wanted(gpus=3)))
    assert (service.scripts, service.instances) == ({}, {})


@pytest.mark.parametrize(
    ("region", "full", "expected"),
    [
        (None, (), NY2),
        (None, (NY2,), CA1),
        ("us", (NY2,), CA1),
        ("eu", (), AMS1),
        ("ca1", (), CA1),
        (CA1, (), CA1),
        (None, (NY2, CA1), AMS1),
    ],
)
def test_the_first_region_that_is_wanted_and_free_is_taken(
    service: PaperspaceService, region: str | None, full: tuple[str, ...], expected: str
) -> None:
    service.full = set(full)
    identifier = asyncio.run(submit(service, wanted(region=region)))
    assert service.instances[identifier].description["region"] == expected
    assert len(service.scripts) == 1


def test_when_every_region_is_full_no_script_is_left(service: PaperspaceService) -> None:
    service.full = {NY2, CA1, AMS1}
    fault = fault_of(service)
    assert (fault.kind, fault.passes) == ("no_capacity", True)
    assert service.scripts == {}


@pytest.mark.parametrize(
    ("trouble", "kind", "passes"),
    [
        ("quota", "quota", False),
        ("bad_credentials", "bad_credentials", False),
        ("rate_limited", "rate_limited", True),
        ("refused", "refused", False),
    ],
)
@pytest.mark.parametrize("calls", ["POST /machines", "POST /startup-scripts"])
def test_a_launch_fails_by_its_name_and_leaves_nothing(
    service: PaperspaceService, calls: str, trouble: Trouble, kind: FaultKind, passes: bool
) -> None:
    service.fail_next(trouble, calls=calls)
    fault = fault_of(service)
    assert (fault.kind, fault.passes, fault.uncertain) == (kind, passes, False)
    assert fault.retry_after_seconds == (7 if trouble == "rate_limited" else None)
    assert (service.scripts, service.instances) == ({}, {})


@pytest.mark.parametrize(
    ("calls", "trouble"),
    [
        ("POST /machines", "cut"),
        pytest.param("POST /machines", "late", marks=pytest.mark.long),
        ("POST /startup-scripts", "cut"),
    ],
)
def test_what_was_made_and_not_answered_is_found_and_not_made_again(
    service: PaperspaceService, calls: str, trouble: Trouble
) -> None:
    service.fail_next(trouble, calls=calls)
    identifier = asyncio.run(submit(service, wanted(), timeout_seconds=IMPATIENT_SECONDS))
    assert list(service.instances) == [identifier]
    assert len(service.scripts) == 1


def test_an_answer_that_breaks_off_on_the_service_side_is_uncertain_and_keeps_the_script(
    service: PaperspaceService,
) -> None:
    service.fail_next("unavailable", calls="POST /machines")
    fault = fault_of(service)
    assert (fault.kind, fault.uncertain) == ("unavailable", True)
    # Should the machine come after all, it still finds its script.
    assert len(service.scripts) == 1
    asyncio.run(submit(service, wanted()))
    assert len(service.scripts) == len(service.instances) == 1


@pytest.mark.long
def test_asking_again_with_the_same_key_starts_nothing(service: PaperspaceService) -> None:
    async def twice() -> None:
        async with opened(service) as one, opened(service) as other:
            for number in range(3):
                await other.submit(wanted(f"bloom-{number}-a1"))
            first = await one.submit(wanted())
            assert (await other.submit(wanted())).id == first.id
            together = await asyncio.gather(*(one.submit(wanted("bloom-9-a1")) for _ in range(3)))
            assert len({found.id for found in together}) == 1
            assert len(await one.list()) == 5

    asyncio.run(twice())
    assert len(service.instances) == len(service.scripts) == 5


def test_a_script_that_could_not_be_deleted_is_deleted_another_time() -> None:
    clock = Clock()
    with PaperspaceService(clock=clock) as service:

        async def story() -> None:
            async with opened(service) as rented:
                first = await rented.submit(wanted())
                second = await rented.submit(wanted("bloom-2-a1"))
                service.fail_next("unavailable", calls="DELETE /startup-scripts")
                with pytest.raises(Fault):
                    await rented.cancel(first.id)
                assert [rental.id for rental in service.running] == [second.id]
                assert len(service.scripts) == 2
                clock.advance(2 * 3600)
                await rented.cancel(second.id)
                assert service.scripts == {}

        asyncio.run(story())


def test_what_people_made_themselves_is_never_touched(service: PaperspaceService) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            identifier = (await rented.submit(wanted())).id
            service.instances[identifier].name = "bloom-garden"
            for script in service.scripts.values():
                script["name"] = "my-setup"
            assert await rented.list() == []
            await rented.submit(wanted())
            assert len(service.running) == 2
            assert [script["name"] for script in service.scripts.values()].count("my-setup") == 1

    asyncio.run(story())


@pytest.mark.parametrize("ahead", [0.0, -86_400.0])
def test_a_machine_is_billed_from_its_making_also_when_the_clocks_differ(ahead: float) -> None:
    clock = Clock()
    with PaperspaceService(clock=clock, boot_seconds=60) as service:
        service.clock_ahead_seconds = ahead

        async def story() -> None:
            async with opened(service) as rented:
                identifier = (await rented.submit(wanted())).id
                assert (await rented.status(identifier)).state == "starting"
                clock.advance(1800)
                now = await rented.status(identifier)
                assert now.state == "running"
                assert now.billed_from is not None
                billed = datetime.now(UTC) - now.billed_from
                assert (
                    abs(billed - timedelta(seconds=service.billed_seconds(identifier))).total_seconds() < 10
                )

        asyncio.run(story())


def test_a_machine_that_is_switched_off_is_lost_and_still_to_be_deleted() -> None:
    clock = Clock()
    with PaperspaceService(clock=clock) as service:
        identifier = asyncio.run(submit(service, wanted(longest_seconds=0.5)))
        machine = service.instances[identifier].machine
        wait_until(lambda: not machine.running)
        clock.advance(3600)

        async def look() -> None:
            async with opened(service) as rented:
                now = await rented.status(identifier)
                assert now.state == "lost"
                assert "disk is billed" in now.detail
                assert [found.id for found in await rented.list()] == [identifier]
                await rented.cancel(identifier)
                assert await rented.list() == []

        asyncio.run(look())


def test_a_machine_that_was_promised_and_cannot_be_had_is_lost_with_the_reason() -> None:
    with PaperspaceService(boot_seconds=3600) as service:

        async def story() -> None:
            async with opened(service) as rented:
                identifier = (await rented.submit(wanted())).id
                assert (await rented.status(identifier)).state == "starting"
                service.fail_start(identifier, "out of capacity")
                now = await rented.status(identifier)
                assert now.state == "lost"
                assert now.detail == "Paperspace could not start the machine: out of capacity."

        asyncio.run(story())


@pytest.mark.parametrize(
    ("state", "age", "meaning"),
    [
        ("provisioning", 0, "starting"),
        ("starting", 0, "starting"),
        ("off", 60, "starting"),
        ("off", 3600, "lost"),
        ("serviceready", 0, "running"),
        ("ready", 0, "running"),
        ("restarting", 0, "running"),
        ("upgrading", 0, "running"),
        ("stopping", 0, "running"),
        ("something new", 0, "running"),
    ],
)
def test_every_state_has_a_meaning(state: str, age: int, meaning: InstanceState) -> None:
    machine = Machine.model_validate(
        {"id": "m", "name": "m", "state": state, "region": NY2, "dtCreated": "2026-11-15T12:00:00"}
    )
    assert state_of(machine, timedelta(seconds=age))[0] == meaning


def test_a_machine_that_the_service_takes_away_has_ended(service: PaperspaceService) -> None:
    identifier = asyncio.run(submit(service, wanted()))
    service.preempt(identifier)

    async def look() -> None:
        async with opened(service) as rented:
            now = await rented.status(identifier)
            assert (now.state, now.detail) == ("ended", "Paperspace no longer has this machine.")
            assert await rented.list() == []

    asyncio.run(look())
