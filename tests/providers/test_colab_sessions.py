"""Sessions of Colab through its command: one per key, its faults, and nothing secret in its history."""

import asyncio
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.agent import JobSpec
from gpubloom.providers.cloud import Fault, FaultKind, Launch
from gpubloom.providers.colab.program import ColabProgram, fault_from
from gpubloom.providers.colab.provider import ColabSessions, capabilities
from gpubloom.providers.registry import provider_spec
from gpubloom.storage import Bundle, Receiver, Store, send_bundle
from gpubloom.traincard.sync.accepted import TRAINING_PATHS
from tests.errors import raises
from tests.providers.launches import ADDRESS
from tests.providers.launches import launch as any_launch
from tests.providers.services import colab_program
from tests.storage.instances import QUICK
from tests.waiting import wait_until

KEY = "bloom-5f3c-a1"


def launch(**changes: object) -> Launch:
    return any_launch(**{"gpu": "T4", **changes})


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "colab"
    folder.mkdir()
    monkeypatch.setenv("COLAB_STATE", str(folder))
    yield folder
    for session in folder.glob("sessions/*"):
        colab_program.take_away(session)


@pytest.fixture
def rented(state: Path) -> ColabSessions:
    return ColabSessions(ColabProgram(shlex.join([sys.executable, colab_program.__file__]), 30))


def fault_of(rented: ColabSessions, wanted: Launch | None = None) -> Fault:
    with pytest.raises(Fault) as raised:
        asyncio.run(rented.submit(wanted or launch()))
    return raised.value


def commands(state: Path) -> list[str]:
    return [
        line.split('"')[1]
        for line in (state / "history.jsonl").read_text().splitlines()
        if '"code"' not in line
    ]


def test_a_job_runs_in_a_session_and_its_results_arrive(
    rented: ColabSessions, state: Path, store: Store, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.py").write_text(
        "import os; os.mkdir('model'); open('model/w', 'w').write('weights'); print('step 1/1 | loss: 0.5')"
    )
    spec = JobSpec("job-1", run, 1, (sys.executable, "train.py"))
    sent = send_bundle(store, Bundle(spec, run, timing=QUICK))
    receiver = Receiver(store, "job-1", 1, run, accepted=TRAINING_PATHS)

    async def story() -> None:
        assert await rented.check() == "signed in"
        started = await rented.submit(launch(command=sent.command, start_address=sent.address))
        assert (started.id, started.key, started.state) == (KEY, KEY, "running")
        wait_until(lambda: receiver.once().state == "ended")
        assert [found.key for found in await rented.list()] == [KEY]
        await rented.cancel(KEY)
        assert (await rented.status(KEY)).state == "ended"
        assert await rented.list() == []
        # What has ended already is no fault.
        await rented.cancel(KEY)

    asyncio.run(story())
    assert (run / "model/w").read_text() == "weights"
    history = (state / "history.jsonl").read_text()
    assert sent.address not in history
    assert "X-Amz-Signature" not in history


@pytest.mark.long
def test_the_address_goes_into_no_argument_no_code_and_no_file_that_stays(
    rented: ColabSessions, state: Path
) -> None:
    asyncio.run(rented.submit(launch()))
    session = state / "sessions" / KEY
    wait_until(lambda: (session / "told").exists())
    assert (session / "told").read_text() == ADDRESS
    assert "Hidden" not in (state / "history.jsonl").read_text()
    assert not (session / ".bloom-start").exists()


@pytest.mark.long
def test_asking_again_with_the_same_key_starts_nothing(rented: ColabSessions, state: Path) -> None:
    async def twice() -> None:
        await asyncio.gather(*(rented.submit(launch()) for _ in range(2)))

    asyncio.run(twice())
    session = state / "sessions" / KEY
    wait_until(lambda: (session / "bloom.log").exists() and (session / "bloom.log").read_text())
    assert (session / "bloom.log").read_text() == "started\n"
    assert commands(state).count("new") == 1


