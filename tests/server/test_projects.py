"""Projects: what a person says about a model, and that nobody else sees it."""

import json
import re
from datetime import timedelta

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.projects.tables import Project
from tests.server.installation import Installation, Server

BODY = {"name": "Bloom", "modelArchitecture": "transformer", "modelSize": 1.5}


def test_a_project_is_created_read_changed_and_deleted(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    created = browser.post("/api/projects", json={**BODY, "name": "  Bloom  ", "description": " "})
    assert created.status_code == 201
    project = created.json()
    assert project | BODY == project
    assert project["description"] is None
    address = f"/api/projects/{project['id']}"
    assert browser.get(address).json() == project
    changed = browser.put(address, json={**BODY, "modelArchitecture": "custom", "modelSize": 70})
    assert (changed.json()["modelArchitecture"], changed.json()["modelSize"]) == ("custom", 70)
    assert changed.json()["updatedAt"] > project["updatedAt"]
    assert changed.json()["createdAt"] == project["createdAt"]
    assert browser.delete(address).status_code == 204
    for answer in (browser.get(address), browser.put(address, json=BODY), browser.delete(address)):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert installation.actions() == ["project.created", "project.changed", "project.deleted"]


def test_a_project_names_the_preset_of_its_size_and_nothing_where_there_is_no_model(
    server: Server, member: User
) -> None:
    browser = server.signed_in(member)
    large = browser.post("/api/projects", json={**BODY, "modelSize": 130}).json()
    assert large["modelPreset"] == {"name": "130b", "label": "130B · 85 layers, 12,288 wide"}
    address = f"/api/projects/{large['id']}"
    # What was read is accepted as it is, and fields that are left out of a whole project are emptied.
    assert browser.put(address, json=large).status_code == 200
    without = browser.put(address, json={"name": "Notes"}).json()
    fields = ("modelArchitecture", "modelSize", "modelPreset", "trainingDataPath")
    assert [without[name] for name in fields] == [None] * 4


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "   "}, "name"),
        ({"name": None}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 121}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"description": "x" * 2001}, "description"),
        ({"description": "a\x00b"}, "description"),
        ({"modelSize": 0}, "modelSize"),
        ({"modelSize": -1}, "modelSize"),
        ({"modelSize": float("nan")}, "modelSize"),
        ({"modelSize": float("inf")}, "modelSize"),
        ({"modelSize": 1e308}, "modelSize"),
        ({"modelSize": 10**400}, "modelSize"),
        ({"modelSize": 10_001}, "modelSize"),
        ({"modelSize": "130"}, "modelSize"),
        ({"modelSize": True}, "modelSize"),
        ({"modelSize": [1]}, "modelSize"),
        ({"modelArchitecture": "mamba"}, "modelArchitecture"),
        ({"modelArchitecture": "Transformer"}, "modelArchitecture"),
        ({"modelArchitecture": {}}, "modelArchitecture"),
        ({"trainingDataPath": "x" * 1025}, "trainingDataPath"),
        ({"trainingDataPath": "../../etc/passwd"}, "trainingDataPath"),
        ({"trainingDataPath": "dataset://corpus"}, "trainingDataPath"),
        ({"owner": "somebody"}, "owner"),
        ({"__proto__": 1}, "__proto__"),
        ({"\ud800": 1}, ""),
        ({"x" * 5000: 1}, "x" * 100),
    ],
)
def test_what_breaks_a_rule_is_refused_with_a_sentence_for_the_field(
    sqlite_server: Server, change: dict[str, object], field: str
) -> None:
    body = json.dumps({**BODY, **change})
    answer = sqlite_server.stranger.post("/api/projects", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    assert error["message"]
    assert error["field"] == field


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'name': 1}",
        b'{"name": "a",}',
        b"\xff\xfe",
        b'"just text"',
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b'{"modelSize": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_body_that_is_no_json_object_is_refused(sqlite_server: Server, body: bytes) -> None:
    answer = sqlite_server.stranger.post("/api/projects", content=body, headers=JSON)
    assert answer.status_code in {400, 422}, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"]


@pytest.mark.long
def test_many_unknown_fields_do_not_blow_up_the_answer(sqlite_server: Server) -> None:
    body = {**BODY, **{f"field{number}": 1 for number in range(30_000)}}
    answer = sqlite_server.stranger.post("/api/projects", json=body)
    assert answer.status_code == 422
    assert len(answer.content) < 20_000


def test_a_text_that_is_too_long_is_counted_in_characters(sqlite_server: Server) -> None:
    for change in ({"name": "x" * 121}, {"description": "x" * 2001}):
        answer = sqlite_server.stranger.post("/api/projects", json={**BODY, **change})
        assert re.search(r"at most [0-9]+ characters", answer.json()["errors"][0]["message"])


