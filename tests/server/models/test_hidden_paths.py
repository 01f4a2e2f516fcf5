"""No answer names a folder of the server: not errors about hostile uploads, not jobs, not a share."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.security.server_paths import HiddenPaths
from tests.server.bringing import on_sqlite
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_dataset, add_job, add_model
from tests.server.routes import addresses

# What a file of an uploaded model can be, besides what it should be. HOME stands for the server's folder.
HOSTILE_FILES: dict[str, tuple[str, bytes | None]] = {
    "no config": ("config.json", None),
    "config that ends": ("config.json", b'{"model_type": '),
    "config that is a list": ("config.json", b"[]"),
    "config with another shape": ("config.json", b'{"model_type": "llama", "hidden_size": "HOME"}'),
    "weights of another folder": (
        "model.safetensors.index.json",
        b'{"weight_map": {"a": "HOME/models/x/model.safetensors"}}',
    ),
    "weights that end": ("model.safetensors", b"\x10\0\0\0\0\0\0\0{"),
    "base of another folder": ("adapter_config.json", b'{"base_model_name_or_path": "HOME/models/x"}'),
    "no tokenizer": ("tokenizer.json", None),
    "broken tokenizer": ("tokenizer.json", b'{"model": 1}'),
    "broken tokenizer config": ("tokenizer_config.json", b'{"chat_template": '),
    "tokenizer config that is a list": ("tokenizer_config.json", b"[1]"),
    "template of other bytes": ("chat_template.jinja", b"\xff\xfe\xff"),
    "template that does not compile": ("chat_template.jinja", b"{% for %}"),
    "template that includes a file": ("chat_template.jinja", b"{% include 'HOME/secret.key' %}"),
    "template that loops": (
        "chat_template.jinja",
        b"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    ),
}


def answers_about(browser: Browser, model_id: str, dataset_id: str) -> list[Any]:
    job = {"model_id": model_id, "dataset_id": dataset_id, "name": "x"}
    return [
        browser.post(f"/api/models/{model_id}/check"),
        browser.get(f"/api/models/{model_id}"),
        browser.get(f"/api/datasets/{dataset_id}/preview", params={"model_id": model_id}),
        browser.post("/api/jobs", json={**job, "config": {"method": "lora", "data": {}}}),
        browser.post("/api/jobs/plan", json={**job, "config": {"method": "lora"}}),
    ]


@pytest.mark.long
@on_sqlite
def test_errors_about_hostile_models_never_name_a_folder_of_the_server(
    server: Server, installation: Installation, member: User, tiny_model: Path
) -> None:
    browser = server.signed_in(member)
    home = str(installation.home)
    dataset = add_dataset(installation, member)
    for name, (file, content) in HOSTILE_FILES.items():
        model = add_model(installation, member, name=name)
        folder = installation.home / "models" / str(model.id)
        shutil.rmtree(folder)
        shutil.copytree(tiny_model, folder)
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content.replace(b"HOME", b"/somewhere/else"))
        for answer in answers_about(browser, str(model.id), str(dataset.id)):
            assert answer.status_code < 500, (name, answer.text)
            assert home not in answer.text, (name, answer.url, answer.text)


@pytest.fixture
def leaky_job(installation: Installation, member: User) -> Any:
    """A job whose every sentence names the server's folder, as libraries write them."""
    home = installation.home
    dataset, model = add_dataset(installation, member), add_model(installation, member)
    data = {"train_path": f"{home}/datasets/{dataset.id}/data.jsonl", "kind": "examples"}
    config = TrainConfig.model_validate(
        {"data": data, "model": {"path": f"{home}/models/{model.id}"}, "method": "lora", "device": "cpu"}
    )
    job = add_job(
        installation,
        member,
        config=config.model_dump(mode="json"),
        dataset_id=dataset.id,
        model_id=model.id,
        status="failed",
        error_code="unreadable_file",
        error_message=f"{home}/models/{model.id} cannot be read: no file named '{home}'.",
    )
    logs = home / "runs" / str(job.id) / "logs"
    logs.mkdir(parents=True)
    (logs / "output.log").write_text(f'  File "{home}/runs/{job.id}/train.py", line 1\n')
    return job


@pytest.mark.long
@on_sqlite
def test_no_route_tells_a_member_where_the_server_keeps_its_files(
    server: Server, installation: Installation, member: User, leaky_job: Any
) -> None:
    browser = server.signed_in(member)
    ids = {
        "{job_id}": leaky_job.id,
        "{dataset_id}": leaky_job.dataset_id,
        "{model_id}": leaky_job.model_id,
        "{project_id}": leaky_job.project_id,
        "{path}": "config.json",
        "{path:path}": "config.json",
    }
    seen = []
    # What deletes comes last.
    for address in sorted(addresses(server.app), key=lambda each: (each.method == "DELETE", each.path)):
        if address.method == "WEBSOCKET" or address.path.endswith("/stream") or "sign-out" in address.path:
            continue
        path = address.path
        for name, value in ids.items():
            path = path.replace(name, str(value))
        answer = browser.request(address.method, path, json={} if address.method != "GET" else None)
        seen.append(answer.status_code)
        assert str(installation.home) not in answer.text, (address, answer.text)
    assert seen.count(200) > 20


@on_sqlite
def test_paths_are_shown_from_the_servers_folder_on(
    server: Server, installation: Installation, member: User, admin: User, leaky_job: Any
) -> None:
    browser = server.signed_in(member)
    job = browser.get(f"/api/jobs/{leaky_job.id}").json()
    assert job["error_message"] == (
        f"models/{leaky_job.model_id} cannot be read: no file named 'BLOOM_HOME'."
    )
    assert job["config"]["model"]["path"] == f"models/{leaky_job.model_id}"
    assert browser.get("/api/server").json()["uploads_folder"] is None
    assert browser.get("/api/server").json()["data_roots"] == []
    assert server.signed_in(admin).get("/api/server").json()["uploads_folder"] == str(
        installation.home / "uploads"
    )


@on_sqlite
def test_a_share_names_no_path(
    server: Server, installation: Installation, member: User, leaky_job: Any
) -> None:
    made = server.signed_in(member).post(f"/api/jobs/{leaky_job.id}/shares")
    token = made.json()["link"].partition("#token=")[2]
    shared = server.browser().get("/api/shared/job", headers={"X-Share-Token": token})
    assert shared.status_code == 200
    for secret in (str(installation.home), str(leaky_job.dataset_id), str(leaky_job.model_id)):
        assert secret not in shared.text, json.dumps(shared.json(), indent=1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/bloom/models/a", "models/a"),
        ("'/srv/bloom/uploads/a.jsonl'", "'a.jsonl'"),
        ("cannot read /srv/bloom.", "cannot read BLOOM_HOME."),
        ("/srv/bloomers/a", "/srv/bloomers/a"),
        ("/mnt/srv/bloom/a", "/mnt/srv/bloom/a"),
    ],
)
def test_only_whole_names_of_folders_are_hidden(text: str, shown: str) -> None:
    async def events() -> AsyncIterator[str]:
        yield f"data: {text}\n\n"

    def answer(request: Request) -> Response:
        if request.url.path == "/events":
            return StreamingResponse(events(), media_type="text/event-stream")
        return JSONResponse({"text": text})

    home = Path("/srv/bloom")
    app = HiddenPaths(Starlette(routes=[Route("/{any}", answer)]), home=home, uploads=home / "uploads")
    client = TestClient(app)
    assert client.get("/json").json() == {"text": shown}
    assert client.get("/events").text == f"data: {shown}\n\n"
