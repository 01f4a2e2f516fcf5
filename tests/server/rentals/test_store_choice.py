"""Which store the files of a rented job go through: shown with offers and quotes, asked for at the start."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from tests.server.installation import Browser, Installation, Server
from tests.server.rentals.conftest import FACTS, ROW
from tests.worker.remote.toy_provider import KEY, ToyService

BUCKET = {"storage_bucket": "b", "storage_key": "k", "storage_secret": SecretStr("s")}
PUBLIC = {"public_url": "https://bloom.example.org"}
SCRIPT = {
    "files": [{"path": "train.py", "text": "import torch\nprint('hello')\n"}],
    "entry": "train.py",
    "offer": {"provider": "toy", "gpu": "A100", "kind": "on_demand"},
}


@pytest.fixture
def prices(tmp_path: Path, service: ToyService) -> Path:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"providers": {"toy": FACTS}, "rows": [ROW]}))
    return path


def _connected(server: Server, member: User) -> Browser:
    ada = server.signed_in(member)
    answer = ada.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    assert answer.status_code == 200, answer.text
    return ada


def _offers(ada: Browser) -> list[dict[str, Any]]:
    body = {"needs": {"memory_gb": 10, "hours": 1}, "constraints": {"providers": ["toy"]}}
    found: list[dict[str, Any]] = ada.post("/api/offers", json=body).json()["offers"]
    return found


@pytest.fixture
def without_store(installation: Installation, prices: Path) -> Iterator[Server]:
    with installation.serve(prices=prices) as server:
        yield server


def test_a_quote_needs_no_store_and_says_the_next_step(
    without_store: Server, installation: Installation, member: User
) -> None:
    ada = _connected(without_store, member)
    assert [offer["store"] for offer in _offers(ada)] == [None]
    quote = ada.post("/api/ml-jobs/quote", json=SCRIPT)
    assert quote.status_code == 200, quote.text
    assert quote.json()["store"] is None
    assert "bloom providers storage set" in quote.json()["problem"]
    assert quote.json()["estimated_cost"]["likely"] > 0
    # Starting does need one; nothing is left of the try.
    refused = ada.post("/api/ml-jobs", json=SCRIPT).json()
    assert [error["code"] for error in refused["errors"]] == ["no_store"]
    assert refused["detail"] == quote.json()["problem"]
    assert installation.all(TrainingJob) == []


@pytest.mark.parametrize(
    ("settings", "name"), [(PUBLIC, "server"), (BUCKET, "bucket"), ({**PUBLIC, **BUCKET}, "bucket")]
)
def test_the_best_store_is_chosen_and_shown(
    installation: Installation, prices: Path, member: User, settings: dict[str, Any], name: str
) -> None:
    with installation.serve(prices=prices, **settings) as server:
        ada = _connected(server, member)
        assert [offer["store"]["name"] for offer in _offers(ada)] == [name]
        quote = ada.post("/api/ml-jobs/quote", json=SCRIPT).json()
        assert (quote["store"]["name"], quote["problem"]) == (name, None)
        started = ada.post("/api/ml-jobs", json=SCRIPT).json()
        job = ada.get(f"/api/jobs/{started['job_id']}").json()
        assert (job["offer"]["store"]["name"], job["offer"]["store"]["title"] != "") == (name, True)
        toy = next(item for item in ada.get("/api/providers").json()["items"] if item["name"] == "toy")
        assert toy["store"]["name"] == name
