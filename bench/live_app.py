"""A running app for benchmarks: `bloom up` with its own home folder, and an account to use it with."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 2_000

# One person at one address plays all the viewers.
_NO_LIMITS = {
    f"BLOOM_MAX_{name}": "100000" for name in ("CONNECTIONS", "CONNECTIONS_PER_ADDRESS", "STREAMS_PER_USER")
}


@dataclass
class LiveApp:
    """A running app and a signed-in client."""

    home: Path
    client: httpx2.Client

    def start_job(self, **config: Any) -> str:
        """Queue a small training; its id."""
        answer = self.client.post(
            "/api/jobs",
            json={
                "project": {
                    "name": "bench",
                    "model_architecture": "transformer",
                    "model_size": 0.001,
                    "training_data_path": "text.txt",
                },
                "config": config,
            },
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.client.get(f"/api/jobs/{job_id}").json())

    def wait(self, job_id: str, *statuses: str, seconds: float = 300) -> dict[str, Any]:
        """Until the job is in one of these states."""
        deadline = time.monotonic() + seconds
        while (job := self.job(job_id))["status"] not in statuses:
            assert time.monotonic() < deadline, job
            time.sleep(0.05)
        return job


@contextmanager
def start_app(**settings: str) -> Iterator[LiveApp]:
    """Start it with BLOOM_* settings, sign up, and stop it in the end."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpubloom.cli", "up", "--port", "0"],
                env={**clean, **_NO_LIMITS, **settings, "BLOOM_HOME": str(home), "PYTHONUNBUFFERED": "1"},
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            while not (found := re.search(r"(http\S+)/setup#token=(\S+)", Path(log.name).read_text())):
                assert process.poll() is None, Path(log.name).read_text()
                time.sleep(0.05)
            (home / "uploads").mkdir(exist_ok=True)
            (home / "uploads/text.txt").write_text(TEXT)
            with httpx2.Client(base_url=found[1], timeout=60) as client:
                account = {"name": "Ada", "email": "ada@example.org", "password": "a walk in the garden"}
                signed_in = client.post("/api/auth/setup", json={"token": found[2], **account}).json()
                client.headers["X-CSRF-Token"] = signed_in["csrf_token"]
                yield LiveApp(home, client)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
