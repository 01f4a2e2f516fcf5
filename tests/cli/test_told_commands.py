"""Commands that people are told to run can be copied into a shell, whatever their paths contain."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpubloom.errors import shell_word
from gpubloom.traincard import Reporter
from gpubloom.traincard.card.notebook import NotebookCard
from gpubloom.traincard.mirror.mirror import Mirror
from gpubloom.traincard.sender import RunSender

NAMES = ["my run", "$(touch made)", "a;touch made", "it's", '"', "-dash", "`touch made`", "läuft", "~"]
NAMES.append(os.fsdecode(b"-$(touch made)'\xff\\n0"))


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_one_word_and_runs_nothing_in_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("found")
    assert shell_word(name).encode(), "it can be printed"
    shown = subprocess.run(
        ["bash", "-c", f"cat {shell_word(name)}"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "found"
    assert not (tmp_path / "made").exists()


def announced(folder: Path) -> str:
    script = "import sys; from gpubloom.traincard import Reporter; Reporter(sys.argv[1]).close()"
    done = subprocess.run(
        [sys.executable, "-c", script, folder.name],
        cwd=folder.parent,
        env=os.environ | {"BLOOM_ANNOUNCE": "on"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.partition("See it live: ")[2]


def card(folder: Path) -> str:
    Reporter(folder, announce=False).close()
    return repr(NotebookCard(folder)).partition("file with: ")[2].removesuffix(">")


def no_examples(folder: Path) -> str:
    folder.mkdir()
    (folder / "bad.jsonl").write_text("no json\n")
    done = subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", "datasets", "convert", folder / "bad.jsonl", "good.jsonl"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.partition("Find out why: ")[2]


def watched(folder: Path) -> str:
    with Reporter(folder, announce=False):
        watching = subprocess.Popen(
            [sys.executable, "-m", "gpubloom.cli", "runs", "watch", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        with watching:
            watching.stdout.readline()
            watching.send_signal(signal.SIGINT)
            return watching.stdout.read().partition("To watch it again: ")[2]


@pytest.mark.parametrize("told", [announced, card, no_examples, watched])
def test_a_told_command_names_the_folder_as_one_word(tmp_path: Path, told: Callable[[Path], str]) -> None:
    words = shlex.split(told(tmp_path / "my $(runs)"))
    assert words[0] == "bloom"
    assert "my $(runs)" in words[3]


def test_a_run_that_was_not_sent_names_the_command_that_sends_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Reporter(run := tmp_path / "my $(runs)", announce=False).close()
    sender = RunSender(run, "http://127.0.0.1:1", "no token", "my project", tell=lambda line: None)
    sender.start()
    assert not sender.finish(0)
    words = shlex.split(caplog.messages[-1].partition("Send the rest: ")[2])
    assert words == ["bloom", "runs", "send", str(run), "--project", "my project"]


def test_a_mirror_that_is_not_complete_names_the_command_that_completes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.traincard.mirror.mirror.Bucket", Mock())
    mirror = Mirror(tmp_path / "my $(runs)", "s3://runs/a b")
    mirror._lanes = [Mock(is_complete=False)]
    assert not mirror.finish(0)
    words = shlex.split(caplog.messages[-1].partition("To complete it, run: ")[2])
    assert words == ["bloom", "runs", "mirror", str(tmp_path / "my $(runs)"), "s3://runs/a b"]
