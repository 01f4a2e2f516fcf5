"""Documents over HTTP: from an upload to rows with their source, and one reason for each that gives none."""

import json
import os
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker import documents as parsing
from tests.documents import encrypt_pdf, make_docx, make_pdf, make_zip
from tests.server.bringing import inspected, on_sqlite, prepare, send
from tests.server.installation import Browser, Installation, Server

SENTENCE = "The valve of pump {n} opens to the left, and it closes by itself after {n} minutes."
FOLDER = {
    "manual/guide.pdf": make_pdf(*([SENTENCE.format(n=n)] for n in range(1, 4))),
    "manual/notes.md": b"# Pumps\n\nUse warm water.\n",
    "manual/parts.docx": make_docx((1, "Parts"), (0, "A seal is made of rubber.")),
    "manual/page.html": b"<h1>Tools</h1><p>A brush cleans a seal.</p>",
    "manual/secret.pdf": encrypt_pdf(make_pdf(["Secret."]), "open sesame"),
    "manual/table.xlsx": b"x",
}


def upload_documents(browser: Browser, filename: str, content: bytes, **more: Any) -> str:
    answer = browser.post(
        "/api/datasets/from-documents", json={"filename": filename, "size": len(content), **more}
    )
    assert answer.status_code == 201, answer.text
    dataset_id: str = answer.json()["id"]
    assert send(browser, f"/api/datasets/{dataset_id}/content", content).status_code == 204
    return dataset_id


