"""Files that break other programs: imported correctly, or reported with their lines; never a server error."""

import codecs
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from tests.server.bringing import on_sqlite, prepare, upload
from tests.server.installation import Browser, Server

LONG_LINE = 50_000_000


def _pair(prompt: str, completion: str = "fine") -> str:
    return json.dumps({"prompt": prompt, "completion": completion}, ensure_ascii=False)


def _zip_bomb() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.csv", b"\0" * 20_000_000)
    return target.getvalue()


def _nested() -> bytes:
    deep = "[" * 50_000 + "]" * 50_000
    shallow = "[" * 400 + "]" * 400
    rows = [
        *(_pair(character) for character in "abcd"),
        f'{{"prompt": {deep}, "completion": "x"}}',
        f'{{"prompt": {shallow}, "completion": "x"}}',
    ]
    return ("\n".join(rows) + "\n").encode()


@dataclass(frozen=True)
class Nasty:
    """A file and what must come of it: rows, examples, lines with problems, or a sentence."""

    filename: str
    content: bytes | Callable[[], bytes]
    rows: int = 0
    examples: int = 0
    problem_lines: tuple[int, ...] = ()
    failed: str | None = None
    first: str | None = None
    note: str | None = None


NASTY = (
    Nasty("bom.jsonl", codecs.BOM_UTF8 + _pair("Größe").encode(), 1, 1, first="Größe"),
    Nasty("bom.csv", codecs.BOM_UTF8 + "prompt,completion\nGröße,x\n".encode(), 1, 1, first="Größe"),
    Nasty("utf16.jsonl", (_pair("日本") + "\n").encode("utf-16"), 1, 1, first="日本", note="UTF-16"),
    Nasty(
        "utf16be.csv",
        codecs.BOM_UTF16_BE + "prompt,completion\n日本,x\n".encode("utf-16-be"),
        1,
        1,
        first="日本",
        note="UTF-16",
    ),
    Nasty(
        "latin.csv",
        "prompt,completion\nÄpfel,x\n".encode("latin-1"),
        1,
        1,
        first="Äpfel",
        note="Windows-1252",
    ),
    Nasty("crlf.jsonl", (_pair("a") + "\r\n" + _pair("b") + "\r\n").encode(), 2, 2, first="a"),
    Nasty("crlf.csv", b"prompt,completion\r\na,x\r\nb,y\r\n", 2, 2, first="a"),
    Nasty(
        "quotes.csv",
        b'prompt,completion\n"one\ntwo ""quoted"", three",x\nplain,y\n',
        2,
        2,
        first='one\ntwo "quoted", three',
    ),
    Nasty(
        "broken.jsonl",
        (_pair("a") + "\n{not json\n" + _pair("b") + "\n").encode(),
        3,
        2,
        (2,),
        first="a",
    ),
    Nasty(
        "bytes.jsonl",
        ("\n".join(_pair(f"ü{number}") for number in range(9)) + "\n").encode() + b'{"prompt": "\xff"}\n',
        10,
        9,
        (10,),
        first="ü0",
    ),
    Nasty(
        "long.jsonl",
        lambda: (
            _pair("a").encode()
            + b'\n{"prompt": "'
            + b"x" * LONG_LINE
            + b'", "completion": "y"}\n'
            + _pair("b").encode()
            + b"\n"
        ),
        3,
        2,
        (2,),
        first="a",
    ),
    Nasty("nested.jsonl", _nested, 6, 4, (5, 6), first="a"),
    Nasty(
        "missing.jsonl",
        (_pair("a") + "\n" + _pair("b") + '\n{"prompt": "alone"}\n' + _pair("c") + "\n").encode(),
        4,
        3,
        (3,),
        first="a",
    ),
    Nasty(
        "mixed.jsonl",
        (
            "\n".join([_pair("a"), _pair("b"), '{"prompt": 7, "completion": "seven"}'])
            + '\n{"prompt": ["x"], "completion": true}\n[1, 2]\n'
        ).encode(),
        5,
        3,
        (4, 5),
        first="a",
    ),
    Nasty("bomb.csv", _zip_bomb, failed="bomb.csv is a zip archive (or an Excel workbook), not .csv data."),
    Nasty("blank.jsonl", b"\n\n\n", failed="blank.jsonl has no rows"),
    Nasty("header.csv", b"prompt,completion\n", failed="header.csv has no rows"),
    Nasty("empty_list.json", b"[]", failed="empty_list.json has no rows"),
    Nasty("mark.txt", codecs.BOM_UTF8, failed="mark.txt contains only a byte order mark."),
    Nasty("fake.parquet", b"this is not parquet at all", failed="fake.parquet is not a parquet file"),
    Nasty("cut.parquet", b"PAR1" + b"\0" * 100, failed="cut.parquet cannot be read as parquet"),
    Nasty("zeros.txt", b"a\0b\n" * 20, failed="zeros.txt contains NUL bytes"),
    Nasty(
        "nul.jsonl",
        b'{"prompt": "a\\u0000b", "completion": "c", "\\u0000": NaN}\n' * 3
        + b'{"prompt": "x", "completion": "c\\ud800d"}\n',
        4,
        3,
        (4,),
        first="a\N{SYMBOL FOR NULL}b",
    ),
)


