"""Commands that take a run say whether the folder is missing or is something else."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.cli.run_view import RunView, _bar, status_line
from gpubloom.traincard import Reporter
from tests.errors import printed
from tests.rights import without_rights_of_root

COMMANDS = [
    ("runs", "card"),
    ("runs", "watch"),
    ("runs", "serve"),
    ("train", "--resume"),
    ("runs", "compare"),
    ("runs", "mirror"),
]


def bloom(command: tuple[str, ...], folder: Path) -> str:
    more = {"mirror": ["memory://runs"], "compare": [str(folder.parent / "another")]}.get(command[-1], [])
    done = CliRunner().invoke(app, [*command, str(folder), *more])
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_that_is_not_there_is_called_missing(command: tuple[str, ...], tmp_path: Path) -> None:
    said = bloom(command, tmp_path / "gone")
    assert printed(said) == ["run_not_found"]
    assert str(tmp_path / "gone") in said


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_that_is_no_run_is_told_what_it_lacks(command: tuple[str, ...], tmp_path: Path) -> None:
    said = bloom(command, tmp_path)
    assert printed(said) == ["run_not_found"]
    assert str(tmp_path) in said


def test_a_run_that_may_not_be_read_is_not_shown_as_empty(tmp_path: Path) -> None:
    Reporter(tmp_path / "run", announce=False).close()
    (tmp_path / "run" / "traincard").chmod(0)
    command = [sys.executable, "-m", "gpubloom.cli", "runs", "watch", str(tmp_path / "run"), "--once"]
    done = subprocess.run([*without_rights_of_root(), *command], capture_output=True, text=True, check=False)
    (tmp_path / "run" / "traincard").chmod(0o700)
    assert (done.returncode, printed(done.stderr)) == (2, ["permission_denied"])


@pytest.mark.parametrize(("width", "has_bar"), [(60, False), (120, True)])
def test_a_narrow_terminal_shows_the_status_in_place_of_a_bar(
    tmp_path: Path, width: int, has_bar: bool
) -> None:
    with Reporter(tmp_path, telemetry_seconds=0, capture=False) as reporter:
        reporter.progress(step=277, total_steps=5_180, epoch=0.54, epochs=10)
    view = RunView(tmp_path)
    view.look()
    shown = StringIO()
    Console(width=width, file=shown).print(_bar(view, width))
    assert "step 277/5,180 · epoch 0.54/10" in shown.getvalue()
    assert ("━" in shown.getvalue()) == has_bar


def test_a_run_that_is_resumed_shows_nothing_of_the_attempt_before(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0, capture=False) as reporter:
        reporter.progress(step=277, total_steps=5_180)
        reporter.finish("failed", "no memory")
    view = RunView(tmp_path)
    view.expect_new_attempt()
    shown = StringIO()
    Console(width=80, file=shown).print(_bar(view, 80))
    assert shown.getvalue().strip() == "starting"


def test_a_few_steps_of_large_data_are_not_epoch_0(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0, capture=False) as reporter:
        reporter.progress(step=2, total_steps=3, epoch=0.00213, epochs=0.0032)
    view = RunView(tmp_path)
    view.look()
    assert "epoch 0.002/0.003" in status_line(view)


def test_a_folder_of_runs_names_its_newest_run(tmp_path: Path) -> None:
    for number, name in enumerate(("second", "first")):
        (tmp_path / "runs" / name / "traincard").mkdir(parents=True)
        os.utime(tmp_path / "runs" / name / "traincard", (number, number))
    shown = CliRunner().invoke(app, ["runs", "watch", str(tmp_path / "runs")])
    assert printed(shown.output) == ["run_not_found"]
    assert f"such as {tmp_path / 'runs' / 'first'}." in shown.output
