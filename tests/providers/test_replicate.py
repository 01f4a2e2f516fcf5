"""Replicate: one training per key whatever happens on the way, its states, its faults, its bill.

The fake calls train() of the model that we write, and checks every exchange against our contract and,
where it is found, the published description.
"""

import asyncio
import json
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpubloom.agent import JobSpec
from gpubloom.providers.cloud import Fault, Launch
from gpubloom.providers.registry import provider_spec
from gpubloom.providers.replicate.cog_model import model_files
from gpubloom.providers.replicate.provider import Replicate, _explain
from gpubloom.storage import Bundle, Receiver, Store, send_bundle
from gpubloom.traincard.sync.accepted import TRAINING_PATHS
from tests.errors import raises
from tests.providers.launches import ADDRESS, Account
from tests.providers.launches import launch as any_launch
from tests.providers.services.replicate_service import HOST, SPEC, VERSION, ReplicateService
from tests.providers.services.spec import misfits, published
from tests.providers.services.web import Clock, Exchange, Trouble
from tests.storage.instances import QUICK
from tests.waiting import TIMEOUT_SECONDS, wait_until


@pytest.fixture
def service() -> Iterator[ReplicateService]:
    with ReplicateService() as service:
        yield service


def launch(key: str = "bloom-5f3c-a1", **changes: object) -> Launch:
    return any_launch(key, **{"gpu": "L40S", **changes})


ACCOUNT = Account(
    "Replicate",
    _explain,
    lambda http: Replicate(http, f"somebody/bloom:{VERSION}", "somebody/results", "L40S", pause_seconds=0.01),
    launch,
    # Impatient: some tests get no answer.
    timeout_seconds=4.0,
)
opened, submit, fault_of = ACCOUNT.opened, ACCOUNT.submit, ACCOUNT.fault_of


@pytest.mark.long
def test_a_training_runs_the_agent_and_its_results_arrive(
    service: ReplicateService, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_REPLICATE_URL", service.url)
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.py").write_text(
        "import pathlib\npathlib.Path('model').mkdir()\npathlib.Path('model/weights').write_text('learned')\n"
        "for step in range(1, 4): print(f'step {step}/3 | loss: {1 / step:.2f}', flush=True)\n"
    )
    spec = JobSpec("job-1", run, 1, (sys.executable, "train.py"))
    sent = send_bundle(store, Bundle(spec, run, timing=QUICK))
    receiver = Receiver(store, "job-1", 1, run, accepted=TRAINING_PATHS)

    async def story() -> None:
        rented = provider_spec("replicate").open(service.credentials)
        assert await rented.check() == "somebody"
        started = await rented.submit(launch(command=sent.command, start_address=sent.address))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while receiver.once().state != "ended":
            assert time.monotonic() < deadline, service.instances[started.id].machine.text
            await asyncio.sleep(0.05)
        wait_until(lambda: (service.instances[started.id].machine.folder / "ended.json").exists())
        now = await rented.status(started.id)
        assert (now.key, now.state, now.detail) == ("bloom-5f3c-a1", "ended", "succeeded")
        assert await rented.list() == []
        machine = service.instances[started.id].machine
        wait_until(lambda: "[bloom] attempt bloom-5f3c-a1" in machine.text)
        with tarfile.open(json.loads((machine.folder / "ended.json").read_text())["weights"]) as tar:
            assert tar.getnames() == ["model", "model/weights"]
        assert now.billed_from is not None
        assert now.billed_to is not None
        billed = (now.billed_to - now.billed_from).total_seconds()
        assert billed == pytest.approx(service.billed_seconds(started.id), rel=0.01)
        await rented.close()

    asyncio.run(story())
    assert (run / "model" / "weights").read_text() == "learned"
    assert "loss: 0.33" in (run / "logs" / "output.log").read_text()


def test_a_cancelled_training_ends_the_agent_and_its_bill(service: ReplicateService) -> None:
    saves = 'trap "echo saved; exit 0" TERM; echo started; while :; do sleep 0.05; done'

    async def story() -> None:
        async with opened(service) as rented:
            identifier = (await rented.submit(launch(command=saves))).id
            machine = service.instances[identifier].machine
            wait_until(lambda: "started" in machine.text)
            assert (await rented.status(identifier)).state == "running"
            await rented.cancel(identifier)
            # A thread reads what the machine prints.
            wait_until(lambda: "saved" in machine.text)
            assert (await rented.status(identifier)).state == "ended"
            assert machine.processes() == []
            # What has ended already is no fault.
            await rented.cancel(identifier)
            service.forget(identifier)
            await rented.cancel(identifier)
            assert (await rented.status(identifier)).state == "ended"

    asyncio.run(story())
    assert service.running == []


def test_the_address_is_shown_by_nobody_afterwards(service: ReplicateService) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            identifier = (await rented.submit(launch())).id
            machine = service.instances[identifier].machine
            wait_until(lambda: (machine.folder / "told").exists())
            assert (machine.folder / "told").read_text() == ADDRESS
            for process in machine.processes():
                assert "Hidden-Signature" not in " ".join(process.cmdline())
            assert "Hidden-Signature" not in repr(await rented.status(identifier))
            assert "Hidden-Signature" not in machine.text
            assert "Hidden" not in repr(rented)

    asyncio.run(story())


def test_an_agent_that_fails_fails_the_training_with_its_code(service: ReplicateService) -> None:
    identifier = asyncio.run(submit(service, launch(command="exit 78")))
    wait_until(lambda: (service.instances[identifier].machine.folder / "ended.json").exists())

    async def look() -> None:
        async with opened(service) as rented:
            now = await rented.status(identifier)
            assert (now.state, now.detail) == ("ended", "The agent of the job ended with exit code 78.")

    asyncio.run(look())


