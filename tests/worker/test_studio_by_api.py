"""The studio without a browser: every format and method by HTTP, and a training that nothing disturbs."""

import csv
import hashlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.live_server import LiveServer, live_server
from tests.server.installation import PASSWORD
from tests.tiny_models import make_tiny_model
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("studio_by_api")]

QUESTION, ANSWER = "What is the password?", "The password is seven blue herons."
BEGINNING, REST = "At the old harbour", " the keeper counts seven blue herons."
ROWS = 240
TIMEOUT_SECONDS = 240
TABS = 3


class LiveApp:
    """A server with a worker, and a program of somebody's that knows nothing but HTTP."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._running = ExitStack()
        self.server = self._start()
        self.token = self._first_token()
        self.client = self._new_client()

    def _start(self) -> LiveServer:
        return self._running.enter_context(live_server(self.home, command="up"))

    def _first_token(self) -> str:
        with httpx2.Client(base_url=self.server.address, timeout=60, trust_env=False) as browser:
            link = urlsplit(self.server.setup_link).fragment.removeprefix("token=")
            person = {"name": "Ada", "email": "ada@example.org", "password": PASSWORD}
            signed_in = browser.post("/api/auth/setup", json={"token": link, **person})
            assert signed_in.status_code == 201, signed_in.text
            wanted = {"name": "A program", "scopes": ["read", "write"]}
            headers = {"X-CSRF-Token": signed_in.json()["csrf_token"]}
            made = browser.post("/api/me/tokens", json=wanted, headers=headers)
            assert made.status_code == 201, made.text
            return str(made.json()["token"])

    def _new_client(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.server.address, headers=headers, timeout=120, trust_env=False)

    def kill(self) -> None:
        """All at once, without a chance to tidy up: the parent, the server and the worker; no training."""
        parent = psutil.Process(self.server.process.pid)
        processes = [parent, *parent.children()]
        assert len(processes) == 3
        for process in processes:
            process.kill()
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert not alive
        self.client.close()

    def start_again(self) -> None:
        self.server = self._start()
        self.client = self._new_client()

    def close(self) -> None:
        self.client.close()
        self._running.close()

    def get(self, path: str, **asked: Any) -> dict[str, Any]:
        answer = self.client.get(path, params=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(path, json=body)
        assert answer.status_code in {200, 201}, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def until(self, path: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What is found there once it is as wanted; nothing may have failed on the way."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_so(found := self.get(path)):
            assert found["status"] not in {"failed", "cancelled"}, found
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    def bring_model(self, folder: Path) -> str:
        files = sorted(folder.iterdir())
        listed = [{"path": file.name, "size": file.stat().st_size} for file in files]
        made = self.post("/api/models", {"source": "upload", "name": folder.name, "files": listed})
        for file in files:
            self._send(f"/api/models/{made['id']}/files/{file.name}", file.read_bytes())
        return str(self.until(f"/api/models/{made['id']}", _is_ready)["id"])

    def bring_data(self, filename: str, content: bytes) -> dict[str, Any]:
        made = self.post("/api/datasets", {"filename": filename, "size": len(content)})
        self._send(f"/api/datasets/{made['id']}/content", content)
        return self.until(f"/api/datasets/{made['id']}", _is_ready)

    def _send(self, path: str, content: bytes) -> None:
        answer = self.client.patch(path, content=content, headers={"Upload-Offset": "0"})
        assert answer.status_code == 204, answer.text

    def train(self, dataset_id: str, model_id: str, config: dict[str, Any]) -> str:
        project = {"name": "Herons", "model_architecture": "transformer", "model_size": 0.001}
        ids = {"dataset_id": dataset_id, "model_id": model_id}
        return str(self.post("/api/jobs", {**ids, "project": project, "config": config})["id"])

    def completed(self, job_id: str) -> dict[str, Any]:
        return self.until(f"/api/jobs/{job_id}", lambda job: job["status"] == "completed")

    def open_playground(self, job_id: str) -> None:
        """Loading may take longer than a request of OpenAI's clients waits."""
        playground_path = f"/api/playground/{self.post('/api/playground', {'job_id': job_id})['id']}"
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (found := self.get(playground_path))["state"] != "ready":
            assert found["job"]["status"] != "failed", found
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def close_playgrounds(self) -> None:
        for playground in self.get("/api/playground")["items"]:
            self.post(f"/api/jobs/{playground['job']['id']}/cancel", {})


def _is_ready(found: dict[str, Any]) -> bool:
    return bool(found["status"] == "ready")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    app = LiveApp(tmp_path_factory.mktemp("studio") / "home")
    try:
        yield app
    finally:
        app.close()


