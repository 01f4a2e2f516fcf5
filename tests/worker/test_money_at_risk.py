"""The most that each failure can cost, by a simulated clock. docs/offers.md has the same table in words.

The machines cost 36 dollars an hour, one cent a second; a job is expected to cost 36 dollars.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes

import pytest

from gpubloom.offers import load_prices
from gpubloom.providers.cloud import Fault, Instance
from gpubloom.server.clock import now
from gpubloom.server.rentals import reconciling
from gpubloom.server.rentals.credentials import seal
from gpubloom.server.rentals.price_book import current_rate
from gpubloom.server.rentals.tables import Budget, ProviderCredential, Rental
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.server.installation import Installation
from tests.worker.machine import Machine
from tests.worker.simulated import HOURLY, INTERVALS, OPEN, SimulatedProvider, Simulation

LAST_RESORT = INTERVALS.last_resort * HOURLY / 3600
# One look at a machine, and asking its provider to terminate it.
A_MOMENT = (INTERVALS.look + INTERVALS.terminate) * HOURLY / 3600
MONTH = 30 * 24 * 3600.0


@pytest.fixture
def simulation(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    machine = Machine(installation)
    simulated = Simulation(machine, monkeypatch)
    sealed = seal(machine.settings, machine.user.id, "simulated", {"key": "k"})
    installation.add(
        ProviderCredential(user_id=machine.user.id, provider="simulated", sealed=sealed, created_at=now())
    )
    yield simulated
    OPEN.pop()


def _rentals(simulation: Simulation) -> list[Rental]:
    return simulation.machine.installation.all(Rental)


def _mails(simulation: Simulation) -> list[str]:
    folder = simulation.machine.settings.home / "outbox"
    found = [message_from_bytes(path.read_bytes()) for path in sorted(folder.glob("*.eml"))]
    return [mail.get_payload(decode=True).decode() for mail in found]  # type: ignore[union-attr]


def test_a_job_without_limits_stops_at_twice_its_estimate(simulation: Simulation) -> None:
    job_id = simulation.add_job()
    asyncio.run(simulation.follow(job_id))
    job = simulation.machine.job(job_id)
    assert (job.budget, job.max_hours, job.error_code) == (72.0, 2.0, "budget")
    assert simulation.bill(at=MONTH) <= 72.0 + A_MOMENT


def test_an_agent_that_never_reports_costs_ten_minutes_once(simulation: Simulation) -> None:
    simulation.speaks = False
    job_id = simulation.add_job()
    failure = asyncio.run(simulation.follow(job_id))
    assert failure is not None
    assert (failure.kind, len(simulation.machines)) == ("agent_silent", 1)  # type: ignore[attr-defined]
    assert simulation.bill(at=MONTH) <= 10 * 60 * HOURLY / 3600 + A_MOMENT


def test_a_provider_that_never_starts_the_machine_is_left_after_half_an_hour(simulation: Simulation) -> None:
    simulation.speaks, simulation.state = False, "starting"
    failure = asyncio.run(simulation.follow(simulation.add_job()))
    assert failure is not None
    assert "30 minutes" in str(failure)
    assert simulation.bill(at=MONTH) <= 30 * 60 * HOURLY / 3600 + A_MOMENT


def test_two_jobs_share_one_budget_also_when_the_worker_dies(simulation: Simulation) -> None:
    machine = simulation.machine
    machine.installation.add(Budget(user_id=machine.user.id, amount=90.0, period="total", warned=[]))
    first, second = simulation.add_job(), simulation.add_job()
    asyncio.run(simulation.follow(first, until_rented=True))
    asyncio.run(simulation.follow(second, until_rented=True))
    # The first has its own limit of 72 dollars, the second what is left of the shared budget.
    assert [round(limit * HOURLY / 3600) for limit in simulation.time_limits] == [72, 18]
    assert sum(rental.reserved or 0.0 for rental in _rentals(simulation)) <= 90.0
    assert simulation.bill(at=MONTH) <= 90.0 + 2 * LAST_RESORT


def test_a_job_for_which_nothing_is_left_says_that_others_have_reserved_it(simulation: Simulation) -> None:
    machine = simulation.machine
    machine.installation.add(Budget(user_id=machine.user.id, amount=72.0, period="total", warned=[]))
    first, second = simulation.add_job(), simulation.add_job()
    asyncio.run(simulation.follow(first, until_rented=True))
    asyncio.run(simulation.follow(second))
    job = machine.job(second)
    assert (job.status, job.error_code, len(simulation.machines)) == ("pausing", "budget", 1)
    assert "reserved by other running jobs" in (job.error_message or "")


def test_a_server_that_never_returns_costs_the_budget_and_half_an_hour(simulation: Simulation) -> None:
    asyncio.run(simulation.follow(simulation.add_job(), until_rented=True))
    assert simulation.bill(at=MONTH) <= 72.0 + LAST_RESORT


@pytest.mark.long
def test_the_owner_is_written_to_when_a_machine_cannot_be_terminated(simulation: Simulation) -> None:
    simulation.switches_off = False
    simulation.faults["cancel"] = Fault("unavailable", "The service is being repaired.")
    asyncio.run(simulation.follow(simulation.add_job()))
    simulation.machine.installation.change(
        simulation.machine.job(_rentals(simulation)[0].job_id),  # type: ignore[arg-type]
        status="cancelled",
    )
    for _ in range(5):
        asyncio.run(simulation.reconcile())
        simulation.advance(300)
    [mail] = _mails(simulation)
    assert "The service is being repaired." in mail
    assert "s-0: 1x T4, $36.00 per hour https://simulated.example.com/s-0" in mail
    simulation.advance(24 * 3600)
    asyncio.run(simulation.reconcile())
    assert len(_mails(simulation)) == 2
    # The meter goes on, so that budgets know.
    [rental] = _rentals(simulation)
    assert rental.cost == pytest.approx(simulation.seconds / 100, rel=0.01)
    simulation.faults.clear()
    asyncio.run(simulation.reconcile())
    assert [each.state for each in _rentals(simulation)] == ["ended"]


def test_a_broken_machine_that_cannot_be_terminated_is_metered_and_told(simulation: Simulation) -> None:
    simulation.switches_off = False
    asyncio.run(simulation.follow(simulation.add_job(), until_rented=True))
    _abandon(simulation)
    # Its provider calls it unhealthy, and bills it all the same.
    simulation.state = "lost"
    [rental] = _rentals(simulation)
    simulation.machine.installation.change(
        rental, instance_id="s-0", state="lost", billed_from=simulation.began, billed_to=simulation.began
    )
    simulation.faults["cancel"] = Fault("unavailable", "The service is being repaired.")
    for _ in range(5):
        asyncio.run(simulation.reconcile())
        simulation.advance(300)
    [mail] = _mails(simulation)
    assert "The service is being repaired." in mail
    assert _rentals(simulation)[0].cost == pytest.approx(12.0)
    simulation.faults.clear()
    asyncio.run(simulation.reconcile())
    [rental] = _rentals(simulation)
    assert (rental.state, rental.cost) == ("ended", pytest.approx(15.0))


def _abandon(simulation: Simulation) -> None:
    """Their jobs are over, and no worker was there to terminate the machines."""
    for rental in _rentals(simulation):
        assert rental.job_id is not None
        simulation.machine.installation.change(simulation.machine.job(rental.job_id), status="cancelled")


def test_a_machine_that_cannot_be_terminated_does_not_keep_the_next_one_billed(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        asyncio.run(simulation.follow(simulation.add_job(), until_rented=True))
    _abandon(simulation)
    cancel = SimulatedProvider.cancel

    async def stuck(self: SimulatedProvider, instance_id: str) -> None:
        if instance_id == "s-0":
            raise Fault("refused", "The machine is being migrated.")
        await cancel(self, instance_id)

    monkeypatch.setattr(SimulatedProvider, "cancel", stuck)
    simulation.advance(300)
    asyncio.run(simulation.reconcile())
    assert simulation.machines["s-1"].ends_at == 300
    assert {rental.instance_id: rental.state for rental in _rentals(simulation)} == {
        "s-0": "running",
        "s-1": "ended",
    }


def test_a_second_machine_of_a_running_job_is_terminated_and_the_first_goes_on(
    simulation: Simulation,
) -> None:
    asyncio.run(simulation.follow(simulation.add_job(), until_rented=True))
    first = simulation.machines["s-0"]
    [rental] = _rentals(simulation)
    simulation.machine.installation.change(rental, instance_id="s-0", state="running")
    # Its launch timed out, and it appeared in the provider's list only later.
    simulation.machines["s-1"] = replace(first)
    asyncio.run(simulation.reconcile())
    assert simulation.machines["s-1"].ends_at == 0
    assert first.ends_at != 0
    [rental] = _rentals(simulation)
    assert (rental.instance_id, rental.state) == ("s-0", "running")
    assert "rental.orphan_ended" in simulation.machine.installation.actions()


def test_nonsense_from_one_account_keeps_no_machine_of_another_billed(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation, machine = simulation.machine.installation, simulation.machine
    stranger = installation.add_user("Bob")
    sealed = seal(machine.settings, stranger.id, "simulated", {"key": "k"})
    installation.add(
        ProviderCredential(user_id=stranger.id, provider="simulated", sealed=sealed, created_at=now())
    )
    asyncio.run(simulation.follow(simulation.add_job(), until_rented=True))
    _abandon(simulation)

    class Nonsense(SimulatedProvider):
        """A member's own cluster may answer anything."""

        async def list(self) -> list[Instance]:
            raise OverflowError("year 40003 is out of range")

    known = reconciling.open_provider
    monkeypatch.setattr(
        reconciling,
        "open_provider",
        lambda settings, user_id, *rest: (
            Nonsense(simulation) if user_id == stranger.id else known(settings, user_id, *rest)
        ),
    )
    asyncio.run(simulation.reconcile())
    assert [rental.state for rental in _rentals(simulation)] == ["ended"]


