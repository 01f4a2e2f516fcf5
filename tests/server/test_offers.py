"""Prices and offers over HTTP; no database is touched, so one kind of it is enough."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.scripts import detect
from gpubloom.server.settings import SettingsError, load_settings
from tests.errors import raises
from tests.server.installation import Browser, Server

NEEDS = {"memory_gb": 12, "hours": 4}


@pytest.fixture
def ada(sqlite_server: Server) -> Browser:
    return sqlite_server.stranger


def test_offers_for_figures_come_with_the_choice_and_what_was_left_out(ada: Browser) -> None:
    answer = ada.post("/api/offers", json={"needs": NEEDS})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    first, *others = found["offers"]
    assert first["recommended"] is True
    assert first["reasons"]
    assert not any(offer["recommended"] for offer in others)
    assert (found["archetype"], found["usual"], first["provider"]) == (
        "usual run",
        "runpod",
        "runpod",
    )
    assert first["cost"]["total"]["low"] <= first["cost"]["total"]["likely"] <= first["cost"]["total"]["high"]
    assert first["stale"] is True
    assert any("SkyPilot" in each["reason"] for each in found["excluded"])
    assert found["need"]["reference_gpu"] == "T4"


def test_what_was_found_in_a_script_is_taken_as_it_was_answered(ada: Browser) -> None:
    found = detect("import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n")
    answer = ada.post("/api/offers", json={"requirements": found.model_dump(mode="json")})
    assert answer.status_code == 200, answer.text
    assert "hours" in answer.json()["need"]["assumed"]
    assert "hours" in answer.json()["offers"][0]["assumed"]


def test_constraints_are_kept(ada: Browser) -> None:
    constraints: dict[str, Any] = {
        "providers": ["lambda", "modal"],
        "max_hourly": 2,
        "priority": "price",
        "credits": {"modal": 100},
    }
    offers = ada.post("/api/offers", json={"needs": NEEDS, "constraints": constraints}).json()["offers"]
    assert {offer["provider"] for offer in offers} == {"lambda", "modal"}
    assert all(offer["hourly"]["likely"] <= 2 for offer in offers)
    assert offers[0]["provider"] == "modal"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "needs"),
        ({"needs": {"memory_gb": 12}}, "needs"),
        ({"needs": {**NEEDS, "reference_gpu": "Voodoo"}}, "needs"),
        ({"needs": {**NEEDS, "memory_gb": -1}}, "needs.memory_gb"),
        ({"needs": {**NEEDS, "hours": 1e300}}, "needs.hours"),
        ({"needs": {**NEEDS, "gpus": 0}}, "needs.gpus"),
        ({"needs": {**NEEDS, "colour": "red"}}, "needs.colour"),
        ({"needs": NEEDS, "constraints": {"region": "moon"}}, "constraints.region"),
        ({"needs": NEEDS, "constraints": {"max_cost": -5}}, "constraints.max_cost"),
    ],
)
def test_what_cannot_be_priced_is_refused_with_a_sentence(
    ada: Browser, body: dict[str, Any], field: str
) -> None:
    answer = ada.post("/api/offers", json=body)
    assert answer.status_code == 422, answer.text
    assert field in [error["field"] for error in answer.json()["errors"]]


def test_requirements_beyond_reason_are_refused(ada: Browser) -> None:
    found = detect("import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n").model_dump(mode="json")
    found["duration_hours"]["value"] = 1e300
    answer = ada.post("/api/offers", json={"requirements": found})
    assert answer.status_code == 422, answer.text
    assert "cannot be priced" in answer.json()["detail"]
    both = ada.post("/api/offers", json={"requirements": found, "needs": NEEDS})
    assert "exactly one of requirements and needs" in both.json()["detail"]


def test_prices_say_where_and_when_they_were_read(ada: Browser) -> None:
    answer = ada.get("/api/prices")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["stale_after_days"] == 30
    names = {provider["name"] for provider in found["providers"]}
    assert {"modal", "lambda", "paperspace"} <= names
    for price in found["prices"]:
        assert price["provider"] in names
        assert price["source"]
        assert price["read_on"]
    assumed = {(price["provider"], price["gpu"]) for price in found["prices"] if price["assumed"]}
    assert ("modal", "A10") in assumed


def test_strangers_see_neither(sqlite_server: Server) -> None:
    stranger = sqlite_server.browser()
    assert stranger.get("/api/prices").status_code == 401
    assert stranger.post("/api/offers", json={"needs": NEEDS}).status_code in {401, 403}


def test_a_price_file_that_cannot_be_used_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    own = tmp_path / "prices.json"
    own.write_text(json.dumps({"rows": [{"provider": "modal"}]}))
    with raises(SettingsError, code="invalid_settings", match=r"BLOOM_PRICES.*rows\.0\.gpu"):
        load_settings(_env_file=None, prices=own)
