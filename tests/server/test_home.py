"""The home folder: closed to other users of the machine, whoever made it."""

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from gpubloom.server.home import protect_home
from tests.live_server import live_server


def _open_to_others(home: Path) -> list[str]:
    return sorted(
        path.relative_to(home).as_posix()
        for path in [home, *home.rglob("*")]
        if not path.is_symlink() and path.stat().st_mode & 0o077
    )


@pytest.mark.long
def test_a_new_home_is_closed_whatever_the_umask_of_the_operator(tmp_path: Path) -> None:
    home = tmp_path / "home"
    os.umask(0)
    with live_server(home) as server:
        assert httpx2.get(f"{server.address}/api/health").status_code == 200
        assert (home / "bloom.db").is_file()
        assert _open_to_others(home) == []


@pytest.mark.long
def test_an_open_home_is_closed_at_the_start_and_the_log_says_so(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (home / "runs/a-living-job").mkdir(parents=True)
    for name in ("bloom.db", "secret.key", "runs/a-living-job/job.json"):
        (home / name).write_bytes(os.urandom(32) if name == "secret.key" else b"")
        (home / name).chmod(0o644)
    (home / "data").symlink_to(outside)
    for path in (home, home / "runs", home / "runs/a-living-job"):
        path.chmod(0o755)
    with live_server(home) as server:
        assert _open_to_others(home) == ["runs/a-living-job", "runs/a-living-job/job.json"]
        assert "home_permissions_tightened" in server.text
        assert "secret.key" in server.text
    assert outside.stat().st_mode & 0o777 == 0o755, "a link leads to what is not the server's"
    assert protect_home(home) == []


@pytest.mark.long
@pytest.mark.parametrize("command", ["database upgrade", "machines list", "rotate-key"])
def test_commands_make_files_that_others_cannot_read(tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    os.umask(0)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
    subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", "server", *command.split()],
        env={**clean, "BLOOM_HOME": str(home)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert _open_to_others(home) == []