def _check_page(browser: Browser, address: str, nasty: Nasty) -> None:
    answer = browser.get(f"{address}/preview")
    assert answer.status_code == 200, answer.text
    rows = answer.json()["items"]
    if nasty.first is not None:
        assert rows[0]["raw"]["prompt"] == nasty.first
    by_line = {row["line"]: row for row in rows}
    for line in nasty.problem_lines:
        assert by_line[line]["problem"], f"{nasty.filename}, line {line}"


# What is hard for a database: NUL, halves of characters, letters of all kinds, long lists.
FOR_DATABASES = {"nul.jsonl", "utf16.jsonl", "latin.csv", "mixed.jsonl", "bomb.csv"}


@pytest.mark.long
def test_nasty_files_are_imported_correctly_or_reported_with_their_lines(
    server: Server, member: User, kind: str
) -> None:
    browser = server.signed_in(member)
    ids = {}
    for nasty in NASTY:
        if kind != "sqlite" and nasty.filename not in FOR_DATABASES:
            continue
        content = nasty.content if isinstance(nasty.content, bytes) else nasty.content()
        ids[nasty] = upload(browser, nasty.filename, content)
    prepare(server.settings)
    for nasty, dataset_id in ids.items():
        address = f"/api/datasets/{dataset_id}"
        dataset: dict[str, Any] = browser.get(address).json()
        if nasty.failed is not None:
            assert (dataset["status"], dataset["report"]) == ("failed", None), dataset
            assert dataset["problem"].startswith(nasty.failed), dataset["problem"]
            answer = browser.get(f"{address}/preview")
            assert (answer.status_code, answer.json()["code"]) == (422, "cannot_be_read")
            continue
        report = dataset["report"]
        assert dataset["status"] == "ready", (nasty.filename, dataset["problem"])
        assert (report["rows"], report["examples"]) == (nasty.rows, nasty.examples), nasty.filename
        problems = browser.get(f"{address}/problems").json()["items"]
        assert tuple(each["line"] for each in problems) == nasty.problem_lines, (nasty.filename, problems)
        assert all(each["reason"] for each in problems)
        if nasty.note is not None:
            assert any(nasty.note in note for note in report["notes"]), report["notes"]
        _check_page(browser, address, nasty)


NAMES = {
    "../../../etc/passwd.csv": "passwd.csv",
    "..\\..\\windows\\win.csv": "win.csv",
    "/etc/shadow.csv": "shadow.csv",
    "ünï—код 日本 🌸.csv": "ünï—код 日本 🌸.csv",
    "a\x00b\n.csv": "ab.csv",
    "evil\u202evsc.csv": "evilvsc.csv",
    "CON.csv": "CON.csv",
    "..csv": "..csv",
    "x" * 900 + ".csv": "x" * 180 + "…" + "x" * 15 + ".csv",
}


@pytest.mark.long
def test_names_are_only_shown_and_lead_nowhere(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    ids = {name: upload(browser, name, b"prompt,completion\na,b\n") for name in NAMES}
    shown = {name: browser.get(f"/api/datasets/{ids[name]}").json()["filename"] for name in NAMES}
    assert shown == NAMES
    home = server.settings.home
    found = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert found - {"secret.key"} == {f"datasets/{dataset_id}/data.csv" for dataset_id in ids.values()}


@on_sqlite
def test_other_endings_are_refused_with_those_that_are_read(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    for filename in ("data.rar", "data", "data.gz", "model.bin", "csv"):
        answer = browser.post("/api/datasets", json={"filename": filename, "size": 10})
        assert answer.status_code == 422
        assert ".jsonl .json .csv .tsv .txt .parquet" in answer.json()["detail"]


@on_sqlite
def test_an_empty_file_is_refused_in_a_sentence(server: Server, member: User) -> None:
    answer = server.signed_in(member).post("/api/datasets", json={"filename": "nothing.csv", "size": 0})
    assert (answer.status_code, answer.json()["detail"]) == (422, "nothing.csv is empty.")


@on_sqlite
def test_a_page_of_enormous_rows_is_shown_shortened(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    rows = [_pair("x" * 1_000_000) for _ in range(5)] + [
        json.dumps({"prompt": "a", "many": list(range(9999))})
    ]
    dataset_id = upload(browser, "wide.jsonl", "\n".join(rows).encode())
    answer = browser.get(f"/api/datasets/{dataset_id}/preview")
    assert len(answer.content) < 500_000
    shown = answer.json()["items"]
    assert [row["cut"] for row in shown] == [True] * 6
    assert len(shown[0]["raw"]["prompt"]) == 20_001