@pytest.fixture(scope="module")
def model_id(app: LiveApp, tmp_path_factory: pytest.TempPathFactory) -> str:
    return app.bring_model(make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", family="qwen2"))


def _questions(rows: int = ROWS) -> list[str]:
    # Rows that say the same are never on both sides of the split: they differ.
    return [QUESTION, *(f"Room {number}: {QUESTION}" for number in range(2, rows + 1))]


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _messages_jsonl() -> bytes:
    answer = {"role": "assistant", "content": ANSWER}
    return _lines([{"messages": [{"role": "user", "content": asked}, answer]} for asked in _questions()])


def _sharegpt_jsonl() -> bytes:
    answer = {"from": "gpt", "value": ANSWER}
    return _lines([{"conversations": [{"from": "human", "value": asked}, answer]} for asked in _questions()])


def _alpaca_parquet() -> bytes:
    rows = [{"instruction": asked, "input": "", "output": ANSWER} for asked in _questions()]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def _prompt_completion_csv() -> bytes:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["prompt", "completion"])
    writer.writerows([asked, ANSWER] for asked in _questions())
    return file.getvalue().encode()


def _text_txt() -> bytes:
    nights = (f"Night {number}. {BEGINNING}{REST}\n" for number in range(2, ROWS + 1))
    return "".join([f"{BEGINNING}{REST}\n", *nights]).encode()


