"""The task `serve` as a process: says where it listens, satisfies the openai client, ends by itself."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.plan.tasks import ServeTask, task_files
from gpubloom.traincard import ControlFile
from gpubloom.traincard.reader import load_latest
from tests.engine.runs import Run, in_shards, read_events
from tests.errors import printed, raises

START_SECONDS = 120
QUESTION: Any = [{"role": "user", "content": "What is the password?"}]


class Served:
    """A serve process in a directory of its own."""

    def __init__(self, home: Path, model: Path, **fields: Any) -> None:
        home.mkdir(parents=True)
        self.home = home
        for name, text in task_files(ServeTask(model=str(model), device="cpu", **fields), "0").items():
            (home / name).write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, str(home / "task.py")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def address(self) -> dict[str, Any]:
        """serve.json, once it is there."""
        until = time.monotonic() + START_SECONDS
        while not (self.home / "serve.json").exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < until
            time.sleep(0.05)
        found: dict[str, Any] = json.loads((self.home / "serve.json").read_text())
        return found

    def client(self) -> openai.OpenAI:
        address = self.address()
        return openai.OpenAI(
            base_url=f"http://127.0.0.1:{address['port']}/v1", api_key=address["token"], max_retries=0
        )

    def ended(self, seconds: float = 120) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.mark.long
def test_a_playground_does_not_load_the_base_that_an_adapters_file_names(
    tmp_path: Path, adapter: Path
) -> None:
    with Served(tmp_path / "serve", adapter) as served:
        code, output = served.ended(START_SECONDS)
    assert code == 2
    assert "contains an adapter" in output
    assert not (served.home / "serve.json").exists()


@pytest.mark.long
def test_the_openai_client_is_satisfied_until_somebody_cancels(
    tmp_path: Path, adapter: Path, base: Path
) -> None:
    with Served(tmp_path / "serve", adapter, base=str(base)) as served, served.client() as client:
        address = served.address()
        assert (served.home / "serve.json").stat().st_mode & 0o777 == 0o600
        assert {key: address[key] for key in ("v", "models", "context_length", "chat_template")} == {
            "v": 1,
            "models": ["base", "tuned"],
            "context_length": 512,
            "chat_template": True,
        }
        assert [model.id for model in client.models.list()] == ["base", "tuned"]
        said = {}
        for name in ("base", "tuned"):
            options: Any = {"model": name, "messages": QUESTION, "temperature": 0, "max_tokens": 16}
            whole = client.chat.completions.create(**options)
            said[name] = whole.choices[0].message.content
            pieces = [
                chunk.choices[0].delta.content or ""
                for chunk in client.chat.completions.create(**options, stream=True)
            ]
            assert "".join(pieces) == said[name]
            assert len([piece for piece in pieces if piece]) > 3
        assert said["base"] != said["tuned"]
        text = client.completions.create(model="base", prompt="What is", max_tokens=4)
        assert text.usage is not None
        assert text.usage.completion_tokens <= 4
        with raises(openai.BadRequestError, code="context_length_exceeded", match="512"):
            client.completions.create(model="base", prompt="x", max_tokens=4_000)
        with raises(openai.AuthenticationError, code="invalid_api_key"):
            client.with_options(api_key="wrong").models.list()

        ControlFile(served.home).want("cancel")
        assert served.ended() == (0, "cancelled\n")
        assert not (served.home / "serve.json").exists()
    latest = load_latest(served.home)
    assert latest is not None
    assert latest["status"] == "cancelled"
    assert "serve" in [event["phase"] for event in read_events(served.home, "phase")]
    assert read_events(served.home, "heartbeat")
    metrics = [event["values"] for event in read_events(served.home, "metric")]
    counted = [values["serve/requests"] for values in metrics if "serve/requests" in values]
    assert max(counted) == 5
    assert all(values["serve/tokens_per_second"] > 0 for values in metrics if "serve/requests" in values)


@pytest.fixture
def own_run(make_run: Callable[..., Run]) -> Path:
    run = make_run(max_steps=1)
    run.train()
    (run.folder / "config.json").write_text(run.config.to_json())
    return run.folder


@pytest.mark.long
def test_nobody_asks_and_the_process_and_its_memory_are_gone(tmp_path: Path, own_run: Path) -> None:
    before = psutil.Process().memory_info().rss
    with Served(tmp_path / "serve", own_run, idle_minutes=0.1) as served, served.client() as client:
        assert served.address()["models"] == ["model"]
        child = psutil.Process(served.process.pid)
        assert child.memory_info().rss > 50e6
        started = time.monotonic()
        answer = client.completions.create(model="model", prompt="The quick", max_tokens=5, temperature=0)
        assert answer.choices[0].finish_reason == "length"
        with raises(openai.BadRequestError, code="no_chat_template"):
            client.chat.completions.create(model="model", messages=QUESTION)
        assert served.ended() == (0, "completed\n")
        assert time.monotonic() - started > 0.1 * 60
        assert not child.is_running()
        assert not (served.home / "serve.json").exists()
    assert psutil.Process().memory_info().rss - before < 50e6
    result = json.loads((served.home / "result.json").read_text())
    assert (result["requests"], result["tokens"]) == (1, 5)
    assert (load_latest(served.home) or {})["status"] == "completed"


@pytest.mark.long
def test_sharded_checkpoints_are_served_from_copies_that_end_with_the_process(
    tmp_path: Path, own_run: Path
) -> None:
    checkpoint = list_checkpoints(own_run / "checkpoints")[-1]
    asked: Any = {"prompt": "The quick", "max_tokens": 5, "temperature": 0}
    with Served(tmp_path / "whole", checkpoint) as served, served.client() as client:
        expected = client.completions.create(model="model", **asked).choices[0].text
    in_shards(checkpoint)
    # The newest checkpoint of a run that has no final model yet.
    shutil.rmtree(own_run / "model")
    with Served(tmp_path / "serve", own_run, other=str(checkpoint)) as served, served.client() as client:
        for name in ("model", "other"):
            assert client.completions.create(model=name, **asked).choices[0].text == expected
        ControlFile(served.home).want("cancel")
        assert served.ended() == (0, "cancelled\n")
    assert not list(served.home.glob("*weights"))


@pytest.mark.long
def test_sigterm_ends_it(tmp_path: Path, own_run: Path) -> None:
    with Served(tmp_path / "serve", own_run) as served, served.client():
        served.process.send_signal(signal.SIGTERM)
        assert served.ended()[0] == 0
        assert not (served.home / "serve.json").exists()


@pytest.mark.long
def test_what_cannot_be_served_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with Served(tmp_path / "serve", tmp_path / "nothing") as served:
        code, output = served.ended(START_SECONDS)
    assert (code, printed(output)) == (2, ["not_a_model_folder"])
    assert str(tmp_path / "nothing") in output
    assert not (served.home / "serve.json").exists()
