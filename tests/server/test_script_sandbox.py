"""A script or notebook that takes over its reader, or keeps it busy, gets nothing and stops nobody."""

import contextlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from gpubloom.sandbox.landlock import landlock_version
from gpubloom.server.scripts import reading
from tests.server.bringing import brought, on_sqlite
from tests.server.installation import Browser, Installation, Server
from tests.waiting import wait_until

HOSTILE = "tests.server.hostile_script_reader"


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        monkeypatch.setenv("HF_HUB_TEST_PORT", str(listening.getsockname()[1]))
        monkeypatch.setattr(reading, "MODULE", HOSTILE)
        yield


@pytest.fixture
def bo(server: Server, installation: Installation) -> Browser:
    return server.signed_in(installation.add_user("Bo"))


@pytest.fixture(scope="module")
def shared(sqlite_server: Server) -> Browser:
    return sqlite_server.stranger


def code_of(browser: Browser, script: str) -> str:
    answer = browser.post("/api/requirements", json={"script": script})
    assert answer.status_code == 422, answer.text
    return str(answer.json()["errors"][0]["code"])


def notebook(source: str) -> str:
    cell = {"cell_type": "code", "metadata": {}, "source": source}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]})


def readers_now() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if HOSTILE in child.cmdline():
                found.append(child)
    return found


@on_sqlite
@pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
@pytest.mark.parametrize("path", ["/api/requirements", "/api/ml-jobs/quote"])
def test_a_reader_that_was_taken_over_reaches_nothing(
    path: str,
    server: Server,
    installation: Installation,
    ada: Browser,
    bo: Browser,
    hostile: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("secret.key", "bloom.db"):
        if not (installation.home / name).exists():
            (installation.home / name).write_bytes(bytes(32))
    theirs = brought(server, bo, "theirs.jsonl", b'{"prompt": "a", "completion": "b"}\n')
    file = installation.home / "datasets" / theirs["id"] / "data.jsonl"
    monkeypatch.setenv("HF_HUB_TEST_OTHER", str(file))
    field = "script" if path == "/api/requirements" else "code"
    refusal = ada.post(path, json={field: "try_all()"}).json()["errors"][0]
    assert refusal["code"] == "taken_over", refusal
    found = json.loads(refusal["message"])
    assert [name for name, outcome in found.items() if outcome == "done"] == [], found
    assert file.read_bytes()


@on_sqlite
def test_a_reader_never_sees_scripts_of_two_people(ada: Browser, bo: Browser, hostile: None) -> None:
    assert ada.post("/api/requirements", json={"script": "key = 'of Ada'"}).status_code == 200
    for browser, expected in ((ada, ["key = 'of Ada'"]), (bo, [])):
        refusal = browser.post("/api/requirements", json={"script": "seen()"}).json()["errors"][0]
        assert json.loads(refusal["message"]) == expected


@on_sqlite
@pytest.mark.parametrize("script", ["crash()", "flood()", "nested()"])
def test_a_reader_that_fails_ends_alone(script: str, ada: Browser, hostile: None) -> None:
    assert code_of(ada, script) == "script_not_read"
    assert ada.post("/api/requirements", json={"script": "x = 1"}).status_code == 200


@on_sqlite
def test_a_person_whose_scripts_take_for_ever_leaves_readers_for_others(
    ada: Browser, bo: Browser, hostile: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SECONDS", 60.0)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(code_of, ada, "endless()") for _ in range(4)]
        try:
            wait_until(lambda: len(readers_now()) >= 2, "two of them are being read")
            assert bo.post("/api/requirements", json={"script": "x = 1"}).status_code == 200
            assert not any(answer.done() for answer in waiting)
        finally:
            while not all(answer.done() for answer in waiting):
                for child in readers_now():
                    with contextlib.suppress(psutil.Error):
                        child.kill()
        assert {answer.result() for answer in waiting} == {"script_not_read"}


@pytest.mark.long
@on_sqlite
def test_a_notebook_that_takes_too_long_is_stopped_and_others_go_on(
    ada: Browser, bo: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python's parser takes minutes for it, and would hold the interpreter all the while.
    hostile_text = notebook('x = f"' + "{a}" * 300_000 + '"')
    assert bo.post("/api/requirements", json={"script": "x = 1"}).status_code == 200
    monkeypatch.setattr(reading, "SECONDS", 3.0)
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(code_of, ada, hostile_text)
        while not stopped.done():
            assert bo.get("/api/me").status_code == 200
        assert stopped.result() == "script_took_too_long"


@on_sqlite
def test_a_script_that_needs_much_memory_is_refused(ada: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MEMORY_BYTES", 96 << 20)
    text = '{"nbformat": 4, "nbformat_minor": 5, "cells": [], "metadata": {"a": [' + "{}," * 300_000 + "{}]}}"
    answer = ada.post("/api/scripts/from-notebook", json={"notebook": text})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["code"] == "script_too_complex"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("x = " + "(" * 60_000, "not_python"),
        ("x = " + "-" * 100_000 + "1", "script_too_complex"),
        ("x = a" + ".b" * 60_000, "script_too_complex"),
        ("x = 1" + "+1" * 60_000, "script_too_complex"),
        ("batch_size = " + "9" * 120_000, "not_python"),
        ('{"cells": ' + "[" * 400_000, "not_json"),
        (notebook("x = 1").replace("{}", '{"a":' * 900 + "1" + "}" * 900), "not_json"),
    ],
    ids=["parentheses", "signs", "attributes", "sums", "digits", "json", "metadata"],
)  # fmt: skip
def test_nested_and_huge_texts_are_refused(script: str, code: str, shared: Browser) -> None:
    assert code_of(shared, script) == code


@pytest.mark.parametrize("value", ["2**10**9", "9**9**9**9", "0x" + "f" * 100_000, "10**64**64"])
def test_a_power_or_a_huge_number_is_not_computed(value: str, shared: Browser) -> None:
    answer = shared.post("/api/requirements", json={"script": f"batch_size = {value}\n"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["batch"] is None


def test_a_conversion_whose_result_is_too_long_is_refused(shared: Browser) -> None:
    answer = shared.post("/api/scripts/to-notebook", json={"script": "# %%\n" + "x\n" * 200_000})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["code"] == "script_too_large"
