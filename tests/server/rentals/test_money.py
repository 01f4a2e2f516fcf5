"""What was rented, what it cost, budgets, and where a job goes."""

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gpubloom.providers.cloud import Fault, Instance
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.rentals.budgets import limits_of, spent
from gpubloom.server.rentals.keys import MachineKey
from gpubloom.server.rentals.metering import by_database_clock, meter, note_instance
from gpubloom.server.rentals.tables import Budget, Rental
from gpubloom.server.rentals.tables import Installation as InstallationRow
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job
from tests.server.rentals.conftest import FACTS, ROW
from tests.server.rentals.machines import add_rental
from tests.worker.remote.toy_provider import KEY, ToyService

OFFER = {"provider": "toy", "gpu": "A100"}


def _connected(renting: Server, member: User) -> Browser:
    ada = renting.signed_in(member)
    assert ada.put("/api/providers/toy/credentials", json={"values": {"key": KEY}}).status_code == 200
    return ada


def test_spending_adds_up_ones_own_machines_by_day_month_and_service(
    renting: Server, installation: Installation, member: User
) -> None:
    job = add_job(installation, member)
    other = add_job(installation, installation.add_user("Eve"))
    add_rental(installation, job, cost=2.0)
    long_ago = now() - timedelta(days=70)
    add_rental(installation, job, cost=5.0, provider="lambda", billed_from=long_ago, billed_to=long_ago)
    add_rental(installation, job, cost=1.0, state="running", billed_to=None)
    add_rental(installation, other, cost=100.0)
    ada = renting.signed_in(member)
    spending = ada.get("/api/spending").json()
    assert spending["total"] == pytest.approx(8.0)
    assert spending["this_month"] == pytest.approx(3.0, abs=2.0)
    assert spending["hourly_now"] == 3.0
    assert spending["by_provider"] == [{"provider": "lambda", "cost": 5.0}, {"provider": "toy", "cost": 3.0}]
    assert len(ada.get("/api/rentals").json()["items"]) == 3
    [running] = ada.get("/api/rentals?running=true").json()["items"]
    assert (running["state"], running["job_id"]) == ("running", str(job.id))


def test_credentials_stay_while_machines_run_and_one_call_ends_what_no_job_owns(
    renting: Server, installation: Installation, member: User, service: ToyService
) -> None:
    ada = _connected(renting, member)
    job = add_job(installation, member, status="cancelled", attempt=1)
    [name] = installation.all(InstallationRow)
    key = str(MachineKey(name.id.hex[:8], job.id, 1))
    service.add_stray("toy-7", key)
    add_rental(installation, job, key=key, instance_id="toy-7", state="running", billed_to=None)
    refused = ada.delete("/api/providers/toy/credentials")
    assert (refused.status_code, refused.json()["code"]) == (409, "machines_running")
    assert renting.signed_in(installation.add_user("Eve")).post("/api/providers/reconcile").json() == {
        "ended": [],
        "unseen": [],
    }
    ended = ada.post("/api/providers/reconcile").json()["ended"]
    assert ended == [{"provider": "toy", "key": key, "instance_id": "toy-7"}]
    assert not service.running
    assert ada.get("/api/rentals?running=true").json()["items"] == []
    assert ada.delete("/api/providers/toy/credentials").status_code == 204


def test_a_service_that_cannot_be_looked_at_is_named_with_its_reason(
    renting: Server, member: User, service: ToyService
) -> None:
    ada = _connected(renting, member)
    service.faults["list"] = [Fault("unavailable", "The toy service is being repaired.")]
    assert ada.post("/api/providers/reconcile").json() == {
        "ended": [],
        "unseen": [{"provider": "toy", "reason": "The toy service is being repaired."}],
    }


