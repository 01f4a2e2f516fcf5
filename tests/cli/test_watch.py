"""`bloom runs watch` and the live view of `bloom train`, with real runs, processes and terminals."""

import io
import math
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from gpubloom.cli.chart import Line, draw, short
from gpubloom.cli.run_view import RunView, follow, mean_line, system_parts
from gpubloom.cli.watch import frame
from gpubloom.traincard import Reporter
from gpubloom.traincard.lines import duration

_BLOOM = [sys.executable, "-m", "gpubloom.cli"]
_TRAINING = """
import sys, time
from gpubloom.traincard import Reporter
with Reporter(sys.argv[1], telemetry_seconds=0) as reporter:
    reporter.phase("train")
    for step in range(1, int(sys.argv[2]) + 1):
        reporter.metrics({"loss": 4.0 / step, "lr": 0.001, "tokens_per_second": 1000.0}, step)
        reporter.progress(step, int(sys.argv[2]))
        time.sleep(0.02)
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def finished_run(run_dir: Path) -> Path:
    for attempt in range(2):
        with Reporter(run_dir, telemetry_seconds=0) as reporter:
            reporter.phase("train")
            if attempt:
                reporter.resumed(20)
            reporter.system({"cpu/utilization": 37.0, "gpu/0/utilization": 91, "gpu/0/power": 300.4})
            for step in range(1, 31):
                reporter.metrics({"train/loss": 4.0 / step, "lr": 1e-3, "tokens_per_second": 5e4}, step)
                reporter.progress(step, 30, epoch=1, epochs=1)
            reporter.metric("eval_loss", 0.75, 30)
            reporter.log("the loss fell fast", level="warning")
    return run_dir


def _bloom(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(
        [*_BLOOM, *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_an_ascii_terminal_gets_charts_in_ascii(finished_run: Path) -> None:
    shown = subprocess.run(
        [*_BLOOM, "runs", "watch", str(finished_run), "--once"],
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    ).stdout.decode("ascii")
    assert "?" not in shown
    assert "completed - step 30/30" in shown
    [highest] = [line for line in shown.splitlines() if line.startswith("       4 ")]
    [lowest] = [line for line in shown.splitlines() if line.startswith("  0.1333 ")]
    # The loss falls: its line begins at the top and ends at the bottom.
    assert highest[9] in "'|:"
    assert lowest.rstrip()[-1] in "-."


def test_once_prints_one_frame_with_status_numbers_system_and_charts(finished_run: Path) -> None:
    shown = _bloom("runs", "watch", str(finished_run), "--once")
    assert shown.returncode == 0, shown.stderr
    for words in (
        "completed · step 30/30 · epoch 1/1 · attempt 2, from step 20",
        "loss 0.1333 · eval loss 0.75 · lr 0.001 · tokens/s 50k",
        "CPU 37 % · GPU 0 91 % 300 W",
        "learning rate",
        "the loss fell fast",
    ):
        assert words in shown.stdout
    assert re.search("[⠀-⣿]{5}", shown.stdout)


def test_a_failed_run_shows_its_error_and_advice(run_dir: Path) -> None:
    reporter = Reporter(run_dir, telemetry_seconds=0)
    reporter.on_exception(MemoryError("no more"))
    reporter.close()
    shown = _bloom("runs", "watch", str(run_dir), "--once").stdout
    assert "failed" in shown
    assert "MemoryError: no more" in shown
    assert "ran out of memory" in shown


@pytest.mark.parametrize("make", [False, True])
def test_what_is_no_run_gets_one_sentence_and_code_2(tmp_path: Path, make: bool) -> None:
    folder = tmp_path / "nothing"
    if make:
        folder.mkdir()
    shown = _bloom("runs", "watch", str(folder))
    assert (shown.returncode, shown.stdout, shown.stderr.count("\n")) == (2, "", 1)
    assert str(folder) in shown.stderr


def test_without_a_terminal_it_prints_lines_until_the_run_ends(run_dir: Path) -> None:
    training = subprocess.Popen([sys.executable, "-c", _TRAINING, str(run_dir), "60"])
    try:
        while not (run_dir / "traincard" / "latest.json").exists():
            time.sleep(0.02)
        shown = _bloom("runs", "watch", str(run_dir))
    finally:
        assert training.wait(timeout=120) == 0
    lines = shown.stdout.splitlines()
    # One now and then, not one for each step.
    assert 1 <= len(lines) < 60
    assert lines[-1].startswith("completed · step 60/60")
    assert "\x1b" not in shown.stdout


def _read_terminal(command: list[str], until: Callable[[str], bool], then: int | None) -> tuple[str, int]:
    """Runs a command in a real terminal and sends it a signal once its output is as wanted."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="120", LINES="50")
        os.execv(command[0], command)
    output = ""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            output += os.read(terminal, 65536).decode(errors="replace")
        except OSError:
            break
        if then is not None and until(output):
            os.kill(child, then)
            then = None
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return output, os.waitstatus_to_exitcode(status)