@pytest.mark.long
def test_a_session_that_colab_took_away_is_lost(rented: ColabSessions, state: Path) -> None:
    asyncio.run(rented.submit(launch()))
    colab_program.take_away(state / "sessions" / KEY)
    now = asyncio.run(rented.status(KEY))
    assert (now.state, now.detail) == ("lost", "Colab ended the session.")
    # The next attempt gets a session of its own.
    asyncio.run(rented.submit(launch(key="bloom-5f3c-a2")))
    assert [found.key for found in asyncio.run(rented.list())] == ["bloom-5f3c-a2"]


def test_a_session_whose_start_failed_is_ended_at_once(rented: ColabSessions, state: Path) -> None:
    (state / "fail-exec").write_text(
        "1 Traceback (most recent call last):\nTimeoutError: the kernel is silent"
    )
    fault = fault_of(rented)
    assert fault.kind == "refused"
    assert "the kernel is silent" in str(fault)
    assert asyncio.run(rented.list()) == []


@pytest.mark.long
def test_a_new_session_that_was_not_answered_is_found_and_used(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpubloom.providers.colab import provider

    monkeypatch.setattr(provider, "_NEW_SECONDS", 2.0)
    (state / "hang-new").touch()
    rented = ColabSessions(ColabProgram(shlex.join([sys.executable, colab_program.__file__]), 30))
    asyncio.run(rented.submit(launch()))
    assert commands(state).count("new") == 1
    assert [found.key for found in asyncio.run(rented.list())] == [KEY]


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        (
            "[colab] Backend rejected accelerator 'A100'. You may not have quota or entitlement for it.",
            "quota",
        ),
        ("google.auth.exceptions.RefreshError: ('invalid_grant: Bad Request')", "bad_credentials"),
        (
            "[colab] Keep-alive pre-flight failed: your OAuth credentials are missing a scope",
            "bad_credentials",
        ),
        ("ColabRequestError: 429 Too Many Requests", "rate_limited"),
        ("ColabRequestError: 503 Service Unavailable https://colab.test/x?token=Hidden", "unavailable"),
        ("requests.exceptions.ConnectionError: cannot connect", "unavailable"),
        ("[colab] No T4 is available right now.", "no_capacity"),
        ("ValueError: something else", "refused"),
    ],
)
def test_what_the_command_says_gets_one_of_our_names(says: str, kind: FaultKind) -> None:
    fault = fault_from(says, 1)
    assert fault.kind == kind
    assert "Hidden" not in str(fault)


def test_a_session_that_is_not_given_leaves_nothing(rented: ColabSessions, state: Path) -> None:
    (state / "fail-new").write_text("1 [colab] No T4 is available right now.")
    fault = fault_of(rented)
    assert (fault.kind, fault.passes) == ("no_capacity", True)
    assert "No T4 is available right now. Wait, or choose another offer." in str(fault)
    assert asyncio.run(rented.list()) == []


def test_what_colab_does_not_have_is_refused_before_anything_is_asked(
    rented: ColabSessions, state: Path
) -> None:
    for wanted in (launch(gpu="B200"), launch(gpus=2)):
        assert fault_of(rented, wanted).kind == "refused"
    assert not (state / "history.jsonl").exists()


def test_without_the_command_colab_is_for_people_with_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOOM_COLAB_CLI", raising=False)
    kind = provider_spec("colab")
    reason = kind.why_not()
    assert reason is not None
    assert "--notebook" in reason
    assert capabilities(set_up=False).runs_unattended.reason == reason
    assert not kind.capabilities.runs_unattended.can
    with raises(Fault, code="refused", match="BLOOM_COLAB_CLI"):
        kind.open({})
    monkeypatch.setenv("BLOOM_COLAB_CLI", f"{sys.executable} -c pass")
    assert kind.why_not() is None
    assert kind.open({}).capabilities.runs_unattended.can
    assert kind.fields == ()
    assert provider_spec("colab").capabilities.runs_unattended.can


def test_a_command_that_is_not_there_is_said() -> None:
    with raises(Fault, code="refused"):
        asyncio.run(ColabProgram("/nowhere/colab").call("status"))


def test_the_command_sees_nothing_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_SECRET_KEY", "Hidden")
    show = shlex.join([sys.executable, "-c", "import os; print(sorted(os.environ))"])
    assert "BLOOM_SECRET_KEY" not in asyncio.run(ColabProgram(show).call("status"))
