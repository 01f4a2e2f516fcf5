"""A hostile training gets nothing and stops nobody, however it is started and whoever runs the server."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpubloom
from gpubloom.providers.local.sandbox import why_no_sandbox, why_no_warm_sandbox

REASON = why_no_sandbox() or why_no_warm_sandbox()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}"),
    pytest.mark.xdist_group("sandbox"),
]

ROOT = Path(__file__).parents[2]
USER = 7_777
SYSTEM_PYTHON = Path("/usr/bin/python3")


@pytest.fixture
def home() -> Iterator[Path]:
    """Outside of the folders of tests, which only their owner can enter."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def drive(way: str, home: Path, *, user: int | None) -> dict[str, Any]:
    python, folders = sys.executable, [str(ROOT), str(ROOT / "src")]
    if user is not None:
        # The sources, and a Python, that another user can read.
        python = str(SYSTEM_PYTHON)
        code = home / "code"
        shutil.copytree(
            Path(gpubloom.__path__[0]), code / "gpubloom", ignore=shutil.ignore_patterns("static")
        )
        for part in ("__init__.py", "providers/__init__.py", "providers/hostile_driver.py"):
            (code / "tests" / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "tests" / part, code / "tests" / part)
        shutil.copy(ROOT / "tests/providers/hostile_script.py", code / "tests/providers")
        folders = [str(code), sysconfig.get_path("purelib")]
        os.chown(home, user, user)
    done = subprocess.run(
        [python, "-m", "tests.providers.hostile_driver", way, str(home / "bloom")],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(folders), "HOME": str(home)},
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    looked = found["look"]
    assert looked["code"] == 0, looked["output"]
    said = [line for line in looked["output"].splitlines() if not line.startswith("[bloom-agent]")]
    assert json.loads(said[-1]) == []
    assert "processes and threads (limit 80)" in found["forks"]["output"]
    for kind in ("mmap", "memfd", "tmpfs", "private"):
        assert found[kind]["code"] == 1, found[kind]
        assert "not stopped" not in found[kind]["output"]
        # A file in memory may also be larger than its folder allows.
        assert "of memory (limit 0.5 GB)" in found[kind]["output"] or "No space left" in found[kind]["output"]
    assert found["output"]["output_bytes"] < 3 << 20
    # The neighbour goes on all the time, and ends as it wants to.
    assert all(found[attack]["neighbour_ticks"] > 0 for attack in found if isinstance(found[attack], dict))
    assert found["neighbour"] == 0
    assert found["secrets"] == ["a secret"] * 3


@pytest.mark.long
@pytest.mark.parametrize("way", ["bubblewrap", "fork", "warm"])
def test_a_hostile_training_reaches_nothing_and_stops_nobody(way: str, home: Path) -> None:
    check(drive(way, home, user=None))


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="there is no Python that every user can run")
@pytest.mark.parametrize("way", ["bubblewrap", "fork", "warm"])
def test_nor_does_it_on_a_server_that_is_not_root(way: str, home: Path) -> None:
    check(drive(way, home, user=USER))
