"""`bloom datasets list`, `show` and `upload` against a real server with a worker."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.chat_endpoint import serving
from tests.documents import encrypt_pdf, make_pdf
from tests.errors import printed
from tests.live_server import LiveServer, live_server
from tests.ports import free_port
from tests.server.installation import Installation

# Together, so that the server is started once.
pytestmark = pytest.mark.xdist_group("bloom datasets")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server") / "home", command="up") as running:
        yield running


@pytest.fixture(scope="module")
def token(server: LiveServer) -> str:
    installation = Installation(server.home, f"sqlite+aiosqlite:///{server.home / 'bloom.db'}")
    return installation.add_token(installation.add_user("Ada"), "read", "write")[0]


def _bloom(address: str, token: str, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", "datasets", *arguments],
        env={
            **os.environ,
            "BLOOM_SERVER": address,
            "BLOOM_TOKEN": token,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.long
def test_a_file_is_uploaded_inspected_listed_and_shown(
    server: LiveServer, token: str, tmp_path: Path
) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(b'{"prompt": "What?", "completion": "That."}\n' * 200_000)
    sent = _bloom(server.address, token, tmp_path, "upload", str(file), "--name", "Pairs", "--json")
    assert sent.returncode == 0, sent.stderr
    dataset = json.loads(sent.stdout)
    assert (dataset["status"], dataset["report"]["rows"]) == ("ready", 200_000)
    listed = _bloom(server.address, token, tmp_path, "list")
    assert dataset["id"] in listed.stdout
    assert "200,000" in listed.stdout
    shown = _bloom(server.address, token, tmp_path, "show", dataset["id"])
    assert "prompt_completion: 200,000 examples" in shown.stdout
    assert "Duplicate rows: 199,999" in shown.stdout


@pytest.mark.long
def test_an_upload_that_broke_off_is_continued_by_its_id(
    server: LiveServer, token: str, tmp_path: Path
) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(b"prompt,completion\n" + b"a,b\n" * 100)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=server.address, headers=headers) as client:
        body = {"filename": "table.csv", "size": file.stat().st_size}
        dataset_id = client.post("/api/datasets", json=body).json()["id"]
        path = f"/api/datasets/{dataset_id}/content"
        client.patch(path, content=file.read_bytes()[:50], headers={"Upload-Offset": "0"})
    sent = _bloom(server.address, token, tmp_path, "upload", str(file), "--continue", dataset_id, "--json")
    assert sent.returncode == 0, sent.stderr
    assert json.loads(sent.stdout)["report"]["rows"] == 100


@pytest.mark.long
def test_a_file_that_is_no_dataset_ends_with_its_reason(
    server: LiveServer, token: str, tmp_path: Path
) -> None:
    packed = tmp_path / "packed.csv"
    packed.write_bytes(b"PK\x03\x04" + b"\0" * 100)
    refused = _bloom(server.address, token, tmp_path, "upload", str(packed))
    assert refused.returncode == 1
    assert "packed.csv is a zip archive" in refused.stdout
    other = tmp_path / "model.bin"
    other.write_bytes(b"x")
    answer = _bloom(server.address, token, tmp_path, "upload", str(other))
    assert (answer.returncode, printed(answer.stderr)) == (2, ["wrong_suffix"])
    assert _bloom(server.address, token, tmp_path, "upload", "/nowhere.csv").returncode == 2


@pytest.mark.long
def test_a_folder_of_documents_becomes_passages_and_questions(
    server: LiveServer, token: str, tmp_path: Path
) -> None:
    folder = tmp_path / "handbook"
    folder.mkdir()
    for number in range(3):
        text = f"Lamp {number} is cleaned on Monday with warm water, and lit before the sun goes down."
        (folder / f"lamp-{number}.pdf").write_bytes(make_pdf([text]))
    (folder / "locked.pdf").write_bytes(encrypt_pdf(make_pdf(["Nothing."]), "closed"))
    (folder / "picture.png").write_bytes(b"x")
    made = _bloom(server.address, token, tmp_path, "from-documents", str(folder))
    assert made.returncode == 0, made.stderr
    assert "text: 3 examples in 3 rows" in made.stdout
    assert "handbook/locked.pdf is encrypted" in made.stdout
    again = _bloom(server.address, token, tmp_path, "from-documents", str(folder / "lamp-1.pdf"), "--json")
    dataset = json.loads(again.stdout)
    assert (dataset["documents"]["passages"], dataset["name"]) == (1, "lamp-1")
    with serving() as endpoint:
        order = ("questions", dataset["id"], "--endpoint", endpoint.address, "--model", "writer")
        asked = _bloom(server.address, token, tmp_path, *order)
        assert asked.returncode == 1
        assert "1 requests for up to 2 pairs: at most" in asked.stdout
        assert endpoint.asked == []
        written = _bloom(server.address, token, tmp_path, *order, "--yes", "--json")
        assert written.returncode == 0, written.stderr
    questions = json.loads(written.stdout)
    assert (questions["report"]["examples"], questions["questions"]["pairs_kept"]) == (1, 1)
    refused = _bloom(server.address, token, tmp_path, "continue-questions", questions["id"])
    assert printed(refused.stderr) == ["nothing_to_continue"]
    assert printed(_bloom(server.address, token, tmp_path, "stop-questions", questions["id"]).stderr) == [
        "not_generating"
    ]


def test_a_folder_without_documents_is_refused_before_the_server_is_asked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nobody = f"http://127.0.0.1:{free_port()}"
    for path in ("empty", "nowhere"):
        refused = _bloom(nobody, "bloom_token", tmp_path, "from-documents", str(tmp_path / path))
        assert (refused.returncode, printed(refused.stderr)) == (2, ["data_not_found"])
