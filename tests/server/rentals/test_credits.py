"""Remaining credits: stated by a person, lessened by what their jobs cost there, counted in offers."""

from datetime import timedelta
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job
from tests.server.rentals.machines import add_rental

NEEDS = {"memory_gb": 12, "hours": 4}


@pytest.fixture
def ada(renting: Server, member: User) -> Browser:
    return renting.signed_in(member)


def _offer(browser: Browser, provider: str = "toy") -> dict[str, Any]:
    offers = browser.post("/api/offers", json={"needs": NEEDS}).json()["offers"]
    found: dict[str, Any] = next(offer for offer in offers if offer["provider"] == provider)
    return found


def _left(browser: Browser) -> dict[str, float]:
    items = browser.get("/api/credits").json()["items"]
    return {item["provider"]: item["remaining"] for item in items}


def test_a_stated_credit_pays_for_offers_and_is_the_persons_own(
    renting: Server, installation: Installation, ada: Browser
) -> None:
    eve = renting.signed_in(installation.add_user("Eve"))
    assert _offer(ada)["credit"] is None
    stated = ada.put("/api/credits/toy", json={"amount": 500})
    assert (stated.status_code, stated.json()["remaining"], stated.json()["currency"]) == (200, 500, "USD")
    assert _left(ada) == {"toy": 500}
    offer = _offer(ada)
    assert offer["recommended"] is True
    assert offer["credit"]["covered"] == offer["cost"]["total"]
    assert offer["credit"]["to_pay"] == {"low": 0, "likely": 0, "high": 0}
    assert offer["cost"]["total"]["likely"] > 1, "the price is still shown"
    assert (_left(eve), _offer(eve)["credit"]) == ({}, None)
    assert "provider_credit.stated" in installation.actions()
    assert eve.delete("/api/credits/toy").status_code == 404
    assert ada.delete("/api/credits/toy").status_code == 204
    assert (_left(ada), _offer(ada)["credit"]) == ({}, None)


def test_an_offer_beyond_the_credit_says_what_is_to_pay(ada: Browser) -> None:
    ada.put("/api/credits/toy", json={"amount": 0.5})
    offer = _offer(ada)
    assert offer["credit"]["covered"]["likely"] == 0.5
    to_pay = offer["credit"]["to_pay"]["likely"]
    assert to_pay == pytest.approx(offer["cost"]["total"]["likely"] - 0.5)
    assert any(f"you pay about ${to_pay:.2f}" in caution for caution in offer["cautions"])
    # What a request says itself comes first.
    body = {"needs": NEEDS, "constraints": {"credits": {"toy": 0}, "providers": ["toy"]}}
    assert ada.post("/api/offers", json=body).json()["offers"][0]["credit"] is None


def test_what_jobs_cost_since_is_subtracted_of_each_providers_own_credit(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member)
    at = now()
    week, hour = timedelta(days=7), timedelta(hours=1)
    add_rental(installation, job, cost=40.0, billed_from=at - week - hour, billed_to=at - week)
    add_rental(installation, job, cost=3.0, billed_from=at - timedelta(days=2), billed_to=at - hour)
    add_rental(installation, job, provider="skypilot", seller="runpod", cost=2.0)
    eve = installation.add_user("Eve")
    add_rental(installation, add_job(installation, eve), cost=9.0)
    day = (at - timedelta(days=4)).date().isoformat()
    stated = ada.put("/api/credits/toy", json={"amount": 10, "as_of": day}).json()
    assert (stated["spent"], stated["remaining"]) == (3.0, 7.0)
    assert ada.put("/api/credits/runpod", json={"amount": 1, "as_of": day}).json()["remaining"] == 0
    assert _left(ada) == {"runpod": 0, "toy": 7.0}
    # Stated for now, nothing earlier counts; what runs later does, as far as it is later.
    assert ada.put("/api/credits/toy", json={"amount": 10}).json()["remaining"] == 10
    later = {"billed_from": now() - hour, "billed_to": now() + hour, "cost": 4.0}
    add_rental(installation, job, **later)
    assert _left(ada)["toy"] == pytest.approx(8.0, abs=0.1)


def test_what_cannot_be_a_credit_is_refused(ada: Browser) -> None:
    assert ada.put("/api/credits/nobody", json={"amount": 1}).json()["code"] == "unknown_provider"
    assert ada.put("/api/credits/local", json={"amount": 1}).status_code == 404
    assert ada.put("/api/credits/toy", json={"amount": -1}).status_code == 422
    tomorrow = (now() + timedelta(days=1)).date().isoformat()
    future = ada.put("/api/credits/toy", json={"amount": 1, "as_of": tomorrow})
    assert (future.status_code, future.json()["errors"][0]["code"]) == (422, "day_in_future")
    assert _left(ada) == {}
    names = {each["name"] for each in ada.get("/api/credits").json()["providers"]}
    assert {"modal", "lambda", "runpod", "toy"} <= names
    assert not names & {"local", "skypilot"}
