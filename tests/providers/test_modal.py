"""Modal through its own SDK: one sandbox per key, whatever happens on the way, and named faults."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from gpubloom.providers.cloud import Fault, Instance, Launch
from gpubloom.providers.modal.connection import TimeLimits, modal_fault
from gpubloom.providers.modal.provider import PROVIDER, ModalProvider
from gpubloom.providers.registry import provider_spec
from gpubloom.storage import Store
from tests.errors import raises
from tests.providers.services.modal_service import TOKEN_ID, TOKEN_SECRET, ModalService
from tests.storage.instances import Instance as RentedRun

Result = TypeVar("Result")
Calls = Callable[[ModalProvider], Coroutine[Any, Any, Result]]

ADDRESS = "https://bucket.example/start?signature=Hidden-Start-Signature"
LIMITS = TimeLimits(answer=20, image=20, machine=20, clean_up=5, look_again=(0.0, 0.2))
# Where a machine is waited for in vain.
QUICK = replace(LIMITS, machine=1.5)
WAITS = "echo on; sleep 60"
# Four calls: the SDK tries three times again by itself.
ALL_TRIES = 4

pytestmark = pytest.mark.xdist_group("modal")


@pytest.fixture(scope="module")
def running_service() -> Iterator[ModalService]:
    with ModalService() as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv(*next(iter(service.environment.items())))
        yield service


@pytest.fixture
def service(running_service: ModalService) -> Iterator[ModalService]:
    yield running_service
    running_service.recover()
    running_service.tokens = {TOKEN_ID: TOKEN_SECRET}
    for sandbox in running_service.running:
        running_service.preempt(sandbox.id)
    running_service.sandboxes.clear()
    running_service.calls.clear()


def on_modal(calls: Calls[Result], secret: str = TOKEN_SECRET, limits: TimeLimits = LIMITS) -> Result:
    async def run() -> Result:
        opened = ModalProvider(TOKEN_ID, secret, limits=limits)
        try:
            return await calls(opened)
        finally:
            await opened.close()

    return asyncio.run(run())


def launch(command: str = WAITS, key: str = "bloom-job1-a1", **values: Any) -> Launch:
    return Launch(key=key, gpu="A100 80GB", gpus=2, command=command, start_address=ADDRESS, **values)


async def until_ended(opened: ModalProvider, instance_id: str) -> Instance:
    deadline = time.monotonic() + 120
    while (found := await opened.status(instance_id)).state == "running":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return found


def test_a_job_runs_in_a_sandbox_as_it_was_asked_for_and_its_end_and_output_are_told(
    service: ModalService,
) -> None:
    async def calls(opened: ModalProvider) -> tuple[Instance, str]:
        wanted = launch(
            'echo "$BLOOM_START"; exit 3',
            packages=("numpy", "torch==2.9"),
            region="asia",
            longest_seconds=7200,
        )
        started = await opened.submit(wanted)
        assert (started.key, started.region) == (wanted.key, "asia")
        ended = await until_ended(opened, started.id)
        return ended, service.sandboxes[started.id].log

    ended, printed = on_modal(calls)
    assert (ended.state, ended.key, ended.detail) == (
        "ended",
        "bloom-job1-a1",
        "The command ended with exit code 3.",
    )
    # What the command reads is the address; that the command does not hold it is seen below.
    assert printed == f"{ADDRESS}\n"
    (sandbox,) = service.sandboxes.values()
    definition = sandbox.definition
    assert (definition.resources.gpu_config.gpu_type, definition.resources.gpu_config.count) == (
        "A100-80GB",
        2,
    )
    assert definition.resources.milli_cpu == 4_000
    assert definition.timeout_secs == 7_200
    assert list(definition.scheduler_placement.regions) == ["ap"]
    built = service.images[definition.image_id]
    assert any("numpy" in command and "torch==2.9" in command for command in built)
    assert any(
        command.startswith("FROM python:3.1") for images in service.images.values() for command in images
    )


def test_the_build_of_an_image_is_shown_to_the_one_who_asked_for_it(service: ModalService) -> None:
    service.build_output = ["Collecting numpy", f"token hf_secret for {ADDRESS}"]

    async def calls(opened: ModalProvider) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        other = ModalProvider(TOKEN_ID, TOKEN_SECRET, limits=LIMITS)
        wanted = launch(packages=("numpy",), secrets={"HF_TOKEN": "hf_secret"})
        started = await opened.submit(wanted)
        found = (
            await opened.console(wanted.key),
            await opened.console(started.id),
            await other.console(wanted.key),
        )
        await other.close()
        return found

    try:
        by_key, by_id, of_another = on_modal(calls)
    finally:
        service.build_output = []
    assert by_key == by_id
    assert "Collecting numpy" in by_key
    assert "token … for …" in by_key
    assert of_another == []


def test_a_sandbox_lives_a_day_at_most(service: ModalService) -> None:
    on_modal(lambda opened: opened.submit(launch(longest_seconds=3 * 86_400)))
    assert [sandbox.definition.timeout_secs for sandbox in service.sandboxes.values()] == [86_400]
    assert PROVIDER.capabilities.longest_seconds == 86_400


def test_asking_twice_for_one_key_gives_one_sandbox(service: ModalService) -> None:
    async def twice(opened: ModalProvider) -> tuple[str, str]:
        return (await opened.submit(launch())).id, (await opened.submit(launch())).id

    first, second = on_modal(twice)
    # Another process, which knows nothing of the first one.
    third = on_modal(lambda opened: opened.submit(launch())).id
    assert first == second == third
    assert len(service.sandboxes) == 1


def test_a_key_whose_sandbox_has_ended_is_not_started_again(service: ModalService) -> None:
    async def calls(opened: ModalProvider) -> Instance:
        started = await opened.submit(launch("true"))
        await until_ended(opened, started.id)
        return await opened.submit(launch("true"))

    assert on_modal(calls).state == "ended"
    assert len(service.sandboxes) == 1


def test_a_connection_that_is_cut_after_the_start_leads_to_the_sandbox_that_was_started(
    service: ModalService,
) -> None:
    service.fail_next("cut")
    started = on_modal(lambda opened: opened.submit(launch()))
    assert [started.id] == [sandbox.id for sandbox in service.running]
    # The SDK did ask again by itself; the name, taken by then, kept it from a second sandbox.
    assert service.calls.count("SandboxCreate") == 2
    assert len(service.sandboxes) == 1


def test_a_start_whose_answer_never_comes_leads_to_the_sandbox_that_was_started(
    service: ModalService,
) -> None:
    """What the SDK waits for is given up, and the sandbox is looked for."""

    async def calls(opened: ModalProvider) -> Instance:
        service.fail_next("late")
        return await opened.submit(launch())

    assert on_modal(calls, limits=QUICK).state == "running"
    assert len(service.running) == 1


@pytest.mark.parametrize(
    ("trouble", "times", "kind", "passes"),
    [
        ("no_capacity", 1, "no_capacity", True),
        ("quota", 1, "quota", False),
        ("rate_limited", 1, "rate_limited", True),
        ("unavailable", ALL_TRIES, "unavailable", True),
        ("refused", 1, "refused", False),
        ("hang", 1, "timed_out", True),
    ],
)
def test_what_modal_cannot_do_is_named_and_leaves_nothing_running(
    service: ModalService, trouble: Any, times: int, kind: str, passes: bool
) -> None:
    service.fail_next(trouble, times=times, calls="SandboxCreate")
    with pytest.raises(Fault) as caught:
        on_modal(lambda opened: opened.submit(launch()), limits=QUICK if trouble == "hang" else LIMITS)
    assert (caught.value.kind, caught.value.passes) == (kind, passes)
    assert caught.value.uncertain == (kind in ("unavailable", "timed_out"))
    assert "A100 80GB" in str(caught.value)
    assert service.running == []


@pytest.mark.parametrize(
    ("said", "kind", "step"),
    [
        ("No capacity for H100.", "no_capacity", "choose another offer"),
        ("Workspace billing cycle spend limit reached.", "inactive_account", "resume the job"),
        ("GPU limit of 10 reached.", "quota", "Raise the limit"),
    ],
)
def test_one_status_of_modal_has_several_meanings_each_with_its_next_step(
    said: str, kind: str, step: str
) -> None:
    modal = pytest.importorskip("modal")
    fault = modal_fault(modal.exception.ResourceExhaustedError(said), "start a sandbox", ())
    assert fault.kind == kind
    assert step in str(fault)


def test_a_job_for_which_no_machine_gets_free_is_given_up_and_does_not_start_later(
    service: ModalService,
) -> None:
    service.fail_next("queued")
    with pytest.raises(Fault) as caught:
        on_modal(lambda opened: opened.submit(launch()), limits=QUICK)
    assert (caught.value.kind, caught.value.uncertain) == ("no_capacity", False)
    assert len(service.sandboxes) == 1
    assert service.running == []


def test_a_service_that_asks_for_a_pause_gets_it(service: ModalService) -> None:
    service.fail_next("throttled", times=2, calls="SandboxCreate")
    assert on_modal(lambda opened: opened.submit(launch())).state == "running"


def test_packages_that_cannot_be_installed_are_the_persons_to_mend(service: ModalService) -> None:
    with raises(Fault, code="refused") as caught:
        on_modal(lambda opened: opened.submit(launch(packages=("no-such-package",))))
    assert caught.value.kind == "refused"
    assert service.running == []


def test_gpus_that_modal_does_not_have_are_refused_before_anything_is_asked(service: ModalService) -> None:
    too_many = replace(launch(), gpu="A10", gpus=5)
    for wanted in (replace(launch(), gpu="RTX 4090"), replace(launch(), gpus=9), too_many):
        with pytest.raises(Fault) as caught:
            on_modal(lambda opened, wanted=wanted: opened.submit(wanted))  # type: ignore[misc]
        assert caught.value.kind == "refused"
    assert service.calls == []


def test_credentials_are_checked_and_their_owner_is_told(service: ModalService) -> None:
    assert on_modal(lambda opened: opened.check()) == "bloom-tests"
    with pytest.raises(Fault) as caught:
        on_modal(lambda opened: opened.check(), secret="as-wrong")
    assert caught.value.kind == "bad_credentials"
    assert service.calls == ["WorkspaceNameLookup"] * 2


def test_credentials_that_are_revoked_meanwhile_are_noticed_by_every_call(service: ModalService) -> None:
    async def calls(opened: ModalProvider) -> list[str]:
        started = await opened.submit(launch())
        service.revoke()
        kinds = []
        for call in (opened.check(), opened.status(started.id), opened.list(),
                     opened.cancel(started.id), opened.submit(launch(key="bloom-job2-a1"))):  # fmt: skip
            with pytest.raises(Fault) as caught:
                await call
            kinds.append(caught.value.kind)
        return kinds

    assert on_modal(calls) == ["bad_credentials"] * 5


def test_a_sandbox_that_modal_takes_away_is_lost_and_one_that_we_end_is_ended(service: ModalService) -> None:
    async def calls(opened: ModalProvider) -> tuple[str, str, str]:
        first = await opened.submit(launch())
        second = await opened.submit(launch(key="bloom-job2-a1"))
        service.preempt(first.id)
        await opened.cancel(second.id)
        # Ending what has ended, or what was never there, is no fault.
        await opened.cancel(second.id)
        await opened.cancel("sb-" + "0" * 22)
        unknown = await opened.status("sb-" + "0" * 22)
        return (await opened.status(first.id)).state, (await opened.status(second.id)).state, unknown.state

    assert on_modal(calls) == ("lost", "ended", "ended")
    assert service.running == []


def test_what_runs_is_listed_by_its_key_and_nothing_else_is(service: ModalService) -> None:
    keys = {f"bloom-job{number}-a1" for number in range(5)}

    async def calls(opened: ModalProvider) -> list[Instance]:
        assert await opened.list() == []
        for key in sorted(keys):
            await opened.submit(launch(key=key))
        return await opened.list()

    on_modal(calls)
    # What a person started in the same app by other means.
    stranger = next(iter(service.sandboxes.values()))
    keys.remove(stranger.tags["gpubloom-key"])
    stranger.tags.clear()
    listed = on_modal(lambda opened: opened.list())
    assert {instance.key for instance in listed} == keys
    assert all(instance.state == "running" for instance in listed)


def test_no_secret_is_in_any_log_error_or_process_list(
    service: ModalService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("modal-client").setLevel(logging.DEBUG)
    told: list[str] = []

    async def calls(opened: ModalProvider) -> None:
        started = await opened.submit(launch("sleep 60; true"))
        told.append(repr((started, opened, launch())))
        sandbox = service.sandboxes[started.id]
        assert sandbox.machine is not None
        assert "BLOOM_START" in sandbox.machine.processes()[0].environ()
        told.extend(" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
        told.append(str(sandbox.definition))
        for trouble in ("refused", "quota", "bad_credentials"):
            service.fail_next(trouble, calls="SandboxCreate")  # type: ignore[arg-type]
            with pytest.raises(Fault) as caught:
                await opened.submit(launch(key=f"bloom-{trouble}-a1"))
            told.append(f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}")

    try:
        on_modal(calls)
    finally:
        logging.getLogger("modal-client").setLevel(logging.WARNING)
    told.append(caplog.text)
    for secret in (TOKEN_SECRET, ADDRESS, "Hidden-Start-Signature"):
        assert not [text for text in told if secret in text]


def test_modal_is_a_place_that_can_be_opened_with_what_a_person_enters() -> None:
    kind = provider_spec("modal")
    assert kind.why_not() is None
    opened = kind.open({field.name: "x" for field in kind.fields})
    assert opened.name == "modal"
    assert [field.name for field in kind.fields if field.secret] == ["token_id", "token_secret"]


def test_without_the_sdk_modal_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubloom.providers.modal.provider.find_spec", lambda name: None)
    assert "pip install 'gpubloom[modal]'" in str(PROVIDER.why_not())


def test_the_agent_runs_a_script_in_a_sandbox_and_everything_comes_back_through_the_bucket(
    service: ModalService, store: Store, tmp_path: Path
) -> None:
    there = RentedRun(
        store,
        tmp_path,
        {"train.py": "import os; os.mkdir('model'); open('model/w', 'w').write('weights'); print('done')"},
    )
    sent = there.send()

    async def calls(opened: ModalProvider) -> Instance:
        started = await opened.submit(replace(launch(sent.command), start_address=sent.address))
        await asyncio.to_thread(there.until, "ended")
        return await until_ended(opened, started.id)

    assert on_modal(calls).detail == "The command ended with exit code 0."
    assert (there.run_dir / "model/w").read_text() == "weights"
    assert "done" in (there.run_dir / "logs" / "output.log").read_text()
