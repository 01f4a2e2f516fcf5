"""`bloom scripts run` against a real server and worker: a folder that knows nothing of us, in the sandbox."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import nbformat
import pytest

from gpubloom.cli.script_run import collect
from gpubloom.providers.local.sandbox import why_no_sandbox
from tests.errors import printed, raises
from tests.live_server import LiveServer, live_server

NANOGPT = Path(__file__).parents[1] / "nanogpt_folder"
REASON = why_no_sandbox()
in_a_sandbox = pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}")
pytestmark = pytest.mark.xdist_group("bloom scripts run")

Bloom = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("submit") / "home", command="up") as running:
        yield running


@pytest.fixture
def bloom(server: LiveServer, token: str, tmp_path: Path) -> Bloom:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        own = {
            "BLOOM_SERVER": server.address,
            "BLOOM_TOKEN": token,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        return subprocess.run(
            [sys.executable, "-m", "gpubloom.cli", *arguments],
            env={**os.environ, **own},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=150,
        )

    return run


@pytest.mark.long
@in_a_sandbox
def test_an_unmodified_folder_trains_here_and_its_files_come_back(bloom: Bloom, tmp_path: Path) -> None:
    done = bloom(
        *("scripts", "run", str(NANOGPT), "--provider", "local", "--watch"),
        *("--", "--max_iters=60", "--eval_interval=20"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Runs on the machine of the server." in done.stderr
    assert "step 60: train loss" in done.stdout
    job_id = done.stdout.split()[0]
    job = json.loads(bloom("jobs", "show", job_id, "--json").stdout)
    assert (job["status"], job["kind"], job["name"]) == ("completed", "script", "nanogpt_folder")
    assert (job["summary"]["step"], job["summary"]["total_steps"]) == (60, 60)
    assert job["summary"]["values"]["train/loss"]["value"] < 4
    assert job["summary"]["values"]["eval/loss"]["step"] == 60
    listed = bloom("jobs", "list").stdout
    assert re.search(rf"{job_id}  completed +nanogpt_folder\n  step 60 of 60 .* local", listed)
    saved = bloom("jobs", "download", job_id, str(tmp_path / "made"))
    assert saved.returncode == 0, saved.stderr
    assert [path.name for path in (tmp_path / "made").rglob("*") if path.is_file()] == ["ckpt.pt"]


@in_a_sandbox
@pytest.mark.long
def test_a_folder_that_is_paused_and_cancelled_on_the_way(
    bloom: Bloom, server: LiveServer, token: str
) -> None:
    endless = ("--", "--max_iters=1000000", "--eval_interval=25")
    started = bloom("scripts", "run", str(NANOGPT), "--provider", "local", "--json", *endless)
    job_id = json.loads(started.stdout)["job_id"]
    headers = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=server.address, headers=headers, timeout=120) as client:

        def status() -> dict[str, object]:
            found: dict[str, object] = client.get(f"/api/ml-jobs/{job_id}/status").json()
            return found

        def until(holds: Callable[[dict[str, object]], bool]) -> dict[str, object]:
            deadline = time.monotonic() + 100
            while not holds(now := status()):
                assert time.monotonic() < deadline, now
                time.sleep(0.1)
            return now

        seen = until(lambda now: (now["progress"]["step"] or 0) > 30)  # type: ignore[index]
        assert seen["progress"]["eta_seconds"] > 0  # type: ignore[index]
        assert seen["progress"]["total_steps"] == 1_000_000  # type: ignore[index]
        assert bloom("jobs", "pause", job_id).returncode == 0
        until(lambda now: now["status"] == "paused")
        assert bloom("jobs", "resume", job_id).returncode == 0
        until(lambda now: any("Resuming training from out" in line for line in now["logs"]))  # type: ignore[union-attr]
        until(lambda now: now["status"] == "running")
        saved = client.get(f"/api/jobs/{job_id}/checkpoints").json()["items"]
        assert saved[0]["path"] == "work/out/ckpt.pt"
        assert bloom("jobs", "cancel", job_id).returncode == 0
        until(lambda now: now["status"] == "cancelled")


@in_a_sandbox
@pytest.mark.long
def test_ctrl_c_ends_the_watching_and_says_that_the_job_continues(
    bloom: Bloom, server: LiveServer, token: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\nwhile True: print('still here', flush=True) or time.sleep(0.1)\n")
    watching = subprocess.Popen(
        [sys.executable, "-m", "gpubloom.cli", "scripts", "run", str(script), "--watch"],
        env={**os.environ, "BLOOM_SERVER": server.address, "BLOOM_TOKEN": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    job_id = watching.stdout.readline().split()[0]
    while "still here" not in watching.stdout.readline():
        assert watching.poll() is None
    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert f"Stop it: bloom jobs cancel {job_id}" in errors
    assert bloom("jobs", "cancel", job_id).returncode == 0


@pytest.mark.long
def test_an_offer_that_cannot_be_taken_is_a_sentence_and_nothing_is_asked(bloom: Bloom) -> None:
    refused = bloom("scripts", "run", str(NANOGPT), "--provider", "lambda")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert refused.stderr.strip()
    assert "Rent this instance?" not in refused.stderr
    assert printed(bloom("scripts", "run", str(NANOGPT), "--provider", "nobody").stderr) == [
        "unknown_provider"
    ]


def test_what_comes_next_when_no_machine_is_free_is_sent_with_the_job(tmp_path: Path) -> None:
    sent: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_error(503)

        def log_message(self, *_: object) -> None:
            return

    recorder = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=recorder.serve_forever, args=(0.02,), daemon=True).start()
    own = {
        "BLOOM_SERVER": f"http://127.0.0.1:{recorder.server_port}",
        "BLOOM_TOKEN": "t",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    command = [sys.executable, "-m", "gpubloom.cli", "scripts", "run", str(NANOGPT)]
    try:
        for options in (
            ["--failover-by", "time", "--failover-provider", "modal", "--failover-provider", "runpod"],
            ["--no-failover"],
        ):
            subprocess.run([*command, *options], env={**os.environ, **own}, capture_output=True, timeout=150)
    finally:
        recorder.shutdown()
        recorder.server_close()
    assert [(body["failover"], body["failover_by"]) for body in sent] == [
        (None, {"order": "time", "providers": ["modal", "runpod"]}),
        ([], {"order": "cost", "providers": []}),
    ]


def test_a_notebook_for_colab_needs_no_server(tmp_path: Path) -> None:
    target = tmp_path / "job.ipynb"
    command = [
        "scripts",
        "run",
        str(NANOGPT),
        "--provider",
        "colab",
        "--notebook",
        str(target),
        "--",
        "--max_iters=5",
    ]
    made = subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", *command],
        env={**os.environ, "BLOOM_SERVER": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 0, made.stderr
    nbformat.validate(json.loads(target.read_text()))
    assert "max_iters=5" in target.read_text()


def test_a_file_that_is_no_script_is_not_sent(tmp_path: Path) -> None:
    # Python could run this line.
    (tmp_path / "chats.jsonl").write_text('{"prompt": "a", "completion": "b"}')
    with raises(ValueError, code="not_python", match="chats.jsonl"):
        collect(tmp_path / "chats.jsonl", None)


def test_hidden_files_links_and_what_tools_leave_stay_behind(tmp_path: Path) -> None:
    for name in ("train.py", ".env", ".git/config", "__pycache__/a.pyc", "src/model.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    files, left_out, entry = collect(tmp_path, None)
    assert (sorted(files), entry) == (["src/model.py", "train.py"], None)
    assert set(left_out) == {".env", ".git/", "__pycache__/", "link"}
    (tmp_path / "large.bin").write_bytes(bytes(23 << 20))
    with raises(ValueError, code="files_too_large", match="22 MB"):
        collect(tmp_path, None)
