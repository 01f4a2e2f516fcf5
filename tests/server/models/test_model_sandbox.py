"""A model file or a hub that takes over its reader gets the reader's own inputs and nothing else."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.sandbox.landlock import landlock_version
from gpubloom.server.accounts.tables import User
from gpubloom.server.models import checks
from gpubloom.server.models.tables import Model
from gpubloom.worker import imports
from tests.hub.fake_hub import FakeHub
from tests.server.bringing import brought, on_sqlite, prepare
from tests.server.installation import Installation, Server

ROWS = b'{"prompt": "a", "completion": "b"}\n'

pytestmark = [
    pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock"),
    on_sqlite,
]


@pytest.fixture
def tempting(server: Server, installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a stranger would like to have: keys, another tenant's data, somebody who takes connections."""
    for name in ("secret.key", "bloom.db"):
        if not (installation.home / name).exists():
            (installation.home / name).write_bytes(bytes(32))
    theirs = brought(server, server.signed_in(installation.add_user("Bo")), "theirs.jsonl", ROWS)
    file = installation.home / "datasets" / theirs["id"] / "data.jsonl"
    monkeypatch.setenv("HF_HUB_TEST_OTHER", str(file))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.delenv("BLOOM_EGRESS_ALLOW", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("HF_HUB_TEST_PORT", str(listening.getsockname()[1]))
        yield


def done(found: dict[str, str]) -> set[str]:
    return {name for name, outcome in found.items() if outcome == "done"}


def test_a_check_that_was_taken_over_reads_only_its_own_model(
    server: Server,
    installation: Installation,
    member: User,
    hub: FakeHub,
    tiny_model: Path,
    tempting: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.add("acme/tiny", {path.name: path.read_bytes() for path in tiny_model.iterdir() if path.is_file()})
    monkeypatch.setattr(checks, "_MODULE", "tests.server.hostile_checker")
    answer = server.signed_in(member).post("/api/models", json={"source": "hub", "repository": "acme/tiny"})
    assert answer.status_code == 201, answer.text
    prepare(server.settings)
    (model,) = installation.all(Model)
    assert model.check is not None
    found = {finding["code"]: finding["sentence"] for finding in model.check["findings"]}
    assert done(found) == {"read_own"}, model.check


def test_a_check_that_answers_something_else_fails_with_a_sentence(
    server: Server, member: User, hub: FakeHub, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("acme/tiny", {path.name: path.read_bytes() for path in tiny_model.iterdir() if path.is_file()})
    monkeypatch.setattr(checks, "_MODULE", "tests.server.lying_checker")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    browser = server.signed_in(member)
    assert browser.post("/api/models", json={"source": "hub", "repository": "acme/tiny"}).status_code == 201
    prepare(server.settings)
    (model,) = browser.get("/api/models").json()["items"]
    assert model["status"] == "failed"
    assert "unreadable answer" in model["problem"]


def test_a_download_that_was_taken_over_reaches_its_folder_and_the_hub_only(
    server: Server,
    installation: Installation,
    member: User,
    hub: FakeHub,
    tempting: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(imports, "_FETCH_MODULE", "tests.server.hostile_fetcher")
    answer = server.signed_in(member).post("/api/models", json={"source": "hub", "repository": "acme/tiny"})
    assert answer.status_code == 201, answer.text
    prepare(server.settings)
    (model,) = installation.all(Model)
    found = json.loads(str(model.problem))
    # A name becomes an address with the help of such sockets; connections by TCP go to the hub's ports only.
    sockets = {"unix_socket", "udp_socket"}
    assert done(found) == {"read_own", "write_beside_own", "change_own"} | sockets, found


def test_files_of_a_downloaded_dataset_are_joined_without_a_network(
    server: Server, member: User, hub: FakeHub, tempting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("acme/rows", {"train-1.jsonl": ROWS, "train-2.jsonl": ROWS}, kind="dataset")
    monkeypatch.setattr(imports, "_FETCH_MODULE", "tests.server.hostile_fetcher")
    browser = server.signed_in(member)
    answer = browser.post("/api/datasets/from-hub", json={"repository": "acme/rows"})
    assert answer.status_code == 201, answer.text
    prepare(server.settings)
    problem = browser.get(f"/api/datasets/{answer.json()['id']}").json()["problem"]
    assert done(json.loads(problem)) == set(), problem
