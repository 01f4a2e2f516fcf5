"""A downloaded adapter names its base model as others know it, never by a folder of the server."""

import io
import json
import tarfile
from uuid import uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.models.tables import Model
from tests.server.bringing import on_sqlite
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job


@on_sqlite
@pytest.mark.parametrize(
    ("base", "named"),
    [
        ("HOME/models/FETCHED", "acme/tiny"),
        ("HOME/models/UPLOADED", "my model"),
        ("UPLOADED", "my model"),
        ("HOME/models/THEIRS", "unknown"),
        ("HOME/hub/models/acme--small/" + "0123456789" * 4, "acme/small"),
        ("/srv/models/llama", "llama"),
        ("acme/already", "acme/already"),
        (None, None),
    ],
)
def test_the_base_of_a_downloaded_adapter_is_a_name(
    server: Server, installation: Installation, member: User, base: str | None, named: str | None
) -> None:
    rows = {
        "FETCHED": Model(id=uuid4(), user_id=member.id, name="a", repository="acme/tiny"),
        "UPLOADED": Model(id=uuid4(), user_id=member.id, name="my model"),
        "THEIRS": Model(id=uuid4(), user_id=installation.add_user("Bo").id, name="secret"),
    }
    for word, row in rows.items():
        row.source, row.status, row.size, row.received = "hub", "ready", 1, 1
        installation.add(row)
        base = base and base.replace(word, str(row.id))
    base = base and base.replace("HOME", str(installation.home))
    job = add_job(installation, member, status="completed")
    model = installation.home / "runs" / str(job.id) / "model"
    model.mkdir(parents=True)
    written = {"peft_type": "LORA", "base_model_name_or_path": base, "r": 8}
    (model / "adapter_config.json").write_text(json.dumps(written))
    (model / "adapter_model.safetensors").write_bytes(bytes(3_000))
    browser, address = server.signed_in(member), f"/api/jobs/{job.id}/model"
    content = browser.get(f"{address}/files/adapter_config.json").content
    assert json.loads(content) == {**written, "base_model_name_or_path": named}
    listed = browser.get(address).json()
    assert listed["items"][0] == {"path": "adapter_config.json", "size": len(content)}
    archive = browser.get(f"{address}/archive").content
    assert len(archive) == listed["archive_size"]
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {member.name.partition("/")[2]: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert files == {"adapter_config.json": content, "adapter_model.safetensors": bytes(3_000)}
    assert str(installation.home).encode() not in archive


@on_sqlite
@pytest.mark.parametrize("content", [b"[" * 100_000, b"[1]", b"\xff", b'{"base_model_name_or_path": ["/a"]}'])
def test_an_adapter_config_that_is_no_object_is_sent_as_it_is(
    server: Server, installation: Installation, member: User, content: bytes
) -> None:
    job = add_job(installation, member, status="completed")
    model = installation.home / "runs" / str(job.id) / "model"
    model.mkdir(parents=True)
    (model / "adapter_config.json").write_bytes(content)
    answer = server.signed_in(member).get(f"/api/jobs/{job.id}/model/files/adapter_config.json")
    assert (answer.status_code, answer.content) == (200, content)
