"""Training data by address: fetched once, with the secrets of the job, or a sentence with the next step."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from gpubloom.datasets.downloading import FetchProblem
from gpubloom.datasets.remote_data import fetch_data, is_remote, name_of
from gpubloom.plan import DataConfig
from gpubloom.worker.inputs import Fetching, fetch_inputs, stage_inputs
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server, server  # noqa: F401

ROWS = b'{"text": "to be or not to be"}\n' * 20
FILES = {"data/one.jsonl": ROWS, "data/two.jsonl": b'{"text": "that"}\n', "README.md": b"# About"}
TOKEN = "hf_secret"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The Hub as its documentation describes it: a private dataset, whose files are on another host."""
    asked: list[tuple[str, str | None]] = []
    # Empty lists, and the address of the page after each.
    lists: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Tests are quiet."""

        def do_GET(self) -> None:
            path, token = urlsplit(self.path).path, self.headers.get("Authorization")
            asked.append((path, token))
            if path.startswith("/cdn/"):
                return self._answer(200, FILES[path.removeprefix("/cdn/")])
            if token != f"Bearer {TOKEN}":
                return self._answer(401, b"")
            if path in lists:
                return self._answer(200, b"[]", link=lists[path])
            if path == "/api/datasets/ann/poems/tree/main":
                entries = [{"type": "file", "path": name} for name in FILES]
                return self._answer(
                    200, json.dumps([{"type": "directory", "path": "data"}, *entries]).encode()
                )
            name = path.removeprefix("/datasets/ann/poems/resolve/main/")
            if name not in FILES:
                return self._answer(404, b"")
            return self._answer(302, b"", f"http://127.0.0.1:{serving.server_port}/cdn/{name}")

        def _answer(self, status: int, body: bytes, location: str = "", link: str = "") -> None:
            self.send_response(status)
            self.send_header("Link", f'<{link}>; rel="next"' if link else "")
            self.send_header("Location", location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, args=(0.05,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{serving.server_port}")
    monkeypatch.setenv("BLOOM_EGRESS_ALLOW", "127.0.0.1")
    yield SimpleNamespace(asked=asked, lists=lists, url=f"http://127.0.0.1:{serving.server_port}")
    serving.shutdown()
    serving.server_close()


def test_a_file_of_the_hub_is_fetched_once_and_its_token_stays_with_the_hub(
    hub: SimpleNamespace, tmp_path: Path
) -> None:
    address = "hf://datasets/ann/poems/data/one.jsonl"
    found = fetch_data(address, tmp_path, {"HF_TOKEN": TOKEN})
    assert (found.name, found.read_bytes()) == ("one.jsonl", ROWS)
    assert [token for path, token in hub.asked if path.startswith("/cdn/")] == [None]
    before = len(hub.asked)
    assert fetch_data(address, tmp_path, {"HF_TOKEN": TOKEN}) == found
    assert len(hub.asked) == before


def test_a_dataset_of_the_hub_becomes_a_folder(hub: SimpleNamespace, tmp_path: Path) -> None:
    found = fetch_data("hf://datasets/ann/poems", tmp_path, {"HF_TOKEN": TOKEN})
    files = {path.relative_to(found).as_posix() for path in found.rglob("*.*") if path.is_file()}
    assert files == {"data/one.jsonl", "data/two.jsonl"}


def test_more_files_than_the_limit_are_refused_instead_of_left_out(
    hub: SimpleNamespace,
    server: S3Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpubloom.datasets.remote_data._MOST_FILES", 1)
    for name in ("one", "two"):
        path = server.folder / "bucket" / "many" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ROWS)
    secrets = {"HF_TOKEN": TOKEN, **server.credentials}
    for address in ("hf://datasets/ann/poems", "s3://bucket/many/"):
        with pytest.raises(FetchProblem) as problem:
            fetch_data(address, tmp_path, secrets)
        assert problem.value.code == "too_many_files"


@pytest.mark.parametrize(
    ("address", "secrets", "code"),
    [
        ("hf://datasets/ann/poems/data/one.jsonl", {}, "data_access_denied"),
        ("hf://datasets/ann/poems", {"HF_TOKEN": "revoked"}, "data_access_denied"),
        ("hf://datasets/ann/poems/none.jsonl", {"HF_TOKEN": TOKEN}, "data_not_found"),
        ("hf://ann/poems", {}, "invalid_address"),
    ],
)
def test_what_is_wrong_is_said_with_the_next_step(
    hub: SimpleNamespace, tmp_path: Path, address: str, secrets: dict[str, str], code: str
) -> None:
    with pytest.raises(FetchProblem) as problem:
        fetch_data(address, tmp_path, secrets)
    assert problem.value.code == code
    assert "HF_TOKEN" in str(problem.value) or code != "data_access_denied"


def test_objects_of_a_bucket_are_fetched_with_the_secrets_of_the_job(
    server: S3Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BLOOM_EGRESS_ALLOW", "127.0.0.1")
    for name, content in FILES.items():
        path = server.folder / "bucket" / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    endpoint = server.address
    secrets = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": endpoint}
    one = fetch_data("s3://bucket/corpus/data/one.jsonl", tmp_path, secrets, trusted=False)
    assert (one.name, one.read_bytes()) == ("one.jsonl", ROWS)
    folder = fetch_data("s3://bucket/corpus/data/", tmp_path, secrets, trusted=False)
    assert {path.name for path in folder.iterdir()} == {"one.jsonl", "two.jsonl"}
    with pytest.raises(FetchProblem) as missing:
        fetch_data("s3://bucket/nothing", tmp_path, secrets, trusted=False)
    assert missing.value.code == "data_not_found"
    with pytest.raises(FetchProblem) as denied:
        fetch_data("s3://bucket/corpus/x", tmp_path, {**secrets, "AWS_SECRET_ACCESS_KEY": "w"}, trusted=False)
    assert "AWS_SECRET_ACCESS_KEY" in str(denied.value) or "credentials" in str(denied.value)


def test_credentials_of_the_server_are_not_those_of_a_job(
    server: S3Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = server.address
    (server.folder / "bucket" / "private.jsonl").write_bytes(ROWS)
    for name, value in {"BLOOM_EGRESS_ALLOW": "127.0.0.1", "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(FetchProblem) as denied:
        fetch_data("s3://bucket/private.jsonl", tmp_path, {"AWS_ENDPOINT_URL": endpoint}, trusted=False)
    # Services differ in how they refuse a request without a signature.
    assert denied.value.code in {"data_access_denied", "no_network"}
    # Whoever runs this process may use its own.
    assert fetch_data("s3://bucket/private.jsonl", tmp_path).read_bytes() == ROWS


def test_an_address_opens_no_door_of_the_operators_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLOOM_EGRESS_ALLOW", raising=False)
    emulator = json.dumps({"gcs_base_url": "http://127.0.0.1:9", "disable_oauth": True})
    for address, secrets in (
        ("https://127.0.0.1/x.jsonl", {}),
        ("s3://bucket/x.jsonl", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}),
        # The library looks the name up again, and without a certificate anybody may answer.
        ("s3://bucket/x.jsonl", {"AWS_ENDPOINT_URL": "http://8.8.8.8"}),
        ("s3://bucket/x.jsonl", {"AWS_REGION": "x@127.0.0.1/"}),
        ("s3://user@bucket/x.jsonl", {}),
        ("gs://bucket/x.jsonl", {"GOOGLE_SERVICE_ACCOUNT_KEY": emulator}),
    ):
        with pytest.raises(FetchProblem) as refused:
            fetch_data(address, tmp_path, secrets, trusted=False)
        assert refused.value.code == "egress_refused", address


def test_no_more_is_fetched_than_the_quota_leaves(
    hub: SimpleNamespace,
    server: S3Server,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = server.folder / "bucket" / "full" / "one.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ROWS)
    secrets = {"HF_TOKEN": TOKEN, **server.credentials}
    # The second address has two files; only the first of them has room.
    for address, room in (
        ("hf://datasets/ann/poems/data/one.jsonl", len(ROWS) - 1),
        ("hf://datasets/ann/poems", len(ROWS) + 1),
        ("s3://bucket/full/", len(ROWS) - 1),
    ):
        folder = tmp_path / address.partition("://")[0] / str(room)
        with pytest.raises(FetchProblem) as problem:
            fetch_data(address, folder, secrets, room=room)
        assert problem.value.code == "quota_exceeded"
        assert sum(file.stat().st_size for file in folder.rglob("*.jsonl*") if file.is_file()) <= room
        assert fetch_data(address, folder / "roomy", secrets, room=10 * len(ROWS)).exists()


def test_a_training_gets_files_here_and_keeps_the_address_on_a_rented_machine(
    hub: SimpleNamespace, tmp_path: Path
) -> None:
    local = tmp_path / "words.txt"
    local.write_text("words")
    config = {"data": {"train_path": "hf://datasets/ann/poems/data/one.jsonl", "eval_path": str(local)}}
    here = fetch_inputs(tmp_path / "run", config, Fetching({"HF_TOKEN": TOKEN}, room=len(ROWS)))
    assert (tmp_path / "run" / here["data"]["train_path"]).read_bytes() == ROWS
    assert here["data"]["train_path"].startswith("inputs/")
    there = stage_inputs(tmp_path / "rented", config)
    assert there["data"]["train_path"] == config["data"]["train_path"]
    assert there["data"]["eval_path"] == "inputs/eval/words.txt"


def test_the_engine_opens_an_address(
    hub: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = pytest.importorskip("gpubloom.engine").Dataset
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    config = DataConfig(train_path="hf://datasets/ann/poems/data/one.jsonl", eval_fraction=0.2)
    opened = dataset.open(config, 8, cache=tmp_path / "run" / ".examples")
    assert len(opened.train) > 0
    assert (tmp_path / "run" / ".data").is_dir()


def test_data_is_called_by_the_last_part_of_its_address() -> None:
    names = {
        "s3://bucket/corpus/": "corpus",
        "s3://bucket": "bucket",
        "https://host/a/train%20set.jsonl?x=1": "train_set.jsonl",
        "hf://datasets/ann/poems@v1": "poems",
        "hf://datasets/ann/poems@v1/data/one.jsonl": "one.jsonl",
        "gs://bucket/..": "data",
    }
    assert {address: name_of(address) for address in names} == names


def test_only_addresses_are_remote() -> None:
    assert all(map(is_remote, ("s3://b/x", "gs://b/x", "hf://datasets/a/b", "https://h/x")))
    assert not any(map(is_remote, (None, "data.txt", "/data/x", "dataset://1", "http://h/x", "az://c/x")))


def test_the_token_does_not_follow_a_list_to_another_host(hub: SimpleNamespace, tmp_path: Path) -> None:
    hub.lists["/api/datasets/ann/poems/tree/main"] = hub.url.replace("127.0.0.1", "localhost") + "/elsewhere"
    with pytest.raises(FetchProblem, match="cannot be read"):
        fetch_data("hf://datasets/ann/poems", tmp_path, {"HF_TOKEN": TOKEN})
    assert [path for path, _ in hub.asked] == ["/api/datasets/ann/poems/tree/main"]


def test_a_list_without_an_end_is_left(
    hub: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.datasets.remote_data._MOST_PAGES", 5)
    page = "/api/datasets/ann/poems/tree/main"
    hub.lists[page] = hub.url + page
    with pytest.raises(FetchProblem) as problem:
        fetch_data("hf://datasets/ann/poems", tmp_path, {"HF_TOKEN": TOKEN})
    assert (problem.value.code, len(hub.asked)) == ("too_many_files", 5)
