"""Models and datasets by their id on a hub, fetched by a worker with the token of whoever asked."""

import json
from pathlib import Path

import pytest

from gpubloom.server.accounts.hub_tokens import HubToken
from gpubloom.server.accounts.tables import User
from tests.hub.fake_hub import TOKEN, FakeHub
from tests.server.bringing import on_sqlite, prepare
from tests.server.installation import Browser, Installation, Server

LINES = b"".join(json.dumps({"prompt": str(n), "completion": "yes"}).encode() + b"\n" for n in range(20))


def _model_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _fetched_model(server: Server, browser: Browser, **body: str) -> dict[str, object]:
    answer = browser.post("/api/models", json={"source": "hub", **body})
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "fetching"
    prepare(server.settings)
    model: dict[str, object] = browser.get(f"/api/models/{answer.json()['id']}").json()
    return model


def test_a_model_is_fetched_checked_and_is_what_the_hub_has(
    server: Server, member: User, hub: FakeHub, tiny_model: Path
) -> None:
    repo = hub.add("acme/tiny", _model_files(tiny_model))
    browser = server.signed_in(member)
    model = _fetched_model(server, browser, repository="acme/tiny")
    assert (model["status"], model["problem"]) == ("ready", None)
    assert model["revision"] == repo.revision()
    assert model["check"]["ok"]  # type: ignore[index]
    folder = server.settings.home / "models" / str(model["id"])
    assert (folder / "model.safetensors").read_bytes() == (tiny_model / "model.safetensors").read_bytes()
    assert browser.delete(f"/api/models/{model['id']}").status_code == 204
    assert [path.name for path in folder.parent.iterdir()] == []