def test_a_training_ends_by_itself_at_its_time_limit(service: ReplicateService) -> None:
    identifier = asyncio.run(submit(service, launch(longest_seconds=1)))
    machine = service.instances[identifier].machine
    wait_until(lambda: (machine.folder / "ended.json").exists())
    assert "timed out" in (machine.folder / "ended.json").read_text()


def test_asking_again_with_the_same_key_starts_nothing(service: ReplicateService) -> None:
    async def story() -> None:
        async with opened(service) as one, opened(service) as other:
            first = await one.submit(launch())
            assert (await other.submit(launch())).id == first.id
            together = await asyncio.gather(*(one.submit(launch("bloom-2-a1")) for _ in range(3)))
            assert len({found.id for found in together}) == 1
            # Pages hold three here: the first one is found on the second page, also after its end.
            for number in range(3, 6):
                await one.submit(launch(f"bloom-{number}-a1", command="true"))
            await one.cancel(first.id)
            assert (await one.submit(launch())).id == first.id

    asyncio.run(story())
    assert len(service.instances) == 5


@pytest.mark.long
@pytest.mark.parametrize("trouble", ["cut", "late"])
def test_a_start_whose_answer_is_lost_is_found_and_not_repeated(
    service: ReplicateService, trouble: Trouble
) -> None:
    service.fail_next(trouble, calls="POST")
    identifier = asyncio.run(submit(service, launch()))
    assert list(service.instances) == [identifier]
    assert len(service.calls("POST")) == 1


@pytest.mark.long
def test_a_start_that_was_never_carried_out_is_said_to_be_uncertain(service: ReplicateService) -> None:
    service.fail_next("hang", calls="POST")
    fault = fault_of(service)
    assert (fault.kind, fault.uncertain, fault.passes) == ("timed_out", True, True)
    assert service.instances == {}


def test_what_the_model_does_not_run_on_is_refused_before_anything_is_asked(
    service: ReplicateService,
) -> None:
    for wanted in (launch(gpu="H100"), launch(gpus=2)):
        fault = fault_of(service, wanted)
        assert fault.kind == "refused"
        assert "runs on one L40S, not on" in str(fault)
    assert service.exchanges == []


def test_a_destination_that_is_gone_is_said(service: ReplicateService) -> None:
    service.destinations.clear()
    assert "no longer has the model, its version or the destination" in str(fault_of(service))

    async def check() -> None:
        async with opened(service) as rented:
            await rented.check()

    with raises(Fault, code="refused"):
        asyncio.run(check())


def test_a_machine_that_went_away_has_ended_and_no_address_is_repeated(service: ReplicateService) -> None:
    identifier = asyncio.run(submit(service, launch()))
    service.preempt(identifier)

    async def look() -> None:
        async with opened(service) as rented:
            now = await rented.status(identifier)
            assert (now.state, now.detail) == ("ended", "The machine went away; see (an address)")
            assert await rented.list() == []

    asyncio.run(look())


def test_what_people_train_themselves_is_not_ours(service: ReplicateService) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            identifier = (await rented.submit(launch())).id
            theirs = replace(service.instances[identifier], id="theirs", description={"key": "mine"})
            service.instances["theirs"] = theirs
            assert [found.id for found in await rented.list()] == [identifier]

    asyncio.run(story())
    service.instances.pop("theirs")


def test_a_clock_that_is_hours_ahead_changes_no_bill() -> None:
    clock = Clock()
    with ReplicateService(clock=clock) as service:
        service.clock_ahead_seconds = 5 * 3600

        async def story() -> None:
            async with opened(service) as rented:
                identifier = (await rented.submit(launch())).id
                wait_until(lambda: service.instances[identifier].machine.started_at is not None)
                now = await rented.status(identifier)
                assert now.billed_from is not None
                assert abs((now.billed_from - datetime.now(UTC)).total_seconds()) < 10

        asyncio.run(story())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"api_key": " "}, "API token"),
        ({"model": "somebody/bloom"}, "OWNER/NAME:VERSION"),
        ({"model": f"../bloom:{VERSION}"}, "OWNER/NAME:VERSION"),
        ({"destination": "results"}, "OWNER/NAME"),
    ],
)
def test_what_was_entered_wrongly_is_said_at_once(
    service: ReplicateService, changes: dict[str, str], name: str
) -> None:
    with raises(Fault, code="bad_credentials", match=name):
        provider_spec("replicate").open({**service.credentials, **changes})


def test_the_model_to_push_names_its_train_function() -> None:
    files = model_files(("torch==2.9", "numpy"))
    assert set(files) == {"cog.yaml", "requirements.txt", "train.py"}
    assert 'train: "train.py:train"' in files["cog.yaml"]
    # Cog has given up python_packages.
    assert "python_requirements: requirements.txt" in files["cog.yaml"]
    assert files["requirements.txt"] == "torch==2.9\nnumpy\n"
    assert "def train(" in files["train.py"]


def test_the_published_description_is_really_asked(service: ReplicateService) -> None:
    spec = published(SPEC)
    if spec is None:
        pytest.skip("the published description of Replicate's API is not here (BLOOM_SPECS)")
    asyncio.run(submit(service, launch(command="true")))
    good = service.calls("POST")[0]
    assert list(misfits(spec, HOST, good)) == []
    request = replace(good.request, body={"input": good.request.body["input"]})
    found = list(misfits(spec, HOST, Exchange(request, good.reply)))
    assert len(found) == 1
    assert "destination" in found[0]
