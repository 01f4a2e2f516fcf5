"""`bloom ui`: one command, a link that works, and errors that say what to do."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from gpubloom.traincard import Reporter

COMMAND = [sys.executable, "-u", "-m", "gpubloom.cli", "ui"]


@pytest.mark.long
def test_the_printed_link_shows_the_runs_of_the_folder(tmp_path: Path) -> None:
    with Reporter(tmp_path / "runs" / "first", telemetry_seconds=0, capture=False) as reporter:
        reporter.metrics({"train/loss": 0.5}, step=1)
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--no-browser"],
        # Without a folder: ./runs.
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        text=True,
        # As in a terminal: a shell's background processes ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        link = next(found[1] for line in process.stdout if (found := re.search(r"(http\S+)", line)))
        assert link.startswith("http://127.0.0.1:")
        with httpx2.Client(follow_redirects=True, timeout=60) as client:
            assert client.get(link).status_code in {200, 503}
            address = link.partition("/open")[0]
            listed = client.get(f"{address}/api/runs").json()
            assert [row["name"] for row in listed["sections"][0]["rows"]] == ["first"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_the_pages_of_a_folder_need_no_database_library() -> None:
    imported = "import sys, gpubloom.server.folder.app; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", imported], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_taken_port_and_a_missing_folder_are_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*COMMAND, ".", "--port", port], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "error[cannot_listen]" in done.stderr) == (2, True), done.stderr
    done = subprocess.run([*COMMAND, "nowhere"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "error[run_not_found]" in done.stderr) == (2, True), done.stderr