def test_a_budget_is_set_once_for_each_thing_and_says_what_was_spent(
    renting: Server, installation: Installation, member: User
) -> None:
    job = add_job(installation, member)
    add_rental(installation, job, cost=2.0, billed_from=now())
    ada = renting.signed_in(member)
    for limit in (5, 10.5):
        for scope in (
            {"scope": "user", "period": "month"},
            {"scope": "project", "project_id": str(job.project_id)},
        ):
            assert ada.put("/api/budgets", json={**scope, "limit": float(limit)}).status_code == 200
    ada.put("/api/budgets", json={"scope": "job", "job_id": str(job.id), "limit": 3.0})
    items = ada.get("/api/budgets").json()["items"]
    assert [(item["scope"], item["limit"], item["period"]) for item in items] == [
        ("user", 10.5, "month"),
        ("project", 10.5, "total"),
        ("job", 3.0, "total"),
    ]
    assert [item["spent"] for item in items[:2]] == [2.0, 2.0]
    for item in items:
        assert ada.delete(f"/api/budgets/{item['id']}").status_code == 204
    assert ada.get("/api/budgets").json()["items"] == []
    wrong = ada.put("/api/budgets", json={"scope": "user", "job_id": str(job.id), "limit": 1.0})
    assert wrong.status_code == 422


def test_a_monthly_budget_counts_the_time_that_was_billed_in_the_month(
    installation: Installation, member: User
) -> None:
    at = datetime(2026, 11, 15, 12, tzinfo=UTC)
    november = datetime(2026, 11, 1, tzinfo=UTC)
    mine, other = add_job(installation, member), add_job(installation, member)
    hour = timedelta(hours=1)
    october = {"billed_from": november - 9 * hour, "billed_to": november - hour}
    across = {"billed_from": november - hour, "billed_to": november + 3 * hour}
    # Asked for this month or last: only its billed time counts.
    add_rental(installation, other, cost=8.0, created_at=at, **october)
    add_rental(installation, other, cost=4.0, created_at=november - hour, **across)
    add_rental(installation, mine, cost=16.0, created_at=november - hour, **across)
    running = {"billed_from": november - hour, "billed_to": None, "metered_at": november + hour}
    add_rental(
        installation, mine, cost=2.0, attempt=2, state="running", created_at=november - hour, **running
    )
    budget = installation.add(Budget(user_id=member.id, amount=100.0, period="month", warned=[]))

    async def counted() -> tuple[float, float]:
        database = Database(installation.database_url)
        try:
            async with database.read() as session:
                [limit] = await limits_of(session, mine, (), at)
                return await spent(session, budget, at), limit.value.spent_by_others
        finally:
            await database.close()

    in_all, other_jobs = asyncio.run(counted())
    assert in_all == pytest.approx(3.0 + 12.0 + 1.0)
    # Added to all that the job's own meter says, it is what counts this month.
    assert other_jobs + 16.0 + 2.0 == pytest.approx(in_all)


def test_a_job_takes_an_offer_only_where_it_can_be_had(
    renting: Server, installation: Installation, member: User
) -> None:
    ada = renting.signed_in(member)
    body = {
        "project": {"name": "P", "model_architecture": "transformer", "model_size": 0.001},
        "offer": OFFER,
    }
    refused = ada.post("/api/jobs", json=body)
    assert refused.json()["detail"] == "Toy is not connected. Enter your credentials under Providers first."
    ada = _connected(renting, member)
    unknown = ada.post("/api/jobs", json={**body, "offer": {**OFFER, "gpu": "H100"}})
    assert unknown.status_code == 422
    unlimited = ada.post("/api/jobs", json=body).json()
    # Twice the estimate, and at least half an hour of the machine.
    assert unlimited["budget"] == max(0.75, round(2 * unlimited["offer"]["estimate"]["likely"], 2))
    assert unlimited["max_hours"] >= 0.5
    kept = ada.delete(f"/api/budgets/{unlimited['id']}")
    assert (kept.status_code, kept.json()["code"]) == (409, "budget_required")
    made = ada.post("/api/jobs", json={**body, "budget": 4.0, "max_hours": 2.0})
    assert made.status_code == 201, made.text
    job = made.json()
    assert (job["target"], job["budget"], job["max_hours"]) == ("toy", 4.0, 2.0)
    assert (job["offer"]["hourly"], job["offer"]["billing"], job["config"]["device"]) == (
        1.5,
        "minute",
        "cuda",
    )
    assert job["offer"]["estimate"]["low"] < job["offer"]["estimate"]["high"]
    assert job["queue_position"] is None


