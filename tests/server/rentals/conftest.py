"""A server where jobs can be sent to the toy service: a bucket is set, and its prices are known."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from gpubloom.providers import registry
from tests.server.installation import Installation, Server
from tests.worker.remote.toy_provider import SERVICE, ToyService

SECRET = "bucket-secret-93"
FACTS = {
    "title": "Toy",
    "source": "this test",
    "read_on": "2026-11-15",
    "billing": "minute",
    "start_up_seconds": [10, 60, 300],
    "queue_seconds": [0, 0, 0],
    "storage_gb_month": [0, 0, 0],
    "egress_gb": [0, 0, 0],
    "reliability": 0.9,
}
ROW = {
    "provider": "toy",
    "gpu": "A100",
    "memory_gb": 80,
    "kind": "on_demand",
    "hourly": 1.5,
    "source": "this test",
    "read_on": "2026-11-15",
}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyService]:
    monkeypatch.setitem(registry._MODULES, "toy", "tests.worker.remote.toy_provider")
    SERVICE.append(ToyService(tmp_path / "toy"))
    yield SERVICE[-1]
    SERVICE.pop().close()


@pytest.fixture
def renting(installation: Installation, service: ToyService, tmp_path: Path) -> Iterator[Server]:
    prices = tmp_path / "prices.json"
    larger = {**ROW, "gpu": "H200", "memory_gb": 141, "hourly": 4.0}
    smaller = {**ROW, "gpu": "T4", "memory_gb": 16, "hourly": 0.5}
    prices.write_text(json.dumps({"providers": {"toy": FACTS}, "rows": [ROW, larger, smaller]}))
    bucket = {"storage_bucket": "b", "storage_key": "k", "storage_secret": SecretStr(SECRET)}
    with installation.serve(prices=prices, **bucket) as server:
        yield server
