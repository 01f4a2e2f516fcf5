"""Question-answer pairs about documents: asked of an endpoint, read strictly, bounded, stopped, continued."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.datasets.tables import Dataset
from gpubloom.traincard.retry import RetryPolicy
from gpubloom.worker import model_clients
from gpubloom.worker import questions as asking
from tests.chat_endpoint import FakeEndpoint, pair_about, serving
from tests.server.bringing import inspected, on_sqlite, prepare
from tests.server.datasets.test_documents import upload_documents
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job
from tests.server.playground import fake_serve

TEXT = "\n\n".join(f"# Pump {n}\n\nPump {n} moves {n} litres of water in a minute. " * 2 for n in range(1, 9))


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    with serving() as found:
        yield found


def _passages(server: Server, browser: Browser) -> dict[str, Any]:
    dataset_id = upload_documents(browser, "pumps.md", TEXT.encode(), passage_characters=200)
    return inspected(server, browser, dataset_id)


def _order(browser: Browser, dataset: dict[str, Any], endpoint: FakeEndpoint, **more: Any) -> dict[str, Any]:
    body = {"endpoint": endpoint.address, "model": "writer", "pairs": 1, **more}
    answer = browser.post(f"/api/datasets/{dataset['id']}/questions", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


@pytest.mark.long
def test_each_passage_becomes_pairs_that_know_their_source(
    server: Server, member: User, endpoint: FakeEndpoint
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    stored = browser.put("/api/secrets/WRITER_KEY", json={"value": "sk-writer"})
    assert stored.status_code == 200, stored.text
    body = {"endpoint": endpoint.address, "model": "writer", "pairs": 1}
    estimate = browser.post(f"/api/datasets/{passages['id']}/questions/estimate", json=body).json()
    count = passages["documents"]["passages"]
    assert (estimate["passages"], estimate["answer_tokens"], estimate["limited"]) == (
        count,
        800 * count,
        False,
    )
    assert endpoint.asked == []
    ordered = _order(browser, passages, endpoint, secret="WRITER_KEY")
    assert (ordered["status"], ordered["source"]) == ("generating", "questions")
    made = inspected(server, browser, ordered["id"])
    assert made["status"] == "ready", made["problem"]
    assert made["report"]["examples"] == made["questions"]["pairs_kept"] == count == len(endpoint.asked)
    assert (made["questions"]["tokens"], made["questions"]["end_reason"]) == (100 * count, None)
    assert set(endpoint.keys) == {"Bearer sk-writer"}
    assert "sk-writer" not in json.dumps(made)
    row = browser.get(f"/api/datasets/{made['id']}/preview").json()["items"][0]
    assert row["source"]["file"] == "pumps.md"
    assert row["source"]["heading"] == "Pump 1"
    assert "Pump 1 moves 1 litres" in row["source"]["text"]
    assert row["raw"]["messages"][1]["content"] in row["source"]["text"]


def test_answers_that_are_not_as_asked_are_rejected_with_their_reason(
    server: Server, member: User, endpoint: FakeEndpoint
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    endpoint.answer = lambda passage: pair_about(passage) if "Pump 2" in passage else "Of course!"
    made = inspected(server, browser, _order(browser, passages, endpoint)["id"])
    assert made["status"] == "ready"
    count = passages["documents"]["passages"]
    rejected = browser.get(f"/api/datasets/{made['id']}/rejected").json()
    assert rejected["total"] == made["questions"]["rejected"] == count - made["report"]["rows"] > 0
    assert rejected["items"][0]["reason"] == "The answer is not JSON."
    assert rejected["items"][0]["text"] == "Of course!"
    assert rejected["items"][0]["source"]["file"] == "pumps.md"


def test_the_token_limit_ends_an_order_that_can_be_continued_without_asking_twice(
    server: Server, member: User, endpoint: FakeEndpoint
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    endpoint.usage = None
    made = inspected(server, browser, _order(browser, passages, endpoint, most_tokens=2_500)["id"])
    asked = len(endpoint.asked)
    assert made["questions"]["passages_done"] == asked == 2
    assert "limit of 2,500 tokens" in made["questions"]["end_reason"]
    address = f"/api/datasets/{made['id']}/questions/continue"
    answer = browser.post(address, json={"most_tokens": 1_000_000})
    assert (answer.status_code, answer.json()["status"]) == (200, "generating")
    whole = inspected(server, browser, made["id"])
    count = passages["documents"]["passages"]
    assert whole["questions"]["passages_done"] == count == len(endpoint.asked)
    assert len({json.dumps(one["messages"]) for one in endpoint.asked}) == count
    again = browser.post(address, json={})
    assert (again.status_code, again.json()["code"]) == (409, "nothing_to_continue")


def test_a_stop_keeps_what_was_answered(server: Server, member: User, endpoint: FakeEndpoint) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    made = inspected(server, browser, _order(browser, passages, endpoint, most_passages=3)["id"])
    refused = browser.post(f"/api/datasets/{made['id']}/questions/stop")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_generating")
    waiting = _order(browser, passages, endpoint)
    asked = len(endpoint.asked)
    stopped = browser.post(f"/api/datasets/{waiting['id']}/questions/stop")
    assert stopped.status_code == 200, stopped.text
    ended = inspected(server, browser, waiting["id"])
    assert (ended["status"], len(endpoint.asked)) == ("failed", asked)
    assert "Stopped on request." in ended["problem"]
    assert browser.post(f"/api/datasets/{waiting['id']}/questions/continue", json={}).status_code == 200
    assert inspected(server, browser, waiting["id"])["status"] == "ready"


@on_sqlite
def test_a_compressed_answer_is_refused_before_it_is_unpacked(
    server: Server, member: User, endpoint: FakeEndpoint
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    endpoint.packed = True
    made = inspected(server, browser, _order(browser, passages, endpoint)["id"])
    assert made["status"] == "failed"
    assert "compressed" in made["problem"]


@on_sqlite
def test_an_answer_that_comes_byte_by_byte_is_given_up(
    server: Server, member: User, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_clients, "_MOST_SECONDS", 0.2)
    monkeypatch.setattr(asking, "_RETRIES", RetryPolicy(first_pause=0.01, longest_pause=0.01, max_calls=2))
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    endpoint.gate.clear()
    made = inspected(server, browser, _order(browser, passages, endpoint, most_passages=1)["id"])
    endpoint.gate.set()
    assert made["status"] == "failed"
    assert "does not answer (TimeoutError)" in made["problem"]


@on_sqlite
def test_full_storage_ends_an_order_that_can_be_continued(
    server: Server, member: User, endpoint: FakeEndpoint
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    endpoint.answer = lambda passage: json.dumps(
        {"pairs": [{"question": f"What about {passage[:30]}?", "answer": "x" * 7_000}]}
    )
    ordered = _order(browser, passages, endpoint)
    used = browser.get("/api/me/storage").json()["total"]
    prepare(server.settings.model_copy(update={"user_quota_gb": (used + 30_000) / 1e9}))
    made = browser.get(f"/api/datasets/{ordered['id']}").json()
    count = passages["documents"]["passages"]
    assert "Your storage is full" in made["questions"]["end_reason"]
    assert 0 < made["questions"]["passages_done"] < count
    again = browser.post(f"/api/datasets/{made['id']}/questions/continue", json={})
    assert again.status_code == 200, again.text
    assert inspected(server, browser, made["id"])["questions"]["passages_done"] == count


@pytest.mark.long
def test_the_orders_of_a_disabled_account_ask_nothing_more(
    server: Server, member: User, endpoint: FakeEndpoint, installation: Installation
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)

    def disable(passage: str) -> str:
        installation.change(member, disabled=True)
        return pair_about(passage)

    endpoint.answer = disable
    begun = _order(browser, passages, endpoint)
    prepare(server.settings)
    asked, count = len(endpoint.asked), passages["documents"]["passages"]
    # Those that were under way when the account was disabled.
    assert 0 < asked <= model_clients.RemoteClient.at_once < count
    [row] = [row for row in installation.all(Dataset) if str(row.id) == begun["id"]]
    assert row.questions is not None
    assert "account is disabled" in row.questions["end_reason"]
    assert row.questions["passages_done"] == asked

    installation.change(member, disabled=False)
    browser = server.signed_in(member)
    endpoint.answer = pair_about
    again = browser.post(f"/api/datasets/{begun['id']}/questions/continue", json={})
    assert again.status_code == 200, again.text
    assert inspected(server, browser, begun["id"])["questions"]["passages_done"] == count
    assert len(endpoint.asked) == count, "no passage is asked about twice"

    waiting = _order(browser, passages, endpoint)
    installation.change(member, disabled=True)
    prepare(server.settings)
    assert len(endpoint.asked) == count, "an order that waits is not begun"
    [row] = [row for row in installation.all(Dataset) if str(row.id) == waiting["id"]]
    assert "account is disabled" in (row.problem or "")


@on_sqlite
@pytest.mark.parametrize(("status", "sentence"), [(401, "refused with 401"), (400, "refused with 400")])
def test_an_endpoint_that_refuses_is_not_asked_again_and_again(
    server: Server, member: User, endpoint: FakeEndpoint, status: int, sentence: str
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    endpoint.answer = lambda _: status
    made = inspected(server, browser, _order(browser, passages, endpoint)["id"])
    assert made["status"] == "failed"
    assert sentence in made["problem"]
    assert len(endpoint.asked) < passages["documents"]["passages"]


@on_sqlite
def test_an_endpoint_that_is_busy_is_asked_again(
    server: Server, member: User, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = asking.RetryPolicy(first_pause=0.01, longest_pause=0.01, max_calls=4)
    monkeypatch.setattr(asking, "_RETRIES", quick)
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    failures = iter([503, 429, 500])
    endpoint.answer = lambda passage: next(failures, None) or pair_about(passage)
    made = inspected(server, browser, _order(browser, passages, endpoint)["id"])
    count = passages["documents"]["passages"]
    assert (made["status"], made["report"]["rows"], len(endpoint.asked)) == ("ready", count, count + 3)


@on_sqlite
def test_orders_that_cannot_work_are_refused_at_once(
    server: Server, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    address = f"/api/datasets/{passages['id']}/questions"

    def code(**body: Any) -> str:
        answer = browser.post(address, json={"model": "writer", **body})
        assert answer.status_code in {404, 422}, answer.text
        said = answer.json()
        return str(said["errors"][0]["code"] if said.get("errors") else said["code"])

    assert code(endpoint="ftp://example.com") == "invalid_endpoint"
    assert code(endpoint="https://me:key@example.com/v1") == "invalid_endpoint"
    assert code(endpoint="https://example.com/v1", secret="NOT_THERE") == "secret_missing"
    assert code(endpoint="http://example.com/v1", secret="NOT_THERE") == "key_needs_https"
    assert code() == "model_not_found"
    monkeypatch.delenv("BLOOM_EGRESS_ALLOW")
    assert code(endpoint="http://169.254.169.254/v1") == "egress_refused"


@pytest.mark.long
def test_questions_of_another_tenant_are_not_found_and_use_no_key_of_theirs(
    server: Server, installation: Installation, member: User, endpoint: FakeEndpoint
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    browser.put("/api/secrets/WRITER_KEY", json={"value": "sk-mine"})
    made = inspected(server, browser, _order(browser, passages, endpoint)["id"])
    eve = server.signed_in(installation.add_user("Eve"))
    body = {"endpoint": endpoint.address, "model": "writer"}
    for method, path, sent in (
        ("post", f"/api/datasets/{passages['id']}/questions", body),
        ("post", f"/api/datasets/{passages['id']}/questions/estimate", body),
        ("post", f"/api/datasets/{made['id']}/questions/stop", {}),
        ("post", f"/api/datasets/{made['id']}/questions/continue", {}),
        ("get", f"/api/datasets/{made['id']}/rejected", None),
    ):
        answer = eve.get(path) if method == "get" else eve.post(path, json=sent)
        assert answer.status_code == 404, path
    hers = _passages(server, eve)
    answer = eve.post(f"/api/datasets/{hers['id']}/questions", json={**body, "secret": "WRITER_KEY"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "secret_missing")


def test_a_playground_of_the_server_writes_the_pairs_and_nobody_else_may_use_it(
    server: Server, installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    job = add_job(installation, member, kind="serve", status="running", name="Writer")
    monkeypatch.setattr(
        fake_serve, "WORDS", (json.dumps({"pairs": [{"question": "Who?", "answer": "Ada."}]}),)
    )
    with fake_serve.fake_serve() as process:
        process.announce(installation.home, job.id)
        order = {"model": "Writer:base", "pairs": 1, "most_passages": 3}
        answer = browser.post(f"/api/datasets/{passages['id']}/questions", json=order)
        assert answer.status_code == 201, answer.text
        made = inspected(server, browser, answer.json()["id"])
        eve = server.signed_in(installation.add_user("Eve"))
        hers = _passages(server, eve)
        refused = eve.post(f"/api/datasets/{hers['id']}/questions", json={**order, "model": str(job.id)})
        assert (refused.status_code, refused.json()["code"]) == (404, "model_not_found")
    assert (made["status"], made["questions"]["endpoint"]) == ("ready", None)
    assert made["questions"]["pairs_kept"] == len(process.asked) == 3
    assert {asked["body"]["model"] for asked in process.asked} == {"base"}
    kept = browser.post(f"/api/datasets/{passages['id']}/questions", json={**order, "secret": "KEY"})
    assert (kept.status_code, kept.json()["errors"][0]["code"]) == (422, "contradictory_fields")


def test_the_passages_may_be_deleted_before_or_after_they_are_asked_about(
    server: Server, member: User, endpoint: FakeEndpoint
) -> None:
    browser = server.signed_in(member)
    passages = _passages(server, browser)
    ordered = _order(browser, passages, endpoint, most_passages=2)
    assert browser.delete(f"/api/datasets/{passages['id']}").status_code == 204
    prepare(server.settings)
    failed = browser.get(f"/api/datasets/{ordered['id']}").json()
    assert failed["status"] == "failed"
    assert "was deleted" in failed["problem"]