@on_sqlite
def test_what_a_hub_refuses_fails_with_its_reason(
    server: Server, member: User, hub: FakeHub, tiny_model: Path
) -> None:
    hub.add("acme/secret", _model_files(tiny_model), private=True)
    hub.add("acme/pickles", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    browser = server.signed_in(member)
    missing = _fetched_model(server, browser, repository="acme/secret")
    assert missing["status"] == "failed"
    assert "under Settings, add a token" in str(missing["problem"])
    pickles = _fetched_model(server, browser, repository="acme/pickles")
    assert "no weights in safetensors" in str(pickles["problem"])
    assert str(server.settings.home) not in json.dumps([missing, pickles])


@pytest.mark.long
def test_a_token_is_stored_sealed_used_for_its_owner_and_never_shown(
    server: Server, installation: Installation, member: User, hub: FakeHub, tiny_model: Path
) -> None:
    hub.add("acme/secret", _model_files(tiny_model), private=True)
    browser, other = server.signed_in(member), server.signed_in(installation.add_user("Eve"))
    assert browser.get("/api/me/hub-token").json() == {"present": False}
    stored = browser.put("/api/me/hub-token", json={"token": TOKEN})
    assert stored.json() == {"present": True}
    assert TOKEN not in installation.everything_stored()
    assert _fetched_model(server, browser, repository="acme/secret")["status"] == "ready"
    assert _fetched_model(server, other, repository="acme/secret")["status"] == "failed"
    assert other.get("/api/me/hub-token").json() == {"present": False}
    # Moved to another person's row, it does not open.
    sealed = installation.all(HubToken)[0].sealed
    installation.add(HubToken(user_id=installation.add_user("Mallory").id, sealed=sealed))
    mallory = next(user for user in installation.all(User) if user.name == "Mallory")
    assert _fetched_model(server, server.signed_in(mallory), repository="acme/secret")["status"] == "failed"
    assert browser.put("/api/me/hub-token", json={"token": "with a space"}).status_code == 422
    assert server.program(member).put("/api/me/hub-token", json={"token": TOKEN}).status_code == 403
    assert browser.delete("/api/me/hub-token").status_code == 204
    assert browser.get("/api/me/hub-token").json() == {"present": False}
    assert {"hub_token.stored", "hub_token.deleted"} <= set(installation.actions())


def test_a_dataset_of_a_hub_is_fetched_and_inspected(server: Server, member: User, hub: FakeHub) -> None:
    repo = hub.add(
        "acme/chats", {"train-0.jsonl": LINES, "train-1.jsonl": LINES, "test.jsonl": LINES}, "dataset"
    )
    browser = server.signed_in(member)
    answer = browser.post("/api/datasets/from-hub", json={"repository": "acme/chats"})
    assert (answer.status_code, answer.json()["status"]) == (201, "fetching")
    prepare(server.settings)
    dataset = browser.get(f"/api/datasets/{answer.json()['id']}").json()
    assert (dataset["status"], dataset["problem"]) == ("ready", None)
    assert (dataset["report"]["rows"], dataset["report"]["duplicates"]["repeated"]) == (40, 20)
    assert dataset["origin"]["split"] == "train"
    assert dataset["origin"]["revision"] == repo.revision()
    assert dataset["origin"]["notes"] == ["2 files were joined into one."]
    assert dataset["size"] == dataset["received"] == 2 * len(LINES)
    preview = browser.get(f"/api/datasets/{dataset['id']}/preview").json()
    assert preview["items"][0]["raw"] == {"prompt": "0", "completion": "yes"}
    content = f"/api/datasets/{dataset['id']}/content"
    assert (
        browser.patch(content, content=b"x", headers={"Upload-Offset": "0"}).json()["code"] == "not_an_upload"
    )


@pytest.mark.long
@on_sqlite
def test_a_split_that_is_not_there_is_named_with_those_that_are(
    server: Server, member: User, hub: FakeHub
) -> None:
    hub.add("acme/chats", {"train.jsonl": LINES, "test.jsonl": LINES}, "dataset")
    browser = server.signed_in(member)
    body = {"repository": "acme/chats", "split": "dev"}
    dataset_id = browser.post("/api/datasets/from-hub", json=body).json()["id"]
    prepare(server.settings)
    dataset = browser.get(f"/api/datasets/{dataset_id}").json()
    assert dataset["status"] == "failed"
    assert "choose one of test, train" in dataset["problem"]
    assert browser.get(f"/api/datasets/{dataset_id}/preview").json()["code"] == "dataset_not_here"


@on_sqlite
def test_what_would_be_too_large_is_not_fetched(
    installation: Installation, member: User, hub: FakeHub, tiny_model: Path
) -> None:
    hub.add("acme/tiny", _model_files(tiny_model))
    with installation.serve(user_quota_gb=0.00001) as server:
        model = _fetched_model(server, server.signed_in(member), repository="acme/tiny")
    assert model["status"] == "failed"
    assert "BLOOM_USER_QUOTA_GB" in str(model["problem"])
    weights = [path for _, path, _ in hub.requests if "safetensors" in path]
    assert weights == []


def test_a_split_and_files_with_odd_names_become_a_dataset(
    server: Server, member: User, hub: FakeHub
) -> None:
    readme = 'configs: [{data_files: [{split: "../\\ud800 a", path: "*.jsonl"}]}]'
    rows = b'{"prompt": "q", "completion": "a"}\n'
    files = {"README.md": f"---\n{readme}\n---\n".encode(), "\udcffx.jsonl": rows, "y.jsonl": rows + b"{\n"}
    hub.add("acme/odd", files, kind="dataset")
    browser = server.signed_in(member)
    asked = {"repository": "acme/odd"}
    assert browser.post("/api/datasets/from-hub", json=asked).status_code == 201
    prepare(server.settings)
    listed = browser.get("/api/datasets")
    assert listed.status_code == 200, listed.text
    (dataset,) = listed.json()["items"]
    assert dataset["status"] == "ready", dataset
    assert dataset["filename"] == "odd-..---a.jsonl"
