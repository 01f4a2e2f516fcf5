"""Datasets by name, from a server on the loopback address that cuts, lies and changes its mind."""

import gzip
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpubloom.datasets import downloading
from gpubloom.datasets.downloading import FetchProblem, Remote, download
from gpubloom.datasets.named import cache_of, known, named_datasets, prepare_named
from tests.errors import raises
from tests.small_disk import small_disk

TEXT = bytes(range(256)) * 4_000
SHA = hashlib.sha256(TEXT).hexdigest()


class Source:
    """What lies at /file, and how the server behaves."""

    def __init__(self) -> None:
        self.content, self.tag = TEXT, '"one"'
        self.cut_after: list[int] = []
        self.statuses: list[int] = []
        self.ranges: list[str | None] = []
        self.tells_length = True
        self.wrong_part = False


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def address(source: Source) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            self.close_connection = True
            source.ranges.append(self.headers.get("Range"))
            if source.statuses and (status := source.statuses.pop(0)) != 200:
                self.send_error(status)
                return
            start, asked = 0, self.headers.get("Range")
            if asked and self.headers.get("If-Range", source.tag) == source.tag:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
            total = len(source.content)
            if start >= total:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{total}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = source.content[start:]
            self.send_response(206 if start else 200)
            if start:
                told = 0 if source.wrong_part else start
                self.send_header("Content-Range", f"bytes {told}-{total - 1}/{total}")
            if source.tag:
                self.send_header("ETag", source.tag)
            if source.tells_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: source.cut_after.pop(0)] if source.cut_after else body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/file"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "_PAUSES", (0.0,) * 4)


def own_table(monkeypatch: pytest.MonkeyPatch, folder: Path, address: str, **file: Any) -> None:
    """A dataset `mine` of one file; BLOOM_HOME is `folder`/home."""
    rows = [{"name": "mine", "files": [{"name": "input.txt", "address": address, **file}]}]
    (folder / "table.json").write_text(json.dumps(rows))
    monkeypatch.setenv("BLOOM_DATASETS", str(folder / "table.json"))
    monkeypatch.setenv("BLOOM_HOME", str(folder / "home"))


def test_the_table_names_what_people_know_and_says_what_was_checked() -> None:
    every = named_datasets()
    assert {"shakespeare", "tinystories", "openwebtext", "wikitext-2", "cifar10"} <= set(every)
    assert all(file.sha256 for file in every["shakespeare"].files)
    assert every["shakespeare"].files[0].bytes == 1_115_394
    assert not any(file.sha256 for file in every["tinystories"].files)
    assert all(dataset.licence and dataset.about for dataset in every.values())


