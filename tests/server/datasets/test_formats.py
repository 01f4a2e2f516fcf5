"""Every kind of file and every format, brought over HTTP: statistics, preview, problems, conversion."""

import io
import json
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from gpubloom.server.accounts.tables import User
from tests.server.bringing import announce, brought, inspected, on_sqlite, prepare, send, upload
from tests.server.installation import Installation, Server

PAIRS = [{"prompt": f"What is {number}?", "completion": f"It is {number}."} for number in range(30)]


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv(rows: list[dict[str, str]]) -> bytes:
    names = list(rows[0])
    return ("\n".join([",".join(names), *(",".join(row[name] for name in names) for row in rows)])).encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), target)
    return target.getvalue()


FILES = {
    "pairs.jsonl": (_lines(PAIRS), "prompt_completion"),
    "pairs.json": (json.dumps(PAIRS).encode(), "prompt_completion"),
    "pairs.csv": (_csv(PAIRS), "prompt_completion"),
    "pairs.tsv": (_csv(PAIRS).replace(b",", b"\t"), "prompt_completion"),
    "pairs.parquet": (_parquet(PAIRS), "prompt_completion"),
    "texts.txt": (b"".join(b"This is line %d.\n" % number for number in range(30)), "text"),
    "alpaca.jsonl": (
        _lines([{"instruction": "Add.", "input": str(number), "output": "ok"} for number in range(30)]),
        "alpaca",
    ),
    "sharegpt.jsonl": (
        _lines(
            [
                {"conversations": [{"from": "human", "value": str(n)}, {"from": "gpt", "value": "yes"}]}
                for n in range(30)
            ]
        ),
        "sharegpt",
    ),
    "messages.jsonl": (
        _lines(
            [
                {"messages": [{"role": "user", "content": str(n)}, {"role": "assistant", "content": "yes"}]}
                for n in range(30)
            ]
        ),
        "messages",
    ),
}


