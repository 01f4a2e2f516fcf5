"""Uploads in pieces: offsets, two at once, more than announced, limits, and what a broken one leaves."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from starlette.requests import ClientDisconnect

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.problems import Conflict, Problem
from gpubloom.server.storage import service
from gpubloom.server.storage.uploads import Arriving, receive
from tests.errors import raises
from tests.server.bringing import announce, clear_away, inspected, send, upload
from tests.server.installation import Installation, Server

LINE = b'{"prompt": "What?", "completion": "That."}\n'
CONTENT = LINE * 1_000


def _file(server: Server, dataset_id: str) -> Path:
    return server.settings.home / "datasets" / dataset_id / "data.jsonl"


def test_pieces_become_the_file_and_half_of_it_is_never_shown_whole(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset_id = announce(browser, "a.jsonl", len(CONTENT))["id"]
    address = f"/api/datasets/{dataset_id}/content"
    offset = 0
    while offset < len(CONTENT):
        shown = browser.get(f"/api/datasets/{dataset_id}").json()
        assert (shown["status"], shown["received"]) == ("uploading", offset)
        assert not _file(server, dataset_id).exists()
        refused = browser.get(f"/api/datasets/{dataset_id}/preview")
        assert (refused.status_code, refused.json()["code"]) == (409, "dataset_not_here")
        answer = send(browser, address, CONTENT[offset : offset + 10_000], offset)
        offset = min(offset + 10_000, len(CONTENT))
        assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, str(offset))
        assert browser.head(address).headers["Upload-Offset"] == str(offset)
    assert _file(server, dataset_id).read_bytes() == CONTENT
    assert inspected(server, browser, dataset_id)["report"]["rows"] == 1_000


def test_a_wrong_offset_is_refused_with_the_right_one(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset_id = announce(browser, "a.jsonl", len(CONTENT))["id"]
    address = f"/api/datasets/{dataset_id}/content"
    send(browser, address, CONTENT[:100])
    for offset in (0, 99, 101, len(CONTENT), 2**50):
        answer = send(browser, address, b"x", offset)
        assert (answer.status_code, answer.json()["code"]) == (
            (409, "wrong_offset") if offset < len(CONTENT) else (413, "more_than_announced")
        )
    assert browser.patch(address, content=b"x").status_code == 422
    assert browser.patch(address, content=b"x", headers={"Upload-Offset": "-1"}).status_code == 422
    assert browser.head(address).headers["Upload-Offset"] == "100"


def test_more_than_announced_is_refused_and_leaves_what_was_there(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset_id = announce(browser, "a.jsonl", 150)["id"]
    address = f"/api/datasets/{dataset_id}/content"
    send(browser, address, CONTENT[:100])

    def pieces() -> object:
        # Without a declared length, it is only seen when it has come.
        yield CONTENT[100:140]
        yield CONTENT[140:3_000_000]

    answer = send(browser, address, pieces(), 100)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"]) == (413, "more_than_announced")
    assert browser.head(address).headers["Upload-Offset"] == "100"
    assert send(browser, address, CONTENT[100:150], 100).status_code == 204


def test_bytes_after_the_last_one_change_nothing(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset_id = upload(browser, "a.jsonl", CONTENT)
    address = f"/api/datasets/{dataset_id}/content"
    assert send(browser, address, b"x", len(CONTENT)).status_code == 413
    assert send(browser, address, b"x", 0).json()["code"] == "wrong_offset"
    assert send(browser, address, b"", len(CONTENT)).status_code == 204
    assert _file(server, dataset_id).read_bytes() == CONTENT


def test_two_clients_on_one_upload_never_mix_their_bytes(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset_id = announce(browser, "a.jsonl", len(CONTENT))["id"]
    address = f"/api/datasets/{dataset_id}/content"
    codes: list[int] = []

    def client() -> None:
        own = server.signed_in(member)
        while True:
            offset = int(own.head(address).headers["Upload-Offset"])
            if offset == len(CONTENT):
                return
            codes.append(send(own, address, CONTENT[offset : offset + 3_000], offset).status_code)

    clients = [threading.Thread(target=client) for _ in range(3)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(60)
    assert set(codes) <= {204, 409}
    assert _file(server, dataset_id).read_bytes() == CONTENT


def test_several_uploads_at_once_all_arrive(server: Server, member: User) -> None:
    contents = [bytes([65 + number]) * 300_000 for number in range(4)]
    ids: dict[int, str] = {}

    def client(number: int) -> None:
        ids[number] = upload(server.signed_in(member), f"{number}.txt", contents[number])

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(60)
    for number, content in enumerate(contents):
        path = server.settings.home / "datasets" / ids[number] / "data.txt"
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest()


def test_what_came_before_a_connection_broke_stays(tmp_path: Path) -> None:
    file = Arriving(tmp_path / "data.csv", 100)

    async def breaks() -> AsyncIterator[bytes]:
        yield b"a" * 30
        raise ClientDisconnect

    async def rest() -> AsyncIterator[bytes]:
        yield b"b" * 70

    with raises(Problem, code="cut_off"):
        asyncio.run(receive(breaks(), file, offset=0))
    assert (file.received(), file.is_whole) == (30, False)
    assert asyncio.run(receive(rest(), file, offset=30)) == 100
    assert file.path.read_bytes() == b"a" * 30 + b"b" * 70
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_second_writer_is_sent_away_while_the_first_writes(tmp_path: Path) -> None:
    file = Arriving(tmp_path / "data.csv", 10)

    async def work() -> None:
        begun, arrived = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"12345"
            begun.set()
            await arrived.wait()
            yield b"67890"

        async def other() -> AsyncIterator[bytes]:
            yield b"xxxxx"

        first = asyncio.create_task(receive(slow(), file, offset=0))
        await begun.wait()
        with pytest.raises(Conflict) as refused:
            await receive(other(), file, offset=0)
        assert refused.value.code == "upload_busy"
        arrived.set()
        assert await first == 10

    asyncio.run(work())
    assert file.path.read_bytes() == b"1234567890"


def test_a_full_disk_is_said_in_a_sentence_and_keeps_what_came(
    server: Server, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = server.signed_in(member)
    dataset_id = announce(browser, "a.jsonl", 3_000_000)["id"]
    real = os.write

    def full(descriptor: int, content: bytes) -> int:
        if len(content) >= 1 << 20:
            raise OSError(28, "No space left on device")
        return real(descriptor, content)

    monkeypatch.setattr("gpubloom.server.storage.uploads.os.write", full)
    answer = send(browser, f"/api/datasets/{dataset_id}/content", b"x" * 2_000_000)
    assert (answer.status_code, answer.json()["code"]) == (413, "disk_full")


def test_limits_are_said_before_anything_is_sent(
    installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installation.serve(max_upload_gb=0.001, user_quota_gb=0.0015) as server:
        browser = server.signed_in(member)

        def ask(size: int) -> tuple[int, str, str]:
            answer = browser.post("/api/datasets", json={"filename": "a.csv", "size": size})
            problem = answer.json()
            return answer.status_code, problem.get("code", ""), problem.get("detail", "")

        status, code, detail = ask(1_000_001)
        assert (status, code) == (413, "too_large")
        assert "BLOOM_MAX_UPLOAD_GB" in detail
        assert ask(1_000_000)[0] == 201
        status, code, detail = ask(600_000)
        assert (status, code) == (413, "quota_exceeded")
        assert "1.0 MB of 1.5 MB" in detail
        # Another person has a quota of their own.
        other = server.signed_in(installation.add_user("Eve"))
        assert other.post("/api/datasets", json={"filename": "a.csv", "size": 600_000}).status_code == 201
        monkeypatch.setattr(service, "free_bytes", lambda _: service.SPARE_BYTES + 1_000_000)
        status, code, detail = ask(100_000)
        assert (status, code) == (413, "disk_full")


def test_other_addresses_keep_their_limit(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    large = b"x" * 2_000_000
    dataset_id = announce(browser, "a.jsonl", len(large))["id"]
    for method, path in (
        ("POST", f"/api/datasets/{dataset_id}/content"),
        ("PATCH", f"/api/datasets/{dataset_id}"),
        ("PATCH", f"/api/datasets/{dataset_id}/content/more"),
        ("PATCH", "/api/datasets/x/content"),
        ("POST", "/api/datasets"),
    ):
        assert browser.request(method, path, content=large).status_code == 413, path
    assert send(browser, f"/api/datasets/{dataset_id}/content", large).status_code == 204


def test_an_upload_to_a_deleted_dataset_brings_nothing_back(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset_id = announce(browser, "a.jsonl", len(CONTENT))["id"]
    address = f"/api/datasets/{dataset_id}/content"
    send(browser, address, CONTENT[:100])
    assert browser.delete(f"/api/datasets/{dataset_id}").status_code == 204
    assert send(browser, address, CONTENT[100:], 100).status_code == 404
    assert not _file(server, dataset_id).parent.exists()


def test_a_file_that_was_whole_when_the_server_died_is_found_by_the_next_sweep(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    dataset_id = upload(browser, "a.jsonl", CONTENT)
    row = installation.get(Dataset, UUID(dataset_id))
    assert row is not None
    # Renamed, but the row was never told.
    installation.change(row, status="uploading", received=0)
    clear_away(server.settings)
    assert inspected(server, browser, dataset_id)["report"]["rows"] == 1_000


def test_uploads_that_nobody_continues_are_cleared_away_after_a_day(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    left, fresh = (announce(browser, "a.jsonl", len(CONTENT))["id"] for _ in range(2))
    folders = {dataset_id: _file(server, dataset_id).parent for dataset_id in (left, fresh)}
    for dataset_id in (left, fresh):
        send(browser, f"/api/datasets/{dataset_id}/content", CONTENT[:100])
    stray = server.settings.home / "datasets" / "00000000-0000-4000-8000-000000000000"
    stray.mkdir()
    yesterday = now() - timedelta(days=1, minutes=1)
    for path in (folders[left] / ".data.jsonl.partial", stray):
        os.utime(path, (yesterday.timestamp(), yesterday.timestamp()))
    row = installation.get(Dataset, UUID(left))
    assert row is not None
    installation.change(row, updated_at=yesterday)
    clear_away(server.settings)
    assert browser.get(f"/api/datasets/{left}").status_code == 404
    assert browser.get(f"/api/datasets/{fresh}").status_code == 200
    assert not folders[left].exists()
    assert not stray.exists()
    assert folders[fresh].exists()
    assert "dataset.abandoned" in installation.actions()


def test_folders_of_another_database_are_kept(
    server: Server, installation: Installation, member: User
) -> None:
    stray = server.settings.home / "datasets" / "00000000-0000-4000-8000-000000000000"
    stray.mkdir(parents=True)
    yesterday = (now() - timedelta(days=1, minutes=1)).timestamp()
    os.utime(stray, (yesterday, yesterday))
    owner = server.settings.home / "installation"
    owner.write_text("01234567\n")
    clear_away(server.settings)
    assert stray.exists()
    # As the log says for a database that was moved.
    owner.unlink()
    clear_away(server.settings)
    assert not stray.exists()