@pytest.mark.long
def test_a_folder_becomes_rows_that_know_their_source(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    dataset = inspected(server, browser, upload_documents(browser, "manual.zip", make_zip(FOLDER)))
    assert (dataset["status"], dataset["source"], dataset["name"]) == ("ready", "documents", "manual")
    assert dataset["report"]["mapping"] == {"format": "text", "columns": {"text": "text"}}
    made = dataset["documents"]
    assert (made["files"], made["problems"], made["pages"], made["passages"]) == (6, 2, 3, 4)
    rows = browser.get(f"/api/datasets/{dataset['id']}/preview").json()["items"]
    assert rows[0]["source"] == {
        "file": "manual/guide.pdf",
        "passage": 1,
        "page": 1,
        "last_page": 3,
        "heading": None,
        "text": None,
    }
    assert rows[1]["source"]["heading"] == "Pumps"
    assert rows[0]["pieces"][0]["trained"]
    listed = browser.get(f"/api/datasets/{dataset['id']}/documents").json()
    assert [(one["file"], one["code"]) for one in listed["items"][:2]] == [
        ("manual/secret.pdf", "document_encrypted"),
        ("manual/table.xlsx", "document_type_unsupported"),
    ]
    assert listed["total"] == 6
    text = (server.settings.home / "datasets" / dataset["id"] / "text.txt").read_text()
    assert "Use warm water." in text


def test_passages_are_cut_again_to_another_length(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    content = ("\n\n".join(SENTENCE.format(n=n) for n in range(40))).encode()
    dataset_id = upload_documents(browser, "guide.txt", content)
    before = inspected(server, browser, dataset_id)["documents"]["passages"]
    answer = browser.post(f"/api/datasets/{dataset_id}/passages", json={"passage_characters": 200})
    assert (answer.status_code, answer.json()["status"]) == (200, "parsing")
    after = inspected(server, browser, dataset_id)
    assert after["documents"]["passages"] == after["report"]["rows"] > 2 * before
    refused = browser.post(f"/api/datasets/{dataset_id}/passages", json={"passage_characters": 10})
    assert refused.status_code == 422


def test_an_upload_without_any_text_fails_with_its_reasons(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    content = make_zip({"a.pdf": make_pdf([]), "b.docx": b"x"})
    dataset = inspected(server, browser, upload_documents(browser, "scans.zip", content))
    assert dataset["status"] == "failed"
    assert "a.pdf has no text" in dataset["problem"]
    assert browser.get(f"/api/datasets/{dataset['id']}/documents").json()["total"] == 2
    broken = inspected(server, browser, upload_documents(browser, "broken.zip", b"no archive"))
    assert broken["problem"].startswith("broken.zip is not a readable .zip archive")


@on_sqlite
def test_other_files_and_empty_ones_are_refused_at_once(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    for filename, size, code in (("a.exe", 5, "wrong_suffix"), ("a.pdf", 0, "data_empty")):
        answer = browser.post("/api/datasets/from-documents", json={"filename": filename, "size": size})
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, code)


@pytest.mark.long
@on_sqlite
def test_a_document_that_ends_its_reader_costs_no_other_document(
    server: Server, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setattr(parsing, "_MODULE", "tests.server.fatal_parser")
    browser = server.signed_in(member)
    files = {"a.txt": b"First.", "fatal.txt": b"Ends the process.", "slow.txt": b"Sleeps.", "z.txt": b"Last."}
    monkeypatch.setattr(parsing, "_SECONDS", 5.0)
    dataset = inspected(server, browser, upload_documents(browser, "all.zip", make_zip(files)))
    listed = browser.get(f"/api/datasets/{dataset['id']}/documents").json()["items"]
    assert {one["file"]: one["code"] for one in listed} == {
        "fatal.txt": "document_broken",
        "slow.txt": "document_too_slow",
        "a.txt": None,
        "z.txt": None,
    }
    data = server.settings.home / "datasets" / dataset["id"] / "data.jsonl"
    assert [json.loads(line)["text"] for line in data.read_text().splitlines()] == ["First.", "Last."]


_ONE = {"file": "a.md", "size": 1, "pages": None, "passages": 1, "characters": 1, "notes": [], "code": None}


@on_sqlite
@pytest.mark.parametrize(
    "lies",
    [
        {"list": {"documents": 10**12}},
        {"list": {"documents": True}},
        {"list": [1]},
        {"list": {"documents": 1}, "parse": {**_ONE, "problem": None, "bytes": -1}, "name": {}},
        {"list": {"documents": 1}, "parse": {**_ONE, "problem": "x" * 9_999, "bytes": 1}, "name": {}},
    ],
    ids=["many documents", "no number", "no object", "rows before the file", "long sentence"],
)
def test_a_parser_that_was_taken_over_is_not_believed(
    server: Server, member: User, monkeypatch: pytest.MonkeyPatch, lies: dict[str, Any]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setenv("HF_HUB_TEST_LIES", json.dumps(lies))
    monkeypatch.setattr(parsing, "_MODULE", "tests.server.lying_parser")
    browser = server.signed_in(member)
    dataset = inspected(server, browser, upload_documents(browser, "a.md", b"x"))
    assert dataset["status"] == "failed"
    assert "unreadable answer" in dataset["problem"]


@on_sqlite
def test_text_that_does_not_fit_into_the_quota_is_not_kept(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    content = b"A sentence about water in pumps. " * 3_000
    dataset_id = upload_documents(browser, "large.zip", make_zip({"large.txt": content}))
    # Room for the packed text, and not for what is in it.
    prepare(server.settings.model_copy(update={"user_quota_gb": 50_000 / 1e9}))
    dataset = browser.get(f"/api/datasets/{dataset_id}").json()
    assert dataset["status"] == "failed"
    assert "does not fit into your storage" in dataset["problem"]
    folder = server.settings.home / "datasets" / dataset_id
    assert sum(path.stat().st_size for path in folder.iterdir()) < 50_000


@on_sqlite
def test_an_upload_that_takes_too_long_as_a_whole_is_ended(
    server: Server, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "_LEAST_SECONDS", -1.0)
    browser = server.signed_in(member)
    files = {"a.txt": b"First.", "b.txt": b"Second."}
    dataset = inspected(server, browser, upload_documents(browser, "all.zip", make_zip(files)))
    assert dataset["status"] == "failed"
    listed = browser.get(f"/api/datasets/{dataset['id']}/documents").json()["items"]
    assert {one["file"]: one["code"] for one in listed} == dict.fromkeys(files, "document_too_slow")


def test_a_model_is_trained_from_scratch_on_the_text_of_documents(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    content = ("\n\n".join(SENTENCE.format(n=n) for n in range(400))).encode()
    dataset = inspected(server, browser, upload_documents(browser, "guide.txt", content))
    body = {"name": "Pumps", "modelArchitecture": "transformer", "modelSize": 0.001}
    path = f"dataset://{dataset['id']}"
    project = browser.post("/api/projects", json={**body, "trainingDataPath": path}).json()
    job = browser.post("/api/jobs", json={"project_id": project["id"]})
    assert job.status_code == 201, job.text
    assert (job.json()["dataset_id"], job.json()["config"]["data"]["kind"]) == (dataset["id"], "text")
    (stored,) = installation.all(TrainingJob)
    text = server.settings.home / "datasets" / dataset["id"] / "text.txt"
    assert stored.config["data"]["train_path"] == str(text)
    assert text.read_text().count("opens to the left") == 400


def test_documents_of_another_tenant_are_not_found(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    mine = inspected(server, browser, upload_documents(browser, "notes.md", b"# T\n\nMine alone."))["id"]
    other = server.signed_in(installation.add_user("Eve"))
    assert other.get(f"/api/datasets/{mine}/documents").status_code == 404
    body = {"passage_characters": 500}
    assert other.post(f"/api/datasets/{mine}/passages", json=body).status_code == 404
    assert browser.get(f"/api/datasets/{mine}").json()["status"] == "ready"
    plain = browser.post("/api/datasets", json={"filename": "a.jsonl", "size": 5}).json()["id"]
    answer = browser.post(f"/api/datasets/{plain}/passages", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "not_documents")
