"""A real server in a process of its own, with its own home folder, for tests that come from outside."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from pathlib import Path

import httpx2
import pytest

from tests.traincard_mirror.conftest import KEY, SECRET, S3Server
from tests.waiting import wait_until

START_SECONDS = 120
FIRST_EMAIL = "ada@example.com"
FIRST_PASSWORD = "correct horse battery"


@dataclass
class LiveServer:
    """Where the server is and what it printed."""

    address: str
    home: Path
    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list)
    # Accounts that tests have made here.
    people: int = 0

    @property
    def text(self) -> str:
        return "".join(self.output)

    @property
    def setup_link(self) -> str:
        found = re.search(r"(http\S+/setup#token=\S+)", self.text)
        assert found, f"no one-time link in:\n{self.text}"
        return found[1]

    @contextmanager
    def first_session(self) -> Iterator[httpx2.Client]:
        """Set the server up for its first person, FIRST_EMAIL with FIRST_PASSWORD, who is signed in here."""
        account = {"name": "Ada", "email": FIRST_EMAIL, "password": FIRST_PASSWORD}
        secret = self.setup_link.partition("token=")[2]
        with httpx2.Client(base_url=f"{self.address}/api", timeout=120) as client:
            opened = client.post("/auth/setup", json={"token": secret, **account}).json()
            client.headers["X-CSRF-Token"] = opened["csrf_token"]
            yield client

    def first_token(self, *scopes: str) -> str:
        """The same; an API token of theirs."""
        with self.first_session() as client:
            return str(client.post("/me/tokens", json={"name": "cli", "scopes": scopes}).json()["token"])

    @property
    def sent_emails(self) -> list[Path]:
        """All that were written, the oldest first."""
        return sorted((self.home / "outbox").glob("*.eml"))

    def newest_email_link(self, *, after: int = 0) -> str:
        """The link in the letter that was written last; `after`: there were so many before."""
        # Letters are sent after the answer to the request that caused them.
        wait_until(lambda: len(self.sent_emails) > after, "an email in the outbox")
        text = message_from_bytes(self.sent_emails[-1].read_bytes(), policy=policy.default).get_content()
        found = re.search(r"(http\S+#\S+)", text)
        assert found, text
        return found[1]


# Fakes stand on the loopback address.
_LOOPBACK = {"BLOOM_EGRESS_ALLOW": os.environ.get("BLOOM_EGRESS_ALLOW", "")}


@contextmanager
def live_server(
    home: Path, *, command: str = "server start", entering: Sequence[str] = (), **environment: str
) -> Iterator[LiveServer]:
    """Start a server (`up`: with a worker), wait until it says that it answers, stop it in the end.

    `entering`: a command that runs it elsewhere, such as in another network namespace.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
    process = subprocess.Popen(
        [*entering, sys.executable, "-u", "-m", "gpubloom.cli", *command.split(), "--port", "0"],
        env={**clean, "BLOOM_HOME": str(home), "PYTHONUNBUFFERED": "1", **_LOOPBACK, **environment},
        cwd=home.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    server = LiveServer(address="", home=home, process=process)
    ready = threading.Event()

    def collect() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            server.output.append(line)
            found = re.search(r"GPU Bloom is at (http\S+)", line)
            if found:
                server.address = found[1]
            if "Press Ctrl-C" in line:
                ready.set()
        ready.set()

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    try:
        ready.wait(START_SECONDS)
        assert server.address, f"the server did not start:\n{server.text}"
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def server_with_bucket(factory: pytest.TempPathFactory, **environment: str) -> Iterator[LiveServer]:
    """A server with a worker and a bucket, which is what jobs on rented machines need."""
    with S3Server(factory.mktemp("s3")) as bucket:
        storage = {
            "BLOOM_STORAGE_BUCKET": "bucket",
            "BLOOM_STORAGE_KEY": KEY,
            "BLOOM_STORAGE_SECRET": SECRET,
            "BLOOM_STORAGE_ENDPOINT": bucket.address,
        }
        home = factory.mktemp("app") / "home"
        with live_server(home, command="up", **storage, **environment) as running:
            yield running
