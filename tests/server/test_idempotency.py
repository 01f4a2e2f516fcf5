"""A request that is sent twice with one Idempotency-Key creates one thing."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.idempotency import IdempotencyKey
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from tests.server.installation import Browser, Installation, Server

PROJECT = {"name": "Bloom", "modelArchitecture": "transformer", "modelSize": 1}
JOB = {"project": {"name": "New", "model_architecture": "transformer", "model_size": 0.001}}
DATASET = {"name": "chats", "filename": "chats.jsonl", "size": 10}


def _post(browser: Browser, address: str, body: dict[str, Any], key: str) -> Any:
    return browser.post(address, json=body, headers={"Idempotency-Key": key})


@pytest.mark.parametrize(
    ("address", "body"),
    [("/api/projects", PROJECT), ("/api/jobs", JOB), ("/api/datasets", DATASET)],
    ids=["project", "job", "dataset"],
)
def test_the_same_request_creates_one_thing(ada: Browser, address: str, body: dict[str, Any]) -> None:
    first, again = (_post(ada, address, body, "k1") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert first.json()["id"] == again.json()["id"]
    assert _post(ada, address, body, "k2").json()["id"] != first.json()["id"]
    assert ada.get(address).json()["total"] == 2


def test_a_job_and_its_new_project_are_made_together_once(installation: Installation, ada: Browser) -> None:
    for _ in range(3):
        _post(ada, "/api/jobs", JOB, "k")
    assert (len(installation.all(TrainingJob)), len(installation.all(Project))) == (1, 1)


def test_requests_at_the_same_time_create_one_thing(
    installation: Installation, server: Server, member: User
) -> None:
    browsers = [server.signed_in(member) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda browser: _post(browser, "/api/projects", PROJECT, "k"), browsers))
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(installation.all(Project)) == 1


def test_a_key_belongs_to_one_request_and_one_person(server: Server, ada: Browser, admin: User) -> None:
    made = _post(ada, "/api/projects", PROJECT, "k").json()
    other = _post(ada, "/api/projects", {**PROJECT, "name": "Other"}, "k")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    theirs = _post(server.signed_in(admin), "/api/projects", PROJECT, "k")
    assert theirs.json()["id"] != made["id"]


def test_a_request_that_failed_may_be_sent_again(ada: Browser) -> None:
    wrong = {**JOB, "config": {"epochs": 0}}
    assert _post(ada, "/api/jobs", wrong, "k").status_code == 422
    assert _post(ada, "/api/jobs", JOB, "k").status_code == 201


def test_a_key_is_forgotten_after_a_day(installation: Installation, ada: Browser) -> None:
    first = _post(ada, "/api/projects", PROJECT, "k").json()
    with installation.session() as session:
        session.execute(update(IdempotencyKey).values(created_at=now() - timedelta(days=2)))
    assert _post(ada, "/api/projects", PROJECT, "k").json()["id"] != first["id"]


@pytest.mark.parametrize("key", ["", "x" * 201, "a b"])
def test_a_key_is_a_short_word(ada: Browser, key: str) -> None:
    assert _post(ada, "/api/projects", PROJECT, key).status_code == 422
