"""Keys and addresses of jobs are in no log, no error, no repr and no process list, whatever goes wrong."""

import asyncio
import logging
import traceback
from collections.abc import Iterator

import psutil
import pytest

from gpubloom.providers.cloud import CloudProvider, Fault, Launch
from gpubloom.providers.registry import provider_spec
from tests.providers.launches import ADDRESS, launch
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.paperspace_service import PaperspaceService
from tests.providers.services.runpod_service import RunPodService
from tests.providers.services.web import Trouble, WebService
from tests.waiting import wait_until

SERVICES = {"lambda": LambdaService, "runpod": RunPodService, "paperspace": PaperspaceService}
_GPUS = {LambdaService: "A10", RunPodService: "RTX 4090", PaperspaceService: "RTX A4000"}
TROUBLES: tuple[Trouble, ...] = (
    "no_capacity",
    "quota",
    "bad_credentials",
    "rate_limited",
    "unavailable",
    "refused",
    "cut",
)
# A part that cannot be there by chance, and is not changed by quoting.
SECRETS = (
    "Hidden-Lambda-Key",
    "Hidden-RunPod-Key",
    "Hidden-Pod-Key",
    "Hidden-Paperspace-Key",
    "Hidden-Signature",
)


@pytest.fixture(params=sorted(SERVICES))
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebService]:
    with SERVICES[request.param]() as service:
        monkeypatch.setenv(service.address_variable, service.url)
        yield service


def opened(service: WebService) -> CloudProvider:
    name = next(name for name, kind in SERVICES.items() if isinstance(service, kind))
    rented = provider_spec(name).open(service.credentials)
    # A launch without an answer is looked for at once.
    rented._pause_seconds = 0.01  # type: ignore[attr-defined]
    return rented


def wanted(service: WebService, key: str) -> Launch:
    return launch(key, gpu=_GPUS[type(service)], report_address=ADDRESS)


def hidden(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


@pytest.mark.long
def test_no_secret_is_in_errors_logs_or_what_objects_say_of_themselves(
    service: WebService, caplog: pytest.LogCaptureFixture
) -> None:
    assert not hidden(ADDRESS)
    assert not hidden(service.api_key)
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    faults: list[Fault] = []

    async def story() -> None:
        rented = opened(service)
        for number, trouble in enumerate(TROUBLES):
            asked = wanted(service, f"bloom-{number}-a1")
            said.append(repr(asked))
            service.fail_next(trouble)
            service.fail_next(trouble, calls=service.launch_call)
            try:
                said.append(repr(await rented.submit(asked)))
            except Fault as fault:
                faults.append(fault)
            service.heal()
        started = await rented.submit(wanted(service, "bloom-99-a1"))
        said.append(repr((started, rented, await rented.status(started.id), await rented.list())))
        await rented.cancel(started.id)
        await rented.close()

    asyncio.run(story())
    assert len(faults) >= 5
    for fault in faults:
        said.extend(traceback.format_exception(fault))
        # What hangs on to a fault must not be a request with its headers.
        assert fault.__cause__ is None
        assert fault.__context__ is None or isinstance(fault.__context__, Fault)
    assert caplog.records, "the HTTP client logs its calls; if not, this test sees nothing"
    for text in (*said, caplog.text, *(str(vars(record)) for record in caplog.records)):
        assert hidden(text), text


def test_no_secret_is_in_the_process_list_of_this_machine_or_the_rented_one(service: WebService) -> None:
    async def start() -> str:
        rented = opened(service)
        started = await rented.submit(wanted(service, "bloom-1-a1"))
        await rented.close()
        return started.id

    machine = service.instances[asyncio.run(start())].machine
    seen: list[str] = []

    def told() -> bool:
        # Looked at all the while: a program that is gone in a moment is seen by whoever looks then.
        for process in psutil.process_iter():
            try:
                seen.append(" ".join(process.cmdline()))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return (machine.folder / "told").exists()

    wait_until(told)
    told()
    assert any("job.sh" in line for line in seen)
    assert all(hidden(line) for line in seen)
    # What the machine writes down for others to read.
    assert all(hidden(path.read_text()) for path in machine.folder.glob("bloom/*.log"))


def test_a_provider_that_quotes_the_request_repeats_no_secret(service: WebService) -> None:
    """Over SSH, what stands behind the # of the start address is in the script without the rest of it."""
    asked = launch(
        "bloom-1-a1",
        gpu=_GPUS[type(service)],
        start_address="volume:jobs/1/start.py#SGlkZGVuLVNlY3JldHM",
        secrets={"HF_TOKEN": "hf_HiddenToken"},
    )
    quoted = "Invalid script: HF_TOKEN=hf_HiddenToken BLOOM_START=/store/start.py#SGlkZGVuLVNlY3JldHM"

    async def story() -> Fault:
        rented = opened(service)
        api = getattr(rented, "_api", rented)
        api._http._explain = lambda status, found: ("refused", quoted)
        service.fail_next(
            "refused", calls="/startup-scripts" if hasattr(rented, "_api") else service.launch_call
        )
        with pytest.raises(Fault) as refused:
            await (rented._new_script(asked) if hasattr(rented, "_api") else rented.submit(asked))
        await rented.close()
        return refused.value

    said = str(asyncio.run(story()))
    assert "Invalid script" in said
    assert "hf_HiddenToken" not in said
    assert "SGlkZGVu" not in said
