"""Models by upload and by folder: only files of models, only folders that the operator allowed."""

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from tests.server.bringing import on_sqlite, send, upload
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job, add_model

CONFIG = {"path": "config.json", "size": 10}
WEIGHTS = {"path": "model.safetensors", "size": 100}


def _announce(browser: Browser, files: list[dict[str, Any]], **more: Any) -> Any:
    return browser.post("/api/models", json={"source": "upload", "files": files, **more})


def _upload(browser: Browser, folder: Path, **more: Any) -> dict[str, Any]:
    files = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix in {".json", ".safetensors", ".jinja"}
    }
    answer = _announce(browser, [{"path": name, "size": len(body)} for name, body in files.items()], **more)
    assert answer.status_code == 201, answer.text
    model_id = answer.json()["id"]
    for name, body in files.items():
        address = f"/api/models/{model_id}/files/{name}"
        middle = len(body) // 2
        assert send(browser, address, body[:middle]).status_code == 204
        assert browser.get(f"/api/models/{model_id}").json()["status"] == "uploading"
        assert browser.head(address).headers["Upload-Offset"] == str(middle)
        assert send(browser, address, body[middle:], middle).status_code == 204
    model: dict[str, Any] = browser.get(f"/api/models/{model_id}").json()
    return model


def test_an_uploaded_model_is_checked_when_its_last_file_is_there(
    server: Server, installation: Installation, member: User, tiny_model: Path
) -> None:
    browser = server.signed_in(member)
    model = _upload(browser, tiny_model, name="Tiny")
    assert (model["status"], model["name"], model["progress"]) == ("ready", "Tiny", None)
    assert model["received"] == model["size"] > 0
    check = model["check"]
    assert check["ok"], check["findings"]
    assert (check["family"], check["chat_template"]) == ("llama", True)
    assert set(check["memory"]) == {"full", "lora", "qlora"}
    listed = browser.get("/api/models").json()
    assert (listed["total"], listed["items"][0]["id"]) == (1, model["id"])
    folder = server.settings.home / "models" / model["id"]
    assert (folder / "model.safetensors").read_bytes() == (tiny_model / "model.safetensors").read_bytes()
    (folder / "tokenizer.json").write_text("{}")
    again = browser.post(f"/api/models/{model['id']}/check").json()["check"]
    assert not again["ok"]
    assert browser.delete(f"/api/models/{model['id']}").status_code == 204
    assert not folder.exists()
    assert installation.actions() == ["model.created", "model.deleted"]


@on_sqlite
def test_a_preview_with_a_model_has_its_template_and_counts_its_tokens(
    server: Server, installation: Installation, member: User, tiny_model: Path
) -> None:
    browser = server.signed_in(member)
    model = _upload(browser, tiny_model)
    row = {"prompt": "What is the password?", "completion": "It is kept."}
    dataset_id = upload(browser, "a.jsonl", (json.dumps(row) + "\n").encode() * 3)
    params = {"model_id": model["id"], "context_length": 5}
    page = browser.get(f"/api/datasets/{dataset_id}/preview", params=params).json()
    shown = page["items"][0]
    text = "".join(piece["text"] for piece in shown["pieces"])
    assert "<|im_start|>user" in text
    trained = "".join(piece["text"] for piece in shown["pieces"] if piece["trained"])
    assert trained == "It is kept.<|im_end|>\n" or trained.startswith("It is kept.<|im_end|>")
    assert shown["tokens"] > shown["trained_tokens"] > 0
    assert shown["too_long"] is True
    other = server.signed_in(installation.add_user("Eve"))
    theirs = upload(other, "a.jsonl", (json.dumps(row) + "\n").encode())
    refused = other.get(f"/api/datasets/{theirs}/preview", params=params)
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