def test_a_name_of_ten_megabytes_is_too_large(sqlite_server: Server) -> None:
    answer = sqlite_server.stranger.post("/api/projects", json={**BODY, "name": "x" * 10_000_000})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_other_content_types_are_refused(sqlite_server: Server) -> None:
    """A form of another site can send these without asking first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        headers = {"Content-Type": kind}
        answer = sqlite_server.stranger.post("/api/projects", content=json.dumps(BODY), headers=headers)
        assert answer.status_code in {400, 415, 422}, kind


def test_the_longest_texts_and_all_of_unicode_come_back_as_they_went_in(server: Server, member: User) -> None:
    body = {
        **BODY,
        "name": "ß" * 119 + "🌸",
        "description": "line\nline\t\u2028\u202e" + "é" * 1980,
        "modelSize": 0.000001,
    }
    browser = server.signed_in(member)
    project = browser.post("/api/projects", json=body).json()
    assert browser.get(f"/api/projects/{project['id']}").json() | body == project


def test_search_takes_percent_and_underscore_literally(
    server: Server, installation: Installation, member: User
) -> None:
    for name in ("100% done", "100 done", "a_b", "aXb", "back\\slash", "Ends/slash"):
        installation.add(
            Project(user_id=member.id, name=name, model_architecture="custom", model_size=1, description="d")
        )
    browser = server.signed_in(member)

    def found(text: str) -> set[str]:
        items = browser.get("/api/projects", params={"search": text}).json()["items"]
        return {item["name"] for item in items}

    assert found("%") == {"100% done"}
    assert found("_") == {"a_b"}
    assert found("\\") == {"back\\slash"}
    assert found("/") == {"Ends/slash"}
    assert found("DONE") == {"100% done", "100 done"}
    assert found("'; DROP TABLE projects; --") == set()
    assert len(found("d")) == 6
    assert browser.get("/api/projects", params={"search": "a\x00"}).status_code == 422


def test_pages_hold_everything_once_the_one_changed_last_first(
    server: Server, installation: Installation, member: User
) -> None:
    moment = now()
    with installation.session() as session:
        for number in range(11):
            session.add(
                Project(
                    user_id=member.id,
                    name=str(number),
                    model_architecture="custom",
                    model_size=1,
                    # Some share their time: the order must be stable all the same.
                    updated_at=moment + timedelta(seconds=number // 4),
                )
            )
    browser = server.signed_in(member)
    pages = [
        browser.get("/api/projects", params={"limit": 4, "offset": offset}).json() for offset in (0, 4, 8, 12)
    ]
    names = [item["name"] for page in pages for item in page["items"]]
    assert [len(page["items"]) for page in pages] == [4, 4, 3, 0]
    assert {page["total"] for page in pages} == {11}
    assert sorted(names, key=int) == [str(number) for number in range(11)]
    assert set(names[:3]) == {"8", "9", "10"}


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "offset=-1", "offset=9999999999"])
def test_a_strange_page_is_refused(sqlite_server: Server, query: str) -> None:
    assert sqlite_server.stranger.get(f"/api/projects?{query}").status_code == 422


def test_nobody_sees_or_changes_anothers_project(server: Server, installation: Installation) -> None:
    ada, eve = installation.add_user("Ada"), installation.add_user("Eve", role="admin")
    owner, other = server.signed_in(ada), server.signed_in(eve)
    project = owner.post("/api/projects", json=BODY).json()
    address = f"/api/projects/{project['id']}"
    assert other.get("/api/projects").json() == {"items": [], "total": 0}
    assert other.get("/api/projects", params={"search": "Bloom"}).json()["total"] == 0
    missing = other.get("/api/projects/00000000-0000-4000-8000-000000000000")
    for answer in (other.get(address), other.put(address, json=BODY), other.delete(address)):
        assert (answer.status_code, answer.content) == (404, missing.content)
    assert owner.get(address).json() == project


def test_the_sample_user_and_project_of_the_first_document_are_accepted(
    server: Server, installation: Installation, sample: dict[str, dict[str, str]]
) -> None:
    user = installation.add_user(**sample["user"])
    browser = server.signed_in(user)
    assert browser.get("/api/me").json()["email"] == "alice.smith@example.com"
    fields = {name: value for name, value in sample["project"].items() if name not in _STORED}
    created = browser.post("/api/projects", json=fields)
    assert created.status_code == 201
    assert created.json() | fields == created.json()
    stored = Project(
        id=sample["project"]["id"],
        user_id=user.id,
        created_at=sample["project"]["createdAt"],
        name=fields["name"],
        description=fields["description"],
        model_architecture=fields["modelArchitecture"],
        model_size=fields["modelSize"],
        training_data_path=fields["trainingDataPath"],
    )
    installation.add(stored)
    answer = browser.get(f"/api/projects/{stored.id}").json()
    assert answer["createdAt"] == "2023-10-26T10:00:00Z"
    assert answer["userId"] == str(user.id)


_STORED = {"id", "userId", "createdAt"}
