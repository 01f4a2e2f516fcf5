"""What a connected service says about its prices counts in offers for everybody; it is asked once an hour."""

from datetime import timedelta

import pytest

from gpubloom.offers import PriceRow
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.rentals.tables import LivePrices
from tests.server.installation import Browser, Installation, Server
from tests.worker.remote import toy_provider
from tests.worker.remote.toy_provider import KEY, ToyService


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, service: ToyService) -> list[float]:
    """Prices that the service names, one after the other; the last one again and again."""
    hourly = [2.25]

    async def prices(self: object) -> list[PriceRow]:
        row = {"provider": "toy", "gpu": "A100", "memory_gb": 80, "kind": "on_demand", "hourly": hourly[-1]}
        seen = {"source": "the service", "read_on": now().date()}
        unknown = {**row, "provider": "a cloud that nobody knows"}
        return [PriceRow.model_validate({**each, **seen}) for each in (row, unknown)]

    monkeypatch.setattr(toy_provider.ToyProvider, "prices", prices)
    return hourly


def _hourly(browser: Browser) -> float:
    found = browser.get("/api/prices").json()["prices"]
    return next(float(row["hourly"]) for row in found if row["provider"] == "toy")


def test_prices_of_a_connected_service_count_for_everybody(
    renting: Server, installation: Installation, member: User, asked: list[float]
) -> None:
    ada, eve = renting.signed_in(member), renting.signed_in(installation.add_user("Eve"))
    assert _hourly(ada) == 1.5
    ada.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    assert ada.post("/api/providers/reconcile").status_code == 200
    assert _hourly(eve) == 2.25
    needs = {"memory_gb": 20, "hours": 1, "reference_gpu": "A100"}
    offers = eve.post("/api/offers", json={"needs": needs}).json()["offers"]
    toy = next(offer for offer in offers if (offer["provider"], offer["gpu"]) == ("toy", "A100"))
    assert toy["hourly"]["likely"] == pytest.approx(2.25)

    asked.append(3.0)
    ada.post("/api/providers/reconcile")
    assert _hourly(eve) == 2.25, "asked again within the hour"
    with installation.session() as session:
        session.get_one(LivePrices, "toy").read_at = now() - timedelta(hours=2)
    ada.post("/api/providers/reconcile")
    assert _hourly(eve) == 3.0


def test_what_was_said_long_ago_is_left_out(
    renting: Server, installation: Installation, member: User, asked: list[float]
) -> None:
    ada = renting.signed_in(member)
    ada.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    ada.post("/api/providers/reconcile")
    assert _hourly(ada) == 2.25
    with installation.session() as session:
        session.get_one(LivePrices, "toy").read_at = now() - timedelta(days=2)
    assert _hourly(ada) == 1.5
