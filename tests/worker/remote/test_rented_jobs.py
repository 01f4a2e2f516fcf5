"""Jobs on rented machines: they arrive, cost what they cost, end as asked, and leave nothing running."""

import asyncio
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from gpubloom.providers.cloud import Capability, Fault
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.reconciling import reconcile
from gpubloom.server.secrets.tables import Secret
from gpubloom.server.security.secrets import Vault
from tests.small_disk import fill, small_disk
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote import toy_provider
from tests.worker.remote.renter import POLL_INTERVALS, Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")


def _finished(renter: Renter, *jobs: object) -> list[TrainingJob]:
    """Let a worker follow jobs to their ends."""

    async def scenario() -> list[TrainingJob]:
        async with renter.worker():
            ends = ("completed", "failed", "paused", "cancelled")
            return [await renter.until(job, *ends) for job in jobs]  # type: ignore[arg-type]

    return asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True
)
def test_a_job_runs_on_an_instance_and_its_run_arrives_here(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 40, "seconds": 0.02})
    [job] = _finished(renter, job_id)
    assert job.status == "completed", job.error_message
    assert sorted(renter.losses(job_id)) == list(range(1, 41))
    assert renter.weights(job_id) == sum(range(1, 41))
    assert not renter.service.running
    # One dollar for each second that was begun: what is told is what the service would bill.
    [rental] = renter.rentals(job_id)
    assert rental.state == "ended"
    assert rental.cost == pytest.approx(math.ceil(renter.service.billed_seconds()), rel=0.01)
    cost = job.summary["cost"]
    assert (cost["so_far"], cost["billed_seconds"], cost["running"]) == (rental.cost, rental.cost, False)
    assert cost["estimated"] == {"low": 1.0, "likely": 2.0, "high": 4.0}


@pytest.mark.long
def test_what_passes_is_waited_for_and_an_ambiguous_request_rents_no_second_machine(renter: Renter) -> None:
    service = renter.service
    full = Fault("no_capacity", "All of them are rented.")
    passing = [
        Fault("rate_limited", "Too many requests.", retry_after_seconds=0.1),
        Fault("unavailable", "It is being repaired."),
    ]
    service.faults["submit"] = [full] * 1000
    service.cuts, service.begins_when_asked_again = {"submit"}, True
    job_id = renter.rent(toy={"steps": 10})

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.when(job_id, lambda job: str(full) in str(job.summary.get("waiting")))
            service.faults["submit"] = passing
            return await renter.until(job_id, "completed", "failed")

    job = asyncio.run(scenario())
    assert job.status == "completed", job.error_message
    assert "waiting" not in job.summary
    # Every fault was met, and an answer was lost. The machine began only when it was asked for again.
    assert (passing, service.cuts) == ([], set())
    assert len(service.rented) == 1


@pytest.mark.long
def test_answers_that_make_no_sense_end_no_run(renter: Renter) -> None:
    service = renter.service
    nonsense = [TypeError("no number"), KeyError("status"), OverflowError("date value out of range")]
    service.faults |= {name: list(nonsense) for name in ("submit", "status", "list", "cancel")}
    job_id = renter.rent(toy={"steps": 40, "step_seconds": 0.02})
    [job] = _finished(renter, job_id)
    assert (job.status, job.attempt) == ("completed", 1), job.error_message
    assert len(service.rented) == 1
    assert not service.running
    assert service.faults["submit"] == service.faults["status"] == []


@pytest.mark.parametrize("kind_of_fault", ["quota", "bad_credentials", "refused"])
def test_what_does_not_pass_fails_the_job_with_the_services_sentence(
    renter: Renter, kind_of_fault: str
) -> None:
    renter.service.faults["submit"] = [Fault(kind_of_fault, "You may have none.")]  # type: ignore[arg-type]
    [job] = _finished(renter, renter.rent())
    assert (job.status, job.error_code, job.error_message) == ("failed", kind_of_fault, "You may have none.")
    assert [rental.state for rental in renter.rentals()] == ["ended"]
    assert not renter.service.rented