def test_a_job_that_does_not_run_moves_to_another_machine_and_back_as_the_same_job(
    renting: Server, installation: Installation, member: User
) -> None:
    ada = _connected(renting, member)
    data = installation.home / "uploads" / "a.txt"
    data.write_text("words " * 1000)
    config = {"data": {"train_path": str(data)}, "device": "cpu"}
    job = add_job(installation, member, status="paused", error_code="budget", attempt=3)
    installation.change(job, config={**job.config, **config})
    moved = ada.post(f"/api/jobs/{job.id}/move", json={"offer": OFFER, "budget": 9.0})
    assert moved.status_code == 200, moved.text
    row = moved.json()
    assert (row["id"], row["status"], row["target"], row["budget"]) == (str(job.id), "queued", "toy", 9.0)
    assert (row["error_code"], row["attempt"], row["config"]["device"]) == (None, 3, "cuda")
    back = ada.post(f"/api/jobs/{job.id}/move", json={}).json()
    assert (back["target"], back["offer"], back["budget"]) == ("local", None, 9.0)
    installation.change(job, status="running")
    assert ada.post(f"/api/jobs/{job.id}/move", json={}).status_code == 409
    assert installation.actions().count("training_job.moved") == 2


def test_without_a_store_nothing_can_be_sent_and_the_next_step_is_told(
    installation: Installation, server: Server, member: User
) -> None:
    ada = server.signed_in(member)
    body = {
        "project": {"name": "P", "model_architecture": "transformer", "model_size": 0.001},
        "offer": {"provider": "paperspace", "gpu": "RTX A4000", "kind": "on_demand"},
    }
    refused = ada.post("/api/jobs", json=body).json()
    assert [error["code"] for error in refused["errors"]] == ["no_store"]
    assert "bloom providers storage set" in refused["detail"]
    # Modal brings a store of its own, and this server connects to machines of RunPod over SSH. What is
    # missing there is an account.
    for offer in (
        {"provider": "modal", "gpu": "T4", "kind": "per_second"},
        {"provider": "runpod", "gpu": "A40", "kind": "on_demand"},
    ):
        refused = ada.post("/api/jobs", json={**body, "offer": offer}).json()
        assert [error["code"] for error in refused["errors"]] == ["not_connected"]


def test_a_job_keeps_the_offers_that_it_goes_to_next(renting: Server, member: User) -> None:
    ada = _connected(renting, member)
    body = {
        "project": {"name": "P", "model_architecture": "transformer", "model_size": 0.001},
        "offer": OFFER,
    }
    assert ada.post("/api/jobs", json=body).json()["failover"] == []
    body["project"] = {**body["project"], "name": "Q"}
    small = ada.post("/api/jobs", json={**body, "failover": [{"provider": "toy", "gpu": "T4"}]})
    assert (small.status_code, small.json()["errors"][0]["code"]) == (422, "failover_too_small")
    made = ada.post("/api/jobs", json={**body, "failover": [{"provider": "toy", "gpu": "H200"}]}).json()
    [following] = made["failover"]
    likely = made["offer"]["estimate"]["likely"]
    assert following["gpu"] == "H200"
    assert following["estimate"]["likely"] == pytest.approx(likely * 4.0 / 1.5, rel=0.01)


def test_by_default_the_same_gpu_at_other_connected_providers_comes_next_by_price(
    installation: Installation, service: ToyService, member: User, tmp_path: Path
) -> None:
    shops = {"a": 3.0, "b": 2.0, "c": 2.5, "d": 9.0}
    facts = {"toy": FACTS} | {name: {**FACTS, "title": name, "through": "toy"} for name in shops}
    rows = [ROW, *({**ROW, "provider": name, "hourly": hourly} for name, hourly in shops.items())]
    prices = tmp_path / "many.json"
    prices.write_text(
        json.dumps({"providers": facts, "rows": [*rows, {**ROW, "provider": "b", "gpu": "T4"}]})
    )
    bucket = {"storage_bucket": "b", "storage_key": "k", "storage_secret": SecretStr("s")}
    with installation.serve(prices=prices, **bucket) as server:
        ada = _connected(server, member)
        project = {"name": "P", "model_architecture": "transformer", "model_size": 0.001}
        made = ada.post("/api/jobs", json={"project": project, "offer": OFFER})
        assert made.status_code == 201, made.text
        assert [(each["provider"], each["gpu"]) for each in made.json()["failover"]] == [
            ("b", "A100"),
            ("c", "A100"),
            ("a", "A100"),
        ]
        without = {"project": {**project, "name": "Q"}, "offer": OFFER, "failover": []}
        assert ada.post("/api/jobs", json=without).json()["failover"] == []


