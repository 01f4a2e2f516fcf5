"""`bloom chat` as a person uses it: a real model process, a real terminal's signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.serving.speakers import make_adapter
from tests.tiny_models import make_tiny_model

GREEDY = ("--temperature", "0", "--device", "cpu")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "gpubloom.cli", "chat", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"},
    )


def chat(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    process = start(*arguments)
    output, errors = process.communicate(said, timeout=150)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("chat") / "base", context_length=4_096)


@pytest.fixture(scope="module")
def adapter(base: Path) -> Path:
    return make_adapter(base.parent / "adapter", base)


def test_base_and_tuned_are_asked_in_one_go(adapter: Path) -> None:
    done = chat(str(adapter), "-p", "What is the password?", "--compare", "--max-tokens", "8", *GREEDY)
    assert (done.returncode, done.stderr) == (0, "")
    before, _, after = done.stdout.partition("\ntuned: ")
    assert before.startswith("base: ")
    assert after
    assert before.removeprefix("base: ") != after.rstrip("\n")


def test_a_conversation_goes_on_line_by_line_and_survives_what_is_refused(adapter: Path) -> None:
    lines = ["What is the password?", "word " * 5_000, "/new", "What is the password?", "/quit", "never said"]
    done = chat(str(adapter), "--max-tokens", "8", *GREEDY, said="\n".join(lines))
    assert done.returncode == 0
    # After /new, the same question gets the same answer.
    first, second = (part for part in done.stdout.split("\n") if part)
    assert first == second
    assert "Talking to tuned." in done.stderr
    assert "leaves no room for an answer" in done.stderr


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
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
        output, errors = process.communicate()
    assert "Traceback" not in errors
    # 4,000 tokens are thousands of characters.
    assert len(output) < 3_000


def test_wrong_input_is_refused_in_one_sentence(tmp_path: Path, base: Path) -> None:
    nothing = chat(str(tmp_path / "nothing"))
    assert nothing.returncode == 2
    assert "There is no run directory and no model folder" in nothing.stderr
    alone = chat(str(base), "-p", "x", "--base")
    assert alone.returncode == 2
    assert "leave out --base and --compare" in alone.stderr