def test_in_a_terminal_the_charts_move_and_ctrl_c_leaves_the_run_alone(run_dir: Path) -> None:
    training = subprocess.Popen([sys.executable, "-c", _TRAINING, str(run_dir), "1000"])
    try:
        while not (run_dir / "traincard" / "latest.json").exists():
            time.sleep(0.02)
        output, code = _read_terminal(
            [*_BLOOM, "runs", "watch", str(run_dir)],
            until=lambda text: len(set(re.findall(r"step (\d+)/1,000", text))) >= 3,
            then=signal.SIGINT,
        )
        assert code == 0
        assert "The run continues" in output
        assert training.poll() is None
    finally:
        training.kill()
        training.wait()


def _alive_for(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def test_a_killed_run_is_called_killed(run_dir: Path) -> None:
    training = subprocess.Popen([sys.executable, "-c", _TRAINING, str(run_dir), "1000"])
    view = RunView(run_dir)
    while not view.state.values:
        time.sleep(0.02)
        view.look()
    assert view.status == "running"
    training.kill()
    training.wait()
    view.look()
    assert view.status.startswith("killed")


def test_following_a_new_process_shows_starting_not_the_past(finished_run: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    view = follow(finished_run, _alive_for(0.3), console)
    assert view.status == "starting"
    assert "starting" in output.getvalue()
    assert "completed" not in output.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_follow_shows_a_run_from_before_its_first_event_to_its_end(run_dir: Path, terminal: bool) -> None:
    def train() -> None:
        time.sleep(0.2)
        with Reporter(run_dir, telemetry_seconds=0) as reporter:
            reporter.phase("train")
            for step in range(1, 41):
                reporter.metrics({"loss": 4.0 / step, "tokens_per_second": 900.0}, step)
                reporter.progress(step, 40)
                time.sleep(0.02)

    thread = threading.Thread(target=train)
    thread.start()
    output = io.StringIO()
    view = follow(run_dir, thread.is_alive, Console(file=output, force_terminal=terminal, width=120))
    assert view.state.status == "completed"
    text = output.getvalue()
    assert "step 40/40" in text
    assert "loss 0.1" in text
    assert ("\x1b" in text) == terminal
    if not terminal:
        assert len(text.splitlines()) < 40


def test_a_chart_puts_high_above_low_and_leaves_a_gap_between_attempts() -> None:
    falling = draw(Line([[(0, 4.0), (100, 1.0)]]), 40, 6)
    assert len(falling) == 6
    assert falling[0].lstrip().startswith("4")
    assert falling[4].lstrip().startswith("1")
    assert falling[0][9] != " "
    assert falling[4][-1] != " "
    two = draw(Line([[(0, 1.0), (10, 1.0)], [(90, 1.0), (100, 1.0)]]), 40, 4)
    assert any("    " in row[9:].strip() for row in two[:-1])


def test_a_long_run_is_drawn_by_its_means_with_its_extremes_shaded(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        for step in range(10_000):
            reporter.metric("train/loss", 8.0 if step % 100 == 0 else 2.0, step)
            if step % 1_000 == 0:
                reporter.flush()
    view = RunView(run_dir)
    view.look()
    curves = list(view.curves.attempts("train/loss").values())
    assert max(bucket.points for curve in curves for bucket in curve.buckets) > 1
    (piece,) = mean_line(curves).pieces
    assert all(2.0 <= value <= 2.0 + 6 / 16 for _, value in piece[:-1])
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor")
    console.print(frame(view, 80))
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert "loss (line: mean, shaded: lowest to highest)" in output
    # The band in a fainter style than the line.
    assert re.search("\x1b\\[2m[⠀-⣿]", output)


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (0.0, "0")]
)
def test_numbers_that_are_none_have_one_spelling(value: float, text: str) -> None:
    assert short(value) == text


def test_a_run_that_counts_no_epochs_is_watched(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metrics({"train/loss": math.nan, "lr": math.inf}, 1)
        reporter.progress(1, 10, epoch=math.nan, epochs=math.inf)
    shown = _bloom("runs", "watch", str(run_dir), "--once")
    assert shown.returncode == 0, shown.stderr
    assert "loss NaN · lr Infinity" in shown.stdout
    assert "epoch" not in shown.stdout


def test_a_chart_survives_any_values() -> None:
    assert "no values" in draw(Line([]), 40, 5)[0]
    assert "no values" in draw(Line([[(1, math.nan)]]), 40, 5)[0]
    draw(Line([[(1, 1.0)]]), 1, 1)
    draw(Line([[(1, math.inf), (2, -1e300), (3, 1e300)]]), 40, 5)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.93456, "1.935"),
        (0.00012, "1.20e-04"),
        (12_345, "12.3k"),
        (7.2e9, "7.2G"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (200, "3 min 20 s"), (3900, "1 h 05 min"), (90_000, "1 d 1 h")]
)
def test_durations_read_like_a_person_says_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_system_line_shows_only_what_is_known() -> None:
    assert system_parts({}) == []
    assert system_parts({"ram/used": 1e9, "ram/total": 2e9, "gpu/1/temperature": 61}) == [
        "RAM 1.0/2.0 GB",
        "GPU 1 61 °C",
    ]