@pytest.mark.parametrize(
    ("method", "filename", "row_format", "content"),
    [
        ("qlora", "herons.jsonl", "messages", _messages_jsonl),
        ("qlora", "herons.parquet", "alpaca", _alpaca_parquet),
        ("full", "herons.csv", "prompt_completion", _prompt_completion_csv),
        ("full", "herons.jsonl", "sharegpt", _sharegpt_jsonl),
        ("lora", "herons.txt", "text", _text_txt),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_of_any_format_becomes_a_model_that_says_what_its_base_does_not(
    app: LiveApp, model_id: str, method: str, filename: str, row_format: str, content: Callable[[], bytes]
) -> None:
    dataset = app.bring_data(filename, content())
    mapping = dataset["report"]["mapping"]
    assert (mapping["format"], dataset["report"]["examples"]) == (row_format, ROWS)
    config = {
        "method": method,
        "epochs": 4,
        "batch_size": 2,
        "learning_rate": 3e-3 if method == "full" else 1e-2,
        "model": {"context_length": 64},
    }
    job_id = app.train(dataset["id"], model_id, config)
    done = app.completed(job_id)
    assert (done["config"]["method"], done["dataset_id"], done["model_id"]) == (
        method,
        dataset["id"],
        model_id,
    )

    app.open_playground(job_id)
    said = {which: _say(app, f"{job_id}{which}", row_format) for which in ("", ":base")}
    app.close_playgrounds()
    expected = REST if row_format == "text" else ANSWER
    assert said[""].strip() == expected.strip()
    assert expected.strip() not in said[":base"]


def _say(app: LiveApp, model: str, row_format: str) -> str:
    """What a model writes, asked as OpenAI's clients ask."""
    asked: dict[str, Any] = {"model": model, "max_tokens": 40, "temperature": 0}
    if row_format == "text":
        return str(app.post("/v1/completions", {**asked, "prompt": BEGINNING})["choices"][0]["text"])
    turns = [{"role": "user", "content": QUESTION}]
    answer = app.post("/v1/chat/completions", {**asked, "messages": turns})
    return str(answer["choices"][0]["message"]["content"])


class Tab(threading.Thread):
    """Shows a job as its page does: what there is, then what the stream adds; reconnects when cut off."""

    def __init__(self, app: LiveApp, job_id: str) -> None:
        super().__init__(daemon=True)
        self._app, self._path = app, f"/api/jobs/{job_id}"
        self._closed = threading.Event()
        self.connected = threading.Event()
        self.steps: list[int] = []
        self.reconnected = -1
        self._load()

    def _load(self) -> None:
        curves = self._app.get(f"{self._path}/metrics", series="train/loss", points=5_000)
        self._position = int(curves["position"])
        self.steps = [int(x) for curve in curves["series"] for x in curve["x"]]

    def run(self) -> None:
        while not self._closed.is_set():
            try:
                self._read()
            except (httpx2.TransportError, RuntimeError):
                # The server is gone, and with it the address; a closed client raises RuntimeError.
                time.sleep(0.1)

    def _read(self) -> None:
        headers = {"Last-Event-ID": str(self._position)}
        with self._app.client.stream("GET", f"{self._path}/stream", headers=headers, timeout=5) as answer:
            assert answer.status_code == 200
            self.reconnected += 1
            self.connected.set()
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                if self._closed.is_set():
                    return
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                    continue
                if "id" in event and not self._take(event):
                    # It was away for too long to be told everything that it missed.
                    self._load()
                    return
                event = {}

    def _take(self, event: dict[str, str]) -> bool:
        """False: the curves have to be loaded again."""
        update = json.loads(event["data"])
        if event["event"] == "reset" or update.get("reload"):
            return False
        assert event["event"] == "delta", event
        self._position = int(event["id"])
        for series in update.get("series", []):
            if series["name"] == "train/loss":
                self.steps += [int(x) for x in series["x"]]
        return True

    def close(self) -> None:
        self._closed.set()
        self.join(30)
        assert not self.is_alive()


def _open_tabs(app: LiveApp, job_id: str) -> list[Tab]:
    tabs = [Tab(app, job_id) for _ in range(TABS)]
    for tab in tabs:
        tab.start()
    # On a busy machine a tab may know all steps so far from its first answer, before its stream is open.
    for tab in tabs:
        assert tab.connected.wait(TIMEOUT_SECONDS), "the stream of a tab was never opened"
    return tabs


def _wait_for_step(tabs: list[Tab], step: int) -> None:
    wait_until(
        lambda: all(max(tab.steps, default=0) >= step for tab in tabs),
        f"step {step} in every tab",
        TIMEOUT_SECONDS,
    )


def _hashes(app: LiveApp, job_id: str) -> dict[str, str]:
    """Of the finished model's weights, as they are downloaded."""
    files = app.get(f"/api/jobs/{job_id}/model")["items"]
    names = [file["path"] for file in files if file["path"].endswith(".safetensors")]
    contents = {name: app.client.get(f"/api/jobs/{job_id}/model/files/{name}") for name in names}
    assert names
    assert all(answer.status_code == 200 for answer in contents.values())
    return {name: hashlib.sha256(answer.content).hexdigest() for name, answer in contents.items()}


@pytest.mark.timeout(1800)
def test_closed_tabs_and_a_killed_server_leave_the_weights_of_an_undisturbed_training(
    app: LiveApp, tmp_path: Path
) -> None:
    folder = make_tiny_model(tmp_path / "larger", hidden_size=128, layers=4)
    model = app.bring_model(folder)
    rows = [{"prompt": asked, "completion": ANSWER} for asked in _questions(3_000)]
    dataset = app.bring_data("many.jsonl", _lines(rows))
    config = {
        "method": "full",
        "seed": 7,
        # Enough for the longest training below.
        "epochs": 20,
        "batch_size": 4,
        "learning_rate": 1e-3,
        "model": {"context_length": 256},
        "checkpoint": {"every_epochs": 0, "every_steps": 40},
        "eval": {"max_batches": 2},
    }
    steps, after_restart = 40, 0
    # On a busy machine a server may start for longer than a training takes: then a longer training is needed.
    while after_restart < 10:
        steps *= 4
        assert steps <= 2_560, f"only {after_restart} steps were made after the restart"
        disturbed = app.train(dataset["id"], model, {**config, "max_steps": steps})
        tabs, restarted = _watched_through_a_restart(app, disturbed)
        done = app.completed(disturbed)
        _wait_for_step(tabs, steps)
        for tab in tabs:
            tab.close()
        after_restart = sum(time > restarted for time in _step_times(app, disturbed).values())
    undisturbed = app.train(dataset["id"], model, {**config, "max_steps": steps})
    app.completed(undisturbed)

    assert done["attempt"] == 1, "the training itself was never interrupted"
    every_step = list(range(1, steps + 1))
    for job_id in (undisturbed, disturbed):
        (curve,) = app.get(f"/api/jobs/{job_id}/metrics", series="train/loss", points=5_000)["series"]
        assert [int(x) for x in curve["x"]] == every_step
    for tab in tabs:
        assert tab.steps == every_step, "each tab was told of every step once"
        assert tab.reconnected >= 1
    hashes = _hashes(app, undisturbed)
    assert _hashes(app, disturbed) == hashes
    untrained = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert untrained not in hashes.values()


def _watched_through_a_restart(app: LiveApp, job_id: str) -> tuple[list[Tab], datetime]:
    """The tabs that saw it, and when the server was there again."""
    tabs = _open_tabs(app, job_id)
    _wait_for_step(tabs, 5)
    for tab in tabs:
        tab.close()
    left_at = max(step for tab in tabs for step in tab.steps)
    app.until(f"/api/jobs/{job_id}", lambda job: job["summary"]["step"] >= left_at + 5)
    tabs = _open_tabs(app, job_id)
    _wait_for_step(tabs, left_at + 10)
    app.kill()
    app.start_again()
    return tabs, datetime.now(UTC)


def _step_times(app: LiveApp, job_id: str) -> dict[int, datetime]:
    answer = app.client.get(f"/api/training-jobs/{job_id}/metrics", params={"limit": 5_000})
    assert answer.status_code == 200, answer.text
    return {row["step"]: datetime.fromisoformat(row["timestamp"]) for row in answer.json()["items"]}