def test_the_next_offers_follow_the_persons_preference_and_stay_within_the_budget(
    installation: Installation, service: ToyService, member: User, tmp_path: Path
) -> None:
    # Price per hour and usual wait in seconds.
    shops = {"a": (3.0, 10), "b": (2.0, 900), "c": (2.5, 60)}
    facts = {"toy": FACTS} | {
        name: {**FACTS, "title": name, "through": "toy", "queue_seconds": [0, wait, 2 * wait]}
        for name, (_, wait) in shops.items()
    }
    rows = [ROW, *({**ROW, "provider": name, "hourly": hourly} for name, (hourly, _) in shops.items())]
    prices = tmp_path / "many.json"
    prices.write_text(json.dumps({"providers": facts, "rows": rows}))
    bucket = {"storage_bucket": "b", "storage_key": "k", "storage_secret": SecretStr("s")}
    with installation.serve(prices=prices, **bucket) as server:
        ada = _connected(server, member)
        names = iter("PQRSTUV")

        def made(**changes: Any) -> Any:
            project = {"name": next(names), "model_architecture": "transformer", "model_size": 0.001}
            return ada.post("/api/jobs", json={"project": project, "offer": OFFER, **changes}).json()

        def following(job: Any) -> str:
            return "".join(each["provider"] for each in job["failover"])

        assert following(made()) == "bca"
        assert following(made(failover_by={"order": "time"})) == "acb"
        assert following(made(failover_by={"order": "time", "providers": ["b", "c"]})) == "cb"
        unknown = made(failover_by={"providers": ["nowhere"]})
        assert [error["code"] for error in unknown["errors"]] == ["unknown_provider"]
        # What is expected to cost more than the budget is no alternative.
        job = made()
        costs = {each["provider"]: each["estimate"]["likely"] for each in job["failover"]}
        assert following(made(budget=(costs["b"] + costs["c"]) / 2)) == "b"
        # A job that waits can be given another order.
        move = {"offer": OFFER, "failover": None, "failover_by": {"order": "time"}}
        assert following(ada.post(f"/api/jobs/{job['id']}/move", json=move).json()) == "acb"
        assert following(ada.post(f"/api/jobs/{job['id']}/move", json={"offer": OFFER}).json()) == ""


@pytest.mark.parametrize("said", [math.nan, math.inf, -1.0])
def test_a_price_that_is_no_price_leaves_the_rate_that_was_agreed(said: float) -> None:
    begun = now()
    rental = Rental(key="k", provider="toy", hourly=3.0, billing="second", minimum_seconds=0.0)
    note_instance(rental, Instance("i", "k", "running", billed_from=begun, hourly=said), begun)
    meter(rental, begun + timedelta(hours=1))
    assert (rental.hourly, rental.cost) == (3.0, pytest.approx(3.0))


def test_a_time_that_no_service_knows_is_not_billed_from() -> None:
    begun = now()
    rental = Rental(key="k", provider="toy", hourly=3.0, billing="second", minimum_seconds=0.0)
    unset = datetime(1, 1, 1, tzinfo=UTC)
    note_instance(rental, by_database_clock(Instance("i", "k", "running", billed_from=unset), begun), begun)
    meter(rental, begun + timedelta(hours=1))
    assert rental.cost == pytest.approx(3.0)


@pytest.mark.parametrize(
    "end", [datetime.max.replace(tzinfo=UTC), now() + timedelta(days=30)], ids=["no time", "wrong clock"]
)
def test_nothing_is_billed_beyond_now(end: datetime) -> None:
    at = now()
    begun = at - timedelta(hours=1)
    rental = Rental(key="k", provider="toy", hourly=3.0, billing="second", minimum_seconds=0.0)
    note_instance(rental, Instance("i", "k", "running", billed_from=begun), begun)
    over = Instance("i", "k", "ended", billed_from=begun, billed_to=end)
    note_instance(rental, by_database_clock(over, at), at)
    assert rental.cost == pytest.approx(3.0)