def test_what_a_service_cannot_do_is_refused_before_it_is_asked(
    renter: Renter, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Capability(False, "The toy service has no spot machines.")
    monkeypatch.setattr(
        toy_provider,
        "PROVIDER",
        replace(toy_provider.PROVIDER, capabilities=replace(toy_provider.PROVIDER.capabilities, spot=alone)),
    )
    [job] = _finished(renter, renter.rent(offer={"kind": "spot"}))
    assert (job.status, job.error_code, job.error_message) == ("failed", "refused", alone.reason)
    assert "submit" not in renter.service.calls


@pytest.mark.long
def test_at_its_budget_a_job_is_warned_paused_after_a_checkpoint_and_its_machine_given_back(
    renter: Renter,
) -> None:
    # Asked to save at fourteen dollars, of which one is spent each second; the other ten are for saving.
    renter.poll_intervals = replace(POLL_INTERVALS, checkpoint=10.0)
    job_id = renter.rent(toy={"steps": 100_000, "seconds": 0.02, "save_every": 50}, budget=24.0)
    [job] = _finished(renter, job_id)
    assert (job.status, job.error_code) == ("paused", "budget")
    assert "$24.00" in (job.error_message or "")
    assert not renter.service.running
    # It saved when it was asked.
    saved = json.loads((renter.run_dir(job_id) / "checkpoints/latest.json").read_text())
    assert saved["step"] == max(renter.losses(job_id))
    [rental] = renter.rentals(job_id)
    assert 13.0 <= rental.cost <= 24.0
    warned = [mark["percent"] for mark in job.summary["marks"] if mark["kind"] == "budget"]
    assert warned == sorted(set(warned))
    assert warned[0] == 50
    assert renter.installation.actions().count("budget.warning") == len(warned)
    # The agent has the same limit: it would have stopped even with nobody here.
    spec = json.loads(next(renter.service.folder.glob("*/job/attempt-1/job.json")).read_text())
    assert 0 < spec["time_limit_seconds"] <= 24.0


@pytest.mark.long
def test_cancel_ends_the_run_and_the_machine(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 100_000, "seconds": 0.02})

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 3)
            await renter.change(job_id, status="cancelling", want="cancel")
            return await renter.until(job_id, "cancelled", "failed")

    job = asyncio.run(scenario())
    assert job.status == "cancelled"
    assert not renter.service.running
    assert [rental.state for rental in renter.rentals(job_id)] == ["ended"]


@pytest.mark.long
def test_reconciling_ends_what_no_job_owns_and_nothing_else(renter: Renter) -> None:
    job_id = renter.rent(toy={"steps": 100_000, "seconds": 0.02})

    async def scenario() -> list[str]:
        database = Database(renter.settings.database)
        async with renter.worker():
            await renter.at_step(job_id, 1)
            own = renter.service.only()
            kept = await reconcile(database, renter.settings)
            strange = own.launch.key.replace("bloom-", "bloom-0000000f-", 1)[:60]
            others = [own.launch.key[:-1] + "9", "bloom-00000000-" + own.launch.key.split("-", 2)[2], strange]
            for number, key in enumerate(others):
                renter.service.add_stray(f"stray-{number}", key)
            ended = await reconcile(database, renter.settings)
            await renter.change(job_id, status="cancelling", want="cancel")
            await renter.until(job_id, "cancelled")
        await database.close()
        assert kept == []
        return [each.instance_id for each in ended]

    # Attempt 9 of this job never was; the others carry another installation's name, or none.
    assert asyncio.run(scenario()) == ["stray-0"]
    assert sorted(name for name, each in renter.service.rented.items() if each.machine.running) == [
        "stray-1",
        "stray-2",
    ]
    assert "rental.orphan_ended" in renter.installation.actions()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home folder on a disk of its own."""
    with small_disk(tmp_path / "home", "64m") as folder:
        yield folder


@pytest.mark.long
def test_a_full_disk_of_the_worker_delays_what_a_rented_machine_sends_and_loses_nothing(
    home: Path, renter: Renter
) -> None:
    job_id = renter.rent(toy={"steps": 60, "seconds": 0.05})

    async def scenario() -> TrainingJob:
        async with renter.worker():
            await renter.at_step(job_id, 10)
            ballast = fill(home)
            async with asyncio.timeout(60):
                while not any("could not write received data" in line["event"] for line in lines):
                    await asyncio.sleep(0.05)
            ballast.unlink()
            return await renter.until(job_id, "completed", "failed")

    with capture_logs() as lines:
        job = asyncio.run(scenario())
    assert (job.status, job.attempt) == ("completed", 1), job.error_message
    assert not [line for line in lines if line["event"] == "following a job failed"]
    assert sorted(renter.losses(job_id)) == list(range(1, 61))
    assert [rental.state for rental in renter.rentals(job_id)] == ["ended"]


def test_secrets_reach_the_script_on_the_machine_and_stay_out_of_bucket_and_logs(
    renter: Renter, bucket: S3Server
) -> None:
    value = "a-secret-value-77"
    sealed = Vault.of(renter.settings.home).seal(value, f"secret:{renter.user.id}::WANDB_API_KEY")
    renter.installation.add(Secret(id=uuid4(), user_id=renter.user.id, name="WANDB_API_KEY", sealed=sealed))
    script = "import hashlib, os\nprint(hashlib.sha256(os.environ['WANDB_API_KEY'].encode()).hexdigest())\n"
    job_id = renter.rent_script({"train.py": script})
    renter.installation.change(renter.job(job_id), secrets=["WANDB_API_KEY"])
    [job] = _finished(renter, job_id)
    assert job.status == "completed", job.error_message
    output = (renter.run_dir(job_id) / "logs" / "output.log").read_text()
    assert hashlib.sha256(value.encode()).hexdigest() in output
    [rented] = renter.service.rented.values()
    assert value not in rented.launch.command
    folders = [renter.run_dir(job_id), renter.service.folder, bucket.folder]
    kept = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert not [path for path in kept if value.encode() in path.read_bytes()]