@pytest.mark.long
def test_a_revoked_key_is_told_within_five_minutes_while_the_job_still_runs(simulation: Simulation) -> None:
    job_id = simulation.add_job()
    asyncio.run(simulation.follow(job_id, until_rented=True))
    revoked = Fault("bad_credentials", "Simulated does not accept the API key.")
    simulation.faults = dict.fromkeys(("list", "status", "cancel"), revoked)
    asyncio.run(simulation.reconcile())
    [mail] = _mails(simulation)
    assert "enter the new key under Providers" in " ".join(mail.split())
    assert "rental.not_terminated" in simulation.machine.installation.actions()


def test_the_real_bill_is_read_an_hour_after_a_machine_has_ended(simulation: Simulation) -> None:
    asyncio.run(simulation.follow(simulation.add_job()))
    simulation.bills["s-0"] = 71.5
    asyncio.run(simulation.reconcile())
    assert [rental.bill for rental in _rentals(simulation)] == [None]
    simulation.advance(3601)
    asyncio.run(simulation.reconcile())
    assert [rental.bill for rental in _rentals(simulation)] == [71.5]


def test_a_price_that_rose_while_the_job_waited_asks_again(simulation: Simulation) -> None:
    """At Lambda, whose prices are live; the job was queued at half the price."""
    machine = simulation.machine
    job_id = simulation.add_job()
    job = machine.job(job_id)
    offer = {**(job.offer or {}), "provider": "lambda", "gpu": "A10"}
    real = current_rate({**offer, "hourly": 0.0}, load_prices(None), now())
    assert real is not None
    machine.installation.change(job, offer={**offer, "hourly": real / 2})
    asyncio.run(simulation.follow(job_id))
    job = machine.job(job_id)
    assert (job.status, job.error_code, simulation.machines) == ("pausing", "price_rose", {})
    assert f"${real / 2:.2f} to ${real:.2f}" in (job.error_message or "")
    machine.installation.change(job, status="paused", lease_token=None, lease_expires=None)
    with machine.installation.serve() as server:
        resumed = server.signed_in(machine.user).post(f"/api/jobs/{job_id}/resume")
    assert resumed.status_code == 200, resumed.text
    assert (resumed.json()["status"], resumed.json()["offer"]["hourly"]) == ("queued", real)
