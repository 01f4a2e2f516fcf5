"""Answers through a real server: as they are written, to OpenAI's client, and only while somebody reads."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest

from gpubloom.server.jobs.tables import TrainingJob
from tests.errors import raises
from tests.live_server import LiveServer, live_server
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job
from tests.server.playground.fake_serve import FakeServe, fake_serve


class PlaygroundServer:
    """A server with one person, their token, and a playground whose process is the test's."""

    def __init__(self, home: Path, process: FakeServe) -> None:
        self.home = home
        self.process = process
        self.installation = Installation(home, f"sqlite+aiosqlite:///{home / 'bloom.db'}")

    def start_playground(self, server: LiveServer) -> None:
        self.server = server
        ada = self.installation.add_user("Ada")
        self.token, _ = self.installation.add_token(ada)
        self.job: TrainingJob = add_job(self.installation, ada, kind="serve", status="running", name="tune")
        self.process.announce(self.home, self.job.id)

    def client(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.server.address, headers=headers, timeout=60, trust_env=False)

    def body(self, text: str, *, stream: bool) -> dict[str, object]:
        return {"model": "tune", "messages": [{"role": "user", "content": text}], "stream": stream}


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[PlaygroundServer]:
    with fake_serve() as process:
        playground = PlaygroundServer(tmp_path / "home", process)
        with live_server(playground.home) as server:
            playground.start_playground(server)
            yield playground


@pytest.mark.long
def test_words_arrive_when_they_are_written_and_survive_a_restart_of_the_server(
    playground: PlaygroundServer,
) -> None:
    with (
        playground.client() as client,
        client.stream("POST", "/v1/chat/completions", json=playground.body("slow", stream=True)) as answer,
    ):
        lines = (line for line in answer.iter_lines() if line)
        assert "One" in next(lines), "the process has not written the second word yet"
        playground.process.go.release()
        assert " two" in next(lines)
        playground.process.go.release()
        assert [" three" in next(lines), next(lines)] == [True, "data: [DONE]"]
    playground.server.process.terminate()
    playground.server.process.wait(timeout=60)
    with live_server(playground.home) as again:
        playground.server = again
        with playground.client() as client:
            answered = client.post("/v1/chat/completions", json=playground.body("hello", stream=False))
        assert answered.json()["choices"][0]["message"]["content"] == "One two three"


@pytest.mark.long
def test_when_the_client_leaves_the_process_is_told_so(playground: PlaygroundServer) -> None:
    with playground.client() as client:
        with client.stream(
            "POST", "/v1/chat/completions", json=playground.body("slow", stream=True)
        ) as answer:
            assert "One" in next(answer.iter_lines())
        # The process notices when it writes into the closed connection.
        deadline = time.monotonic() + 60
        while not playground.process.left.is_set():
            assert time.monotonic() < deadline, "the process still writes for nobody"
            playground.process.go.release()
            time.sleep(0.1)
        playground.process.left.clear()
        # Nothing was sent yet: an answer in one piece is still being written.
        with pytest.raises(httpx2.TimeoutException):
            client.post("/v1/chat/completions", json=playground.body("slow", stream=False), timeout=1)
        assert playground.process.left.wait(60)


@pytest.mark.long
def test_openais_client_streams_completes_and_reads_errors(playground: PlaygroundServer) -> None:
    with openai.OpenAI(
        base_url=f"{playground.server.address}/v1", api_key=playground.token, max_retries=0, timeout=60
    ) as client:
        assert [model.id for model in client.models.list()] == [str(playground.job.id)]
        messages = json.loads('[{"role": "user", "content": "hello"}]')
        stream = client.chat.completions.create(model="tune", messages=messages, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "One two three"
        whole = client.completions.create(model=f"{playground.job.id}:base", prompt="hello")
        assert whole.choices[0].text == "One two three"
        with raises(openai.NotFoundError, code="model_not_found"):
            client.chat.completions.create(model="other", messages=messages)
        with raises(openai.BadRequestError, code="context_length_exceeded"):
            client.completions.create(model="tune", prompt="refuse")