def test_a_dataset_is_fetched_once_and_then_copied(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table(monkeypatch, tmp_path, address, sha256=SHA.upper(), bytes=len(TEXT))
    seen: list[tuple[int, int | None]] = []
    first = prepare_named("mine", tmp_path / "job-1" / "data", progress=lambda *so_far: seen.append(so_far))
    assert first.files == (tmp_path / "job-1" / "data" / "mine" / "input.txt",)
    assert first.files[0].read_bytes() == TEXT
    assert seen[-1] == (len(TEXT), len(TEXT))
    assert first.notes == ()
    # What a job does to its copy stays in its folder.
    first.files[0].write_bytes(b"spoiled")
    second = prepare_named("mine", tmp_path / "job-2" / "data")
    assert second.files[0].read_bytes() == TEXT
    assert len(source.ranges) == 1


def nobody_resolves(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Names are not resolved; returns those that were asked for, also by threads of other tests."""
    asked: list[str] = []

    def fails(host: str, *rest: object, **more: object) -> None:
        asked.append(host)
        raise socket.gaierror(number, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    return asked


def test_a_host_that_does_not_exist_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_table(monkeypatch, tmp_path, "https://no-such-host.example/file")
    asked = nobody_resolves(monkeypatch, socket.EAI_NONAME)
    with raises(FetchProblem, code="host_not_found", match="https://no-such-host.example/file"):
        prepare_named("mine", tmp_path / "data")
    assert asked.count("no-such-host.example") == 1
    assert capsys.readouterr().err == ""


def test_a_wait_for_the_network_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_table(monkeypatch, tmp_path, "https://host.example/file")
    monkeypatch.setattr(downloading, "_PAUSES", (0.0, 0.25, 0.5))
    asked = nobody_resolves(monkeypatch, socket.EAI_AGAIN)
    with raises(FetchProblem, code="no_network"):
        prepare_named("mine", tmp_path / "data")
    assert asked.count("host.example") == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "https://host.example/file" in told
    assert "0.75 s" in told


def test_a_download_that_breaks_goes_on_where_it_broke(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table(monkeypatch, tmp_path, address)
    source.cut_after = [300_000, 0, 1, 500_000]
    prepared = prepare_named("mine", tmp_path)
    assert prepared.files[0].read_bytes() == TEXT
    assert source.ranges == [None, "bytes=300000-", "bytes=300000-", "bytes=300001-", "bytes=800001-"]


def test_what_arrived_before_a_long_outage_is_used_afterwards(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table(monkeypatch, tmp_path, address, sha256=SHA)
    source.cut_after, source.statuses = [400_000], [200, *[503] * 4]
    with raises(FetchProblem, code="no_network", match="503") as refused:
        prepare_named("mine", tmp_path)
    assert refused.value.code == "no_network"
    assert not (tmp_path / "mine").exists()
    prepare_named("mine", tmp_path)
    assert source.ranges[-1] == "bytes=400000-"
    assert (tmp_path / "mine" / "input.txt").read_bytes() == TEXT


def test_a_file_that_changed_while_it_was_fetched_begins_anew(
    source: Source, address: str, tmp_path: Path
) -> None:
    source.cut_after = [400_000] + [0] * 4
    with pytest.raises(FetchProblem):
        download(Remote(address), tmp_path / "part")
    source.content, source.tag = TEXT[::-1], '"two"'
    assert download(Remote(address), tmp_path / "part") == (hashlib.sha256(TEXT[::-1]).hexdigest(), len(TEXT))
    # Without a tag nobody can tell, so nothing is continued.
    source.content, source.tag, source.cut_after = TEXT, "", [400_000]
    assert download(Remote(address), tmp_path / "other")[0] == SHA
    assert source.ranges[-2:] == [None, None]


def test_a_server_that_sends_another_part_is_not_believed(
    source: Source, address: str, tmp_path: Path
) -> None:
    source.cut_after, source.wrong_part = [400_000], True
    assert download(Remote(address), tmp_path / "part")[0] == SHA
    assert source.ranges == [None, "bytes=400000-", None]


def test_a_wrong_file_is_refused_and_not_kept(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table(monkeypatch, tmp_path, address, sha256=SHA)
    source.content = b"an error page that looks like a file"
    with raises(FetchProblem, code="damaged") as refused:
        prepare_named("mine", tmp_path)
    assert refused.value.code == "damaged"
    assert not (tmp_path / "mine").exists()
    assert not [path for path in cache_of("mine").iterdir() if path.name not in {".lock"}]


def test_what_nobody_checked_is_believed_once_and_compared_from_then_on(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table(monkeypatch, tmp_path, address)
    first = prepare_named("mine", tmp_path / "a")
    assert SHA in first.notes[0]
    assert "No checksum is known for mine/input.txt" in first.notes[0]
    (cache_of("mine") / "input.txt").unlink()
    source.content, source.tag = b"something else", '"two"'
    with raises(FetchProblem, code="damaged", match="--accept-change"):
        prepare_named("mine", tmp_path / "b")
    changed = prepare_named("mine", tmp_path / "b", accept_change=True)
    assert changed.files[0].read_bytes() == b"something else"


def test_a_packed_file_arrives_unpacked(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.content = gzip.compress(TEXT)
    own_table(monkeypatch, tmp_path, address, packed="gzip")
    assert prepare_named("mine", tmp_path).files[0].read_bytes() == TEXT
    source.content, source.tag = source.content[:-40], '"two"'
    (cache_of("mine") / "input.txt").unlink()
    with raises(FetchProblem, code="damaged"):
        prepare_named("mine", tmp_path / "again", accept_change=True)


def test_a_disk_that_is_too_small_is_named_before_and_while_it_fills(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", "600k") as disk:
        monkeypatch.setenv("BLOOM_HOME", str(disk))
        own_table(monkeypatch, tmp_path, address)
        monkeypatch.setenv("BLOOM_HOME", str(disk))
        with raises(FetchProblem, code="disk_full", match=r"0\.001 GB") as refused:
            prepare_named("mine", tmp_path / "job")
        assert refused.value.code == "disk_full"
        source.tells_length = False
        with raises(FetchProblem, code="disk_full") as refused:
            prepare_named("mine", tmp_path / "job")
        assert refused.value.code == "disk_full"
        assert sum(path.stat().st_size for path in disk.rglob("*") if path.is_file()) < 1_000
    assert not (tmp_path / "job").exists()


def test_what_is_not_there_is_said(source: Source, address: str, tmp_path: Path) -> None:
    source.statuses = [404, 403]
    with raises(FetchProblem, code="not_found"):
        download(Remote(address), tmp_path / "part")
    with raises(FetchProblem, code="refused", match="403"):
        download(Remote(address), tmp_path / "part")
    with raises(FetchProblem, code="not_found", match="'shakespear'.*cifar10"):
        known("shakespear")


@pytest.mark.parametrize(
    "row",
    [
        {"name": "../up", "files": [{"name": "a", "address": "https://example.org/a"}]},
        {"name": "up", "files": [{"name": "../a", "address": "https://example.org/a"}]},
        {"name": "up", "files": [{"name": "a", "address": "file:///etc/passwd"}]},
        {"name": "up", "files": []},
        {"title": "nameless"},
    ],
)
def test_a_table_of_ones_own_cannot_point_outside(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps([row]))
    with pytest.raises(FetchProblem):
        named_datasets(tmp_path / "table.json")


def test_the_command_fetches_by_name(
    source: Source, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table(monkeypatch, tmp_path, address, sha256=SHA)
    done = subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", "datasets", "pull", "mine", "--to", "data"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "data" / "mine")
    assert (tmp_path / "data" / "mine" / "input.txt").read_bytes() == TEXT
