"""A file that takes over its parser gets the parser's own inputs and nothing else."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.sandbox.landlock import landlock_version
from gpubloom.server.accounts.tables import User
from gpubloom.server.datasets import reading
from gpubloom.server.storage import children
from gpubloom.worker import imports
from tests.server.bringing import brought, inspected, on_sqlite, upload
from tests.server.installation import Installation, Server

HOSTILE = "tests.server.hostile_parser"
ROWS = b'{"prompt": "a", "completion": "b"}\n'
needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")


@pytest.fixture
def port() -> Iterator[int]:
    """Somebody on this machine who takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("HF_HUB_TEST_PORT", str(port))


def set_up(server: Server, installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stranger would like to have."""
    for name in ("secret.key", "bloom.db"):
        if not (installation.home / name).exists():
            (installation.home / name).write_bytes(bytes(32))
    theirs = brought(server, server.signed_in(installation.add_user("Bo")), "theirs.jsonl", ROWS)
    file = installation.home / "datasets" / theirs["id"] / "data.jsonl"
    assert file.is_file()
    monkeypatch.setenv("HF_HUB_TEST_OTHER", str(file))


@needs_landlock
@on_sqlite
def test_a_preview_that_was_taken_over_reads_only_its_own_file(
    server: Server, installation: Installation, member: User, hostile: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(server, installation, monkeypatch)
    browser = server.signed_in(member)
    mine = brought(server, browser, "mine.jsonl", ROWS)
    monkeypatch.setattr(reading, "MODULE", HOSTILE)
    refusal = browser.get(f"/api/datasets/{mine['id']}/preview")
    assert refusal.json()["code"] == "cannot_be_read"
    found = json.loads(refusal.json()["detail"])
    assert [name for name, outcome in found.items() if outcome == "done"] == ["read_own"], found


@needs_landlock
@on_sqlite
def test_an_inspection_that_was_taken_over_writes_beside_its_own_file_only(
    server: Server, installation: Installation, member: User, hostile: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(server, installation, monkeypatch)
    browser = server.signed_in(member)
    monkeypatch.setattr(imports, "MODULE", HOSTILE)
    dataset = inspected(server, browser, upload(browser, "mine.jsonl", ROWS))
    assert dataset["status"] == "failed"
    found = json.loads(dataset["problem"])
    done = {name for name, outcome in found.items() if outcome == "done"}
    assert done == {"read_own", "write_beside_own", "change_own"}, found


@on_sqlite
def test_a_kernel_without_landlock_is_told_about_or_refused_as_the_operator_says(
    installation: Installation,
    member: User,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(children, "landlock_version", lambda: 0)
    monkeypatch.setattr(children, "_told_about", set())
    with installation.serve(sandbox="prefer") as server:
        dataset = brought(server, server.signed_in(member), "mine.jsonl", ROWS)
        assert dataset["status"] == "ready"
        server.signed_in(member).get(f"/api/datasets/{dataset['id']}/preview")
    assert capfd.readouterr().err.count("readers_not_confined") == 1
    with installation.serve(sandbox="require") as server:
        refusal = server.signed_in(member).get(f"/api/datasets/{dataset['id']}/preview")
    assert refusal.json()["code"] == "preview_failed"
    assert "BLOOM_SANDBOX" in refusal.json()["detail"]