@on_sqlite
def test_only_files_that_a_model_is_made_of_are_taken(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    for name in (
        "../config.json",
        "sub/config.json",
        "..",
        ".hidden.json",
        "model.bin",
        "code.py",
        "config.json/",
        "a\\b.json",
        "con\x00fig.json",
        "ünïcode.json",
        "x" * 200 + ".json",
    ):
        answer = _announce(browser, [CONFIG, WEIGHTS, {"path": name, "size": 1}])
        assert answer.status_code == 422, name
    assert "config.json" in _announce(browser, [WEIGHTS]).json()["detail"]
    assert ".safetensors" in _announce(browser, [CONFIG]).json()["detail"]
    assert _announce(browser, [CONFIG, WEIGHTS, {"path": "Config.json", "size": 1}]).status_code == 422
    assert _announce(browser, []).status_code == 422
    assert browser.get("/api/models").json()["total"] == 0


def test_only_announced_files_arrive(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    model_id = _announce(browser, [CONFIG, WEIGHTS]).json()["id"]
    for name in ("other.json", "..%2F..%2Fx.json", "%2e%2e"):
        answer = send(browser, f"/api/models/{model_id}/files/{name}", b"x")
        assert answer.status_code in {404, 405}, (name, answer.text)
    address = f"/api/models/{model_id}/files/config.json"
    assert send(browser, address, b"x" * 11).status_code == 413
    assert send(browser, address, b"x", 3).status_code == 409
    assert browser.post(f"/api/models/{model_id}/check").json()["code"] == "model_not_ready"
    home = server.settings.home
    stored = {path.name for path in home.rglob("*") if path.is_file()}
    assert stored - {"secret.key"} == {".config.json.partial"}


@on_sqlite
def test_a_broken_upload_is_ready_with_what_is_wrong(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    model_id = _announce(browser, [CONFIG, WEIGHTS]).json()["id"]
    send(browser, f"/api/models/{model_id}/files/config.json", b"x" * 10)
    send(browser, f"/api/models/{model_id}/files/model.safetensors", b"y" * 100)
    model = browser.get(f"/api/models/{model_id}").json()
    assert model["status"] == "ready"
    assert not model["check"]["ok"]
    errors = [found for found in model["check"]["findings"] if found["severity"] == "error"]
    assert errors
    assert str(server.settings.home) not in json.dumps(model)


# The last three are single operations of a library, which Python cannot stop half way.
HOSTILE_TEMPLATES = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
    "wide": "{{ '{:>1000000000}'.format(1) }}",
    "sum": "{{ ([[1] * 100000] * 100000)|sum(start=[])|length }}",
    "replaced": "{{ ('a' * 90000).replace('a', 'a' * 90000)|length }}",
    "joined": "{{ (['a' * 1000000] * 8000)|join|length }}",
}


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("template", HOSTILE_TEMPLATES.values(), ids=HOSTILE_TEMPLATES)
def test_a_hostile_template_ends_with_a_sentence_within_seconds_and_bounded_memory(
    server: Server, member: User, tiny_model: Path, template: str
) -> None:
    browser = server.signed_in(member)
    model = _upload(browser, tiny_model)
    folder = server.settings.home / "models" / model["id"]
    (folder / "chat_template.jinja").write_text(template)
    dataset_id = upload(browser, "a.jsonl", b'{"prompt": "a", "completion": "b"}\n')
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = browser.get(f"/api/datasets/{dataset_id}/preview", params={"model_id": model["id"]})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answer.status_code == 422
    assert answer.json()["code"] in {"template_took_too_long", "template_too_large"}
    # CPU time, which other programs of this machine do not change. Starting a reader takes some of it.
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 5
    # Kilobytes, of the largest child that this process ever had.
    assert after.ru_maxrss < 3 << 20
    assert browser.get(f"/api/datasets/{dataset_id}/preview").status_code == 200
    checked = browser.post(f"/api/models/{model['id']}/check")
    assert checked.status_code in {200, 409}, checked.text
    assert "template" in checked.text


@pytest.fixture
def roots(tmp_path: Path, tiny_model: Path) -> Path:
    root = tmp_path / "models-of-the-operator"
    shutil.copytree(tiny_model, root / "tiny")
    return root


@on_sqlite
def test_a_folder_must_be_one_that_the_operator_allowed(
    installation: Installation, member: User, roots: Path, tmp_path: Path
) -> None:
    with installation.serve(data_roots=[roots]) as server:
        browser = server.signed_in(member)

        def add(path: str) -> Any:
            return browser.post("/api/models", json={"source": "folder", "path": path})

        outside = tmp_path / "outside"
        shutil.copytree(roots / "tiny", outside)
        (roots / "link").symlink_to(outside)
        shutil.copytree(roots / "tiny", roots / "leaky")
        (roots / "leaky" / "config.json").unlink()
        (roots / "leaky" / "config.json").symlink_to(outside / "config.json")
        for path in (
            str(outside),
            str(roots / "link"),
            str(roots / "leaky"),
            f"{roots}/tiny/../../outside",
            str(roots / "nothing"),
            str(roots / "tiny" / "config.json"),
            "s3://bucket/model",
            str(server.settings.home),
            "/",
        ):
            answer = add(path)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "path"), path
        model = add(str(roots / "tiny")).json()
        assert (model["status"], model["name"], model["check"]["ok"]) == ("ready", "tiny", True)
        assert browser.delete(f"/api/models/{model['id']}").status_code == 204
        assert (roots / "tiny" / "config.json").is_file()


@on_sqlite
def test_the_catalogue_lists_families_with_what_they_need(server: Server, member: User) -> None:
    found = server.signed_in(member).get("/api/catalogue").json()
    assert found["setting"]
    models = [model for family in found["families"] for model in family["models"]]
    assert len(models) > 10
    assert all(model["memory"]["qlora"] < model["memory"]["full"] for model in models)
    assert any(model["unsloth_id"] for model in models)


def test_a_failed_download_can_be_tried_again(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    model = add_model(
        installation,
        member,
        source="hub",
        repository="org/name",
        status="failed",
        problem="No network.",
        check=None,
    )
    again = browser.post(f"/api/models/{model.id}/fetch").json()
    assert (again["status"], again["problem"]) == ("fetching", None)
    refused = browser.post(f"/api/models/{model.id}/fetch")
    assert (refused.status_code, refused.json()["code"]) == (409, "download_not_failed")
    assert installation.actions() == ["model.fetched_again"]


def test_a_trained_model_becomes_a_base_model_that_outlives_its_job(
    server: Server, installation: Installation, member: User, tiny_model: Path
) -> None:
    browser = server.signed_in(member)
    job = add_job(installation, member, status="completed", name="Tuned")
    folder = installation.home / "runs" / str(job.id) / "model"
    shutil.copytree(tiny_model, folder)
    answer = browser.post(f"/api/jobs/{job.id}/base-model")
    assert answer.status_code == 201, answer.text
    model = answer.json()
    assert (model["name"], model["status"], model["check"]["ok"]) == ("Tuned", "ready", True)
    shutil.rmtree(folder.parent)
    kept = server.settings.home / "models" / model["id"] / "model.safetensors"
    assert kept.read_bytes() == (tiny_model / "model.safetensors").read_bytes()


def test_an_adapter_is_no_base_model(
    server: Server, installation: Installation, member: User, tiny_model: Path
) -> None:
    browser = server.signed_in(member)
    job = add_job(installation, member, status="completed")
    folder = installation.home / "runs" / str(job.id) / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "adapter_config.json").write_text("{}")
    refused = browser.post(f"/api/jobs/{job.id}/base-model")
    assert (refused.status_code, refused.json()["code"]) == (409, "adapter_in_model")
    running = add_job(installation, member, status="running")
    early = browser.post(f"/api/jobs/{running.id}/base-model")
    assert (early.status_code, early.json()["code"]) == (409, "no_model_yet")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"model_type": "\ud800\0"}),
        ("config.json", {"model_type": "x" * 100_000, "hidden_size": 8}),
        (
            "tokenizer_config.json",
            {"eos_token": "\udfff\0", "chat_template": "{{ raise_exception('\udfff') }}"},
        ),
    ],
)
def test_a_model_whose_texts_no_database_holds_is_listed_all_the_same(
    server: Server, member: User, tiny_model: Path, tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    browser = server.signed_in(member)
    model_copy = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    file = model_copy / name
    found = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**found, **content}))
    model = _upload(browser, model_copy)
    assert model["status"] == "ready", model
    listed = browser.get("/api/models")
    assert listed.status_code == 200
    assert len(listed.content) < 20_000
    assert browser.get(f"/api/models/{model['id']}").status_code == 200
