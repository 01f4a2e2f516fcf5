"""`bloom chat` as a person uses it: a real model process, a real terminal's signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.cli.chat import Conversation, Sampling, _converse, _names
from gpubloom.engine.pretrained_text import ON_CPU
from gpubloom.engine.serving.model_registry import ModelRegistry
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.serving.speakers import TOKEN, listening, make_adapter
from tests.errors import printed, raises
from tests.tiny_models import make_tiny_model

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=8, seed=None)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "gpubloom.cli", "chat", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"},
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("chat") / "base", context_length=4_096)


@pytest.fixture(scope="module")
def adapter(base: Path) -> Path:
    return make_adapter(base.parent / "adapter", base)


@pytest.fixture(scope="module")
def served(adapter: Path, base: Path) -> Iterator[dict[str, object]]:
    """serve.json of an adapter that is served by this process."""
    found = find_model(adapter, base)
    with listening(ModelRegistry(found, ON_CPU), PromptFormatter.of(found)) as (_, client):
        yield {"port": client.base_url.port, "token": TOKEN, "context_length": 4_096, "chat_template": True}


@pytest.mark.long
def test_base_and_tuned_are_asked_in_one_go(adapter: Path, base: Path) -> None:
    options = (
        "--base-model",
        str(base),
        "--compare",
        "--max-tokens",
        "8",
        "--temperature",
        "0",
        "--device",
        "cpu",
    )
    process = start(str(adapter), "-p", "What is the password?", *options)
    output, errors = process.communicate(timeout=150)
    assert (process.returncode, errors) == (0, "")
    before, _, after = output.partition("\ntuned: ")
    assert before.startswith("base: ")
    assert after
    assert before.removeprefix("base: ") != after.rstrip("\n")


@pytest.mark.long
def test_ctrl_c_stops_an_answer_and_twice_quits(base: Path) -> None:
    process = start(str(base), "--temperature", "1", "--max-tokens", "4000", "--device", "cpu")
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write("What is the password?\n")
        process.stdin.flush()
        assert process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    finally:
        if process.poll() is None:
            process.kill()
        output, errors = process.communicate()
    assert "Traceback" not in errors
    # 4,000 tokens are thousands of characters.
    assert len(output) < 3_000


def test_a_conversation_goes_on_line_by_line_and_survives_what_is_refused(
    served: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["What is the password?", "", "word " * 5_000, "/new", "What is the password?", "/quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    with Conversation(served, ["tuned"], GREEDY, system="Be brief.") as conversation:
        _converse(conversation)
        said = capsys.readouterr()
        # After /new, the same question gets the same answer.
        first, second = (part for part in said.out.split("\n") if part)
        assert first == second
        assert printed(said.err) == ["context_length_exceeded"]
        conversation.ask("What is the password?")
        # What was said before counts.
        assert capsys.readouterr().out.strip("\n") != first


def test_an_unknown_command_of_a_chat_shows_the_commands_and_is_no_message(
    served: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["/help", "/quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    with Conversation(served, ["tuned"], GREEDY, system=None) as conversation:
        _converse(conversation)
    said = capsys.readouterr()
    assert said.out == ""
    assert "/quit to quit" in said.err


def test_what_cannot_be_asked_is_refused_in_a_sentence(tmp_path: Path, served: dict[str, object]) -> None:
    with raises(ValueError, code="no_base_model"):
        _names(["model"], base=True, compare=False)
    with raises(ValueError, code="no_chat_template"):
        Conversation(served | {"chat_template": False}, ["model"], GREEDY, system="Be brief.")
    process = start(str(tmp_path / "nothing"))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert printed(errors) == ["model_not_found"]


def test_a_model_process_that_is_gone_is_a_sentence(served: dict[str, object]) -> None:
    with (
        Conversation(served | {"port": 1}, ["tuned"], GREEDY, None) as conversation,
        raises(ValueError, code="process_ended"),
    ):
        conversation.ask("hello?")