@pytest.mark.long
@on_sqlite
def test_every_kind_of_file_is_recognised_counted_and_shown(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    ids = {filename: upload(browser, filename, content) for filename, (content, _) in FILES.items()}
    prepare(server.settings)
    for filename, (_, format_) in FILES.items():
        address = f"/api/datasets/{ids[filename]}"
        dataset = browser.get(address).json()
        report = dataset["report"]
        assert dataset["status"] == "ready", dataset["problem"]
        assert (report["rows"], report["examples"]) == (30, 30), filename
        assert report["mapping"]["format"] == format_
        assert report["problems"]["rows_refused"] == 0
        page = browser.get(f"{address}/preview", params={"offset": 20, "limit": 20}).json()
        assert page["total"] == 30
        assert [row["number"] for row in page["items"]] == list(range(21, 31))
        assert any(piece["trained"] for piece in page["items"][0]["pieces"])
        records = [json.loads(line) for line in browser.get(f"{address}/converted").text.splitlines()]
        assert len(records) == 30
        assert set(records[0]) == ({"text"} if format_ == "text" else {"messages"})


@on_sqlite
def test_a_preview_is_there_before_the_inspection(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset_id = upload(browser, "pairs.jsonl", _lines(PAIRS))
    page = browser.get(f"/api/datasets/{dataset_id}/preview").json()
    assert len(page["items"]) == 20
    assert page["items"][0]["raw"] == PAIRS[0]
    assert page["total"] is None
    assert "prompt" in page["mapping_reason"]


def test_unknown_columns_are_named_by_hand_and_inspected_again(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    rows = [{"q1": str(number), "zz": "answer"} for number in range(5)]
    dataset = brought(server, browser, "odd.jsonl", _lines(rows))
    assert (dataset["status"], dataset["report"]["mapping"], dataset["report"]["examples"]) == (
        "ready",
        None,
        0,
    )
    address = f"/api/datasets/{dataset['id']}"
    assert browser.get(f"{address}/converted").json()["code"] == "dataset_without_examples"
    wrong = browser.patch(address, json={"format": "alpaca", "columns": {"prompt": "q1"}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_input")
    changed = browser.patch(address, json={"columns": {"prompt": "q1", "completion": "zz"}})
    assert (changed.status_code, changed.json()["status"]) == (200, "inspecting")
    assert changed.json()["format"] == "prompt_completion"
    assert inspected(server, browser, dataset["id"])["report"]["examples"] == 5
    assert browser.patch(address, json={"format": None}).json()["columns"] == {}
    assert "dataset.changed" in installation.actions()


def test_another_name_inspects_nothing_again(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset = brought(server, browser, "pairs.jsonl", _lines(PAIRS))
    changed = browser.patch(f"/api/datasets/{dataset['id']}", json={"name": "My pairs"}).json()
    assert (changed["name"], changed["status"]) == ("My pairs", "ready")
    assert changed["report"] == dataset["report"]


def test_problems_come_in_pages_with_lines_and_reasons(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    rows = [*PAIRS * 8, *({"prompt": "no answer"} for _ in range(250))]
    dataset = brought(server, browser, "half.jsonl", _lines(rows))
    assert dataset["report"]["problems"]["rows_refused"] == 250
    assert len(dataset["report"]["problems"]["first"]) == 20
    page = browser.get(f"/api/datasets/{dataset['id']}/problems", params={"offset": 245, "limit": 10}).json()
    assert (page["total"], page["kept"], len(page["items"])) == (250, 250, 5)
    assert page["items"][-1] == {
        "row": 490,
        "line": 490,
        "reason": "has no 'completion'",
        "fatal": True,
        "code": None,
    }


@on_sqlite
def test_duplicates_are_reported_by_row(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset = brought(server, browser, "twice.jsonl", _lines([*PAIRS, PAIRS[3], PAIRS[3]]))
    assert dataset["report"]["duplicates"] == {"repeated": 2, "groups": 1, "first": [[4, 31, 32]]}


def test_datasets_are_listed_searched_and_deleted_with_their_files(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    first = brought(server, browser, "first.jsonl", _lines(PAIRS), name="Alpha")
    announce(browser, "second.csv", 10, name="Beta")
    listed = browser.get("/api/datasets").json()
    assert ([item["name"] for item in listed["items"]], listed["total"]) == (["Beta", "Alpha"], 2)
    assert browser.get("/api/datasets", params={"search": "alph"}).json()["total"] == 1
    folder = server.settings.home / "datasets" / first["id"]
    assert (folder / "data.jsonl").is_file()
    assert browser.delete(f"/api/datasets/{first['id']}").status_code == 204
    assert not folder.exists()
    assert browser.get(f"/api/datasets/{first['id']}").status_code == 404
    assert installation.actions() == ["dataset.created", "dataset.created", "dataset.deleted"]


def test_a_dataset_that_something_needs_is_not_deleted(server: Server, member: User) -> None:
    async def needs(session: object, kind: str, row_id: object) -> str | None:
        return "The job X trains on it." if kind == "dataset" else None

    server.app.state.uses = (needs,)
    browser = server.signed_in(member)
    dataset = announce(browser, "a.csv", 10)
    answer = browser.delete(f"/api/datasets/{dataset['id']}")
    assert (answer.status_code, answer.json()["code"]) == (409, "dataset_in_use")
    assert "The job X trains on it." in answer.json()["detail"]


def test_tokens_with_the_scope_read_look_and_do_not_touch(server: Server, member: User) -> None:
    reader = server.program(member, "read")
    assert reader.get("/api/datasets").status_code == 200
    assert reader.post("/api/datasets", json={"filename": "a.csv", "size": 1}).status_code == 403
    writer = server.program(member, "read", "write")
    dataset = announce(writer, "a.csv", 4)
    address = f"/api/datasets/{dataset['id']}/content"
    assert send(reader, address, b"abcd").status_code == 403
    assert send(writer, address, b"abcd").status_code == 204
