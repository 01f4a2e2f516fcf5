"""A nanoGPT-style folder that does not use TrainCard, on this machine and on fakes of real services.

The fakes check every exchange against the services' published contracts, and their instances really run the
agent: from a start-up script, in an environment of their own, with one address and no key.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.reconciling import reconcile
from tests.providers.services import colab_program
from tests.providers.services.replicate_service import ReplicateService
from tests.server.installation import Installation
from tests.traincard_mirror.conftest import SECRET as BUCKET_SECRET
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote import shopper as shopping
from tests.worker.remote.shopper import OFFERS, SERVICES, Shopper
from tests.worker.remote.toy_provider import ToyService

pytest.importorskip("obstore")
pytest.importorskip("modal")
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def shopper(
    installation: Installation, bucket: S3Server, service: ToyService, tmp_path: Path
) -> Iterator[Shopper]:
    with Shopper(installation, bucket, service).shopping(tmp_path) as shopper:
        yield shopper


@pytest.fixture
def services(shopper: Shopper, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """All of them, connected."""
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 400)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(kind()) for name, kind in SERVICES.items()}
        for name, service in opened.items():
            for variable, value in service.environment.items():
                monkeypatch.setenv(variable, value)
            shopper.connect_by_http(name, service.credentials)
        yield opened


def _instances(service: Any) -> dict[str, Any]:
    found: dict[str, Any] = getattr(service, "instances", None) or service.sandboxes
    return found


@pytest.mark.parametrize("where", ["local", "lambda", "runpod", "paperspace", "modal"])
def test_a_folder_as_people_bring_it_trains_there_and_everything_arrives(
    shopper: Shopper, services: dict[str, Any], where: str
) -> None:
    async def scenario() -> TrainingJob:
        offer = {"provider": "local"} if where == "local" else {"offer": OFFERS[where]}
        async with shopper.worker():
            job_id = await shopper.submit("--max_iters=300", "--eval_interval=20", **offer)
            await shopper.trained(job_id, 10)
            await shopper.when(job_id, lambda job: job.summary.get("eta_seconds") is not None)
            status = await shopper.status(job_id)
            job = await shopper.until(job_id, "completed", "failed")
            assert job.status == "completed", job.error_message
            assert 0 < status["progress"]["step"] <= 300
            assert status["progress"]["loss"] > 0
            assert status["progress"]["total_steps"] == 300
            assert status["progress"]["eta_seconds"] >= 0
            assert "out/ckpt.pt" in await shopper.artifacts(job_id)
            assert (await shopper.ask("GET", f"/api/jobs/{job_id}/checkpoints"))["items"]
        return job

    job = asyncio.run(scenario())
    losses = shopper.losses(job.id)
    assert sorted(losses) == list(range(301))
    if where == "local":
        return
    service = services[where]
    assert not service.running
    [instance_id] = _instances(service)
    [rental] = shopper.rentals(job.id)
    assert rental.billed_from is not None
    assert rental.billed_to is not None
    # By the service's own clock: what is told is what would be billed, within one percent.
    seconds = (rental.billed_to - rental.billed_from).total_seconds()
    # A pod deletes itself before anybody looks.
    looks = 3.0 if where == "runpod" else 0.5
    assert seconds == pytest.approx(service.billed_seconds(instance_id), rel=0.01, abs=looks)
    assert rental.cost == pytest.approx(rental.billed_seconds * rental.hourly / 3600, rel=0.01)
    assert rental.billed_seconds == pytest.approx(seconds, abs=1.0)
    assert job.summary["cost"]["so_far"] == pytest.approx(rental.cost, rel=0.01)
    spending = shopper.browser.get("/api/spending").json()
    assert spending["by_provider"] == [{"provider": where, "cost": pytest.approx(rental.cost)}]


@pytest.mark.parametrize("where", ["lambda", "runpod", "paperspace", "modal"])
def test_cancel_ends_script_and_machine_and_one_reconcile_leaves_nothing(
    shopper: Shopper, services: dict[str, Any], where: str
) -> None:
    service = services[where]

    async def scenario() -> TrainingJob:
        database = Database(shopper.settings.database)
        async with shopper.worker():
            job_id = await shopper.submit("--max_iters=100000", offer=OFFERS[where])
            await shopper.trained(job_id, 20)
            await shopper.ask("POST", f"/api/jobs/{job_id}/cancel")
            job = await shopper.until(job_id, "cancelled", "failed")
        ended = await reconcile(database, shopper.settings)
        assert ended == []
        await database.close()
        return job

    job = asyncio.run(scenario())
    assert job.status == "cancelled", job.error_message
    assert not service.running
    assert [rental.state for rental in shopper.rentals()] == ["ended"]


def test_a_deleted_job_leaves_nothing_in_the_bucket_but_what_it_cost(
    shopper: Shopper, services: dict[str, Any], bucket: S3Server
) -> None:
    def stored(job_id: UUID) -> list[Path]:
        found = [path for path in bucket.folder.rglob(f"jobs/{job_id}/**/*") if path.is_file()]
        # The fake's own: an upload that broke off. A bucket shows none.
        return [path for path in found if not path.name.startswith(".rclone_temp")]

    async def scenario() -> UUID:
        async with shopper.worker():
            job_id = await shopper.submit("--max_iters=100000", "--eval_interval=5", offer=OFFERS["modal"])
            await shopper.trained(job_id, 20)
            await shopper.ask("POST", f"/api/jobs/{job_id}/pause")
            await shopper.until(job_id, "paused", "failed")
            assert stored(job_id), "it may be resumed"
            await shopper.ask("DELETE", f"/api/jobs/{job_id}", status=204)
            assert not stored(job_id)
        return job_id

    assert not stored(asyncio.run(scenario())), "nothing came after"
    [rental] = shopper.rentals()
    assert rental.job_id is None
    assert rental.cost > 0
    assert shopper.browser.get("/api/spending").json()["total"] == pytest.approx(rental.cost)


SHORT = "for step in range(5):\n    print(f'iter {step}: loss {1 / (step + 1):.4f}')\n"


@pytest.mark.parametrize("trouble", ["no_capacity", "rate_limited", "unavailable", "cut"])
@pytest.mark.parametrize("where", ["lambda", "modal"])
def test_troubles_that_pass_cost_no_second_machine(
    shopper: Shopper, services: dict[str, Any], where: str, trouble: str
) -> None:
    services[where].fail_next(trouble)

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            job_id = await shopper.submit(files=None, code=SHORT, offer=OFFERS[where])
            return await shopper.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert job.status == "completed", job.error_message
    assert len(_instances(services[where])) == 1
    assert not services[where].running


@pytest.mark.parametrize(
    ("trouble", "code"), [("quota", "quota"), ("refused", "refused"), ("revoked", "bad_credentials")]
)
@pytest.mark.parametrize("where", ["lambda", "runpod", "modal", "paperspace"])
def test_troubles_that_do_not_pass_fail_the_job_with_a_sentence(
    shopper: Shopper, services: dict[str, Any], where: str, trouble: str, code: str
) -> None:
    if trouble == "revoked":
        services[where].revoke()
    else:
        services[where].fail_next(trouble, times=9)

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            # With further offers it would go on at another service.
            job_id = await shopper.submit(files=None, code=SHORT, offer=OFFERS[where], failover=[])
            return await shopper.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    if (where, trouble) == ("runpod", "quota"):
        # RunPod's only limit is the balance.
        code = "inactive_account"
    assert (job.status, job.error_code) == ("failed", code), job.error_message
    assert (job.error_message or "").endswith(".")
    assert not services[where].running


def test_a_job_starts_at_lambda_stops_at_its_budget_and_goes_on_at_modal(
    shopper: Shopper, services: dict[str, Any]
) -> None:
    """One timeline, over two services, from the checkpoint that the script itself wrote."""
    for offered in services["lambda"].types.values():
        # One dollar a second.
        offered["instance_type"]["price_cents_per_hour"] = 360_000
    # More than a quick machine does for the money.
    last = 1200

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            job_id = await shopper.submit(
                f"--max_iters={last}",
                "--eval_interval=10",
                "--eval_iters=1",
                offer=OFFERS["lambda"],
                budget=900.0,
            )
            # How much goes by before the first step is up to the machine.
            spent = (await shopper.trained(job_id, 20)).summary["cost"]["so_far"]
            wanted = {"scope": "job", "job_id": str(job_id), "limit": spent + 6.0}
            await shopper.ask("PUT", "/api/budgets", wanted)
            stopped = await shopper.until(job_id, "paused", "failed", "completed")
            assert (stopped.status, stopped.error_code) == ("paused", "budget"), stopped.error_message
            assert not services["lambda"].running
            assert max(await asyncio.to_thread(shopper.losses, job_id)) < last
            more = {"offer": OFFERS["modal"], "budget": spent + 60.0}
            await shopper.ask("POST", f"/api/jobs/{job_id}/move", more)
            return await shopper.until(job_id, "completed", "failed", "paused")

    job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 2), job.error_message
    losses = shopper.losses(job.id)
    assert sorted(losses) == list(range(last + 1)), "one timeline without a gap"
    attempts = [found[-1][0] for _, found in sorted(losses.items())]
    assert attempts == sorted(attempts), "the second attempt goes on where the first one was"
    assert {1, 2} == set(attempts)
    assert "Resuming training from out" in shopper.output(job.id)
    first, second = shopper.rentals(job.id)
    assert (first.provider, second.provider) == ("lambda", "modal")
    assert job.summary["cost"]["so_far"] == pytest.approx(first.cost + second.cost, rel=0.01)
    assert not services["modal"].running


def test_secrets_are_nowhere_but_where_they_are_used(
    shopper: Shopper, services: dict[str, Any], capfd: pytest.CaptureFixture[str], bucket: S3Server
) -> None:
    secrets = [value for service in services.values() for value in service.credentials.values()]
    seen: list[str] = []
    listed: list[str] = []

    async def scenario() -> TrainingJob:
        async with shopper.worker():
            job_id = await shopper.submit("--max_iters=200", offer=OFFERS["lambda"])
            await shopper.trained(job_id, 20)
            listed.extend(_processes())
            # Everything of the job that lies in the bucket, bundle and mailbox included.
            seen.extend(
                path.read_text(errors="replace") for path in bucket.folder.rglob("*") if path.is_file()
            )
            return await shopper.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert job.status == "completed", job.error_message
    seen.append(shopper.installation.everything_stored())
    seen.extend(
        path.read_text(errors="replace") for path in shopper.run_dir(job.id).rglob("*") if path.is_file()
    )
    seen.extend(shopper.browser.get(path).text for path in ("/api/providers", "/api/rentals", "/api/budgets"))
    captured = capfd.readouterr()
    seen += [captured.out, captured.err]
    for rental in services["lambda"].instances.values():
        seen += [path.read_text(errors="replace") for path in rental.machine.folder.rglob("*.log")]
    text = "\n".join([*seen, *listed])
    assert "max_iters" in text, "something was looked at"
    for secret in secrets:
        assert secret not in text
    # Addresses of the bucket are secrets of a kind, too: none in logs, rows or process lists.
    stored = "\n".join([captured.out, captured.err, shopper.installation.everything_stored()])
    assert BUCKET_SECRET not in stored
    assert "X-Amz-Signature" not in "\n".join([stored, *listed])


def _processes() -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


REPLICATE_OFFER = {"provider": "replicate", "gpu": "L40S", "kind": "per_second"}


@pytest.fixture
def replicate(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicateService]:
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 200)
    monkeypatch.setattr(shopping, "SERVICES", {"replicate": ReplicateService})
    with ReplicateService() as service:
        monkeypatch.setenv("BLOOM_REPLICATE_URL", service.url)
        yield service


def test_a_script_trains_at_replicate_and_its_bill_is_what_replicate_counts(
    installation: Installation,
    bucket: S3Server,
    service: ToyService,
    replicate: ReplicateService,
    tmp_path: Path,
) -> None:
    with Shopper(installation, bucket, service).shopping(tmp_path) as shopper:
        shopper.connect_by_http("replicate", replicate.credentials)

        async def scenario() -> TrainingJob:
            async with shopper.worker():
                job_id = await shopper.submit("--max_iters=300", "--eval_interval=20", offer=REPLICATE_OFFER)
                job = await shopper.until(job_id, "completed", "failed")
                assert job.status == "completed", job.error_message
                assert "out/ckpt.pt" in await shopper.artifacts(job_id)
            return job

        job = asyncio.run(scenario())
        assert sorted(shopper.losses(job.id)) == list(range(301))
        assert not replicate.running
        [identifier] = replicate.instances
        [rental] = shopper.rentals(job.id)
        assert rental.billed_from is not None
        assert rental.billed_to is not None
        seconds = (rental.billed_to - rental.billed_from).total_seconds()
        assert seconds == pytest.approx(replicate.billed_seconds(identifier), rel=0.01, abs=0.5)
        assert rental.cost == pytest.approx(rental.billed_seconds * rental.hourly / 3600, rel=0.01)


COLAB_OFFER = {"provider": "colab", "gpu": "T4", "kind": "monthly_units"}


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder where the fake of Google's command keeps its sessions."""
    state = tmp_path / "colab"
    state.mkdir()
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 200)
    monkeypatch.setattr(shopping, "SERVICES", {"colab": None})
    monkeypatch.setenv("COLAB_STATE", str(state))
    monkeypatch.setenv("BLOOM_COLAB_CLI", shlex.join([sys.executable, colab_program.__file__]))
    yield state
    for session in state.glob("sessions/*"):
        colab_program.take_away(session)


def test_a_script_goes_on_in_another_session_when_colab_takes_one_away(
    installation: Installation, bucket: S3Server, service: ToyService, colab: Path, tmp_path: Path
) -> None:
    with Shopper(installation, bucket, service).shopping(tmp_path) as shopper:
        shopper.connect_by_http("colab", {})

        async def scenario() -> TrainingJob:
            async with shopper.worker():
                job_id = await shopper.submit("--max_iters=300", "--eval_interval=20", offer=COLAB_OFFER)
                await shopper.trained(job_id, 40)
                [session] = colab.glob("sessions/*")
                await asyncio.to_thread(colab_program.take_away, session)
                job = await shopper.until(job_id, "completed", "failed")
                assert job.status == "completed", job.error_message
                assert job.attempt == 2
                assert "out/ckpt.pt" in await shopper.artifacts(job_id)
            return job

        job = asyncio.run(scenario())
        assert sorted(shopper.losses(job.id))[-1] == 300
        assert [rental.state for rental in shopper.rentals(job.id)] == ["lost", "ended"]
    assert not list(colab.glob("sessions/*"))
    assert "X-Amz-Signature" not in (colab / "history.jsonl").read_text()
