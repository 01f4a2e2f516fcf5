"""The agent as one file."""

import subprocess
import sys
from pathlib import Path

from gpubloom.agent.bundle import build_agent
from tests.agent.runs import TIMEOUT_SECONDS, Run


def test_the_same_sources_give_the_same_file_and_it_is_built_once(tmp_path: Path) -> None:
    first = build_agent(tmp_path / "one")
    second = build_agent(tmp_path / "two")
    assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())
    written = first.stat().st_mtime_ns
    assert build_agent(tmp_path / "one") == first
    assert first.stat().st_mtime_ns == written
    assert [path.name for path in (tmp_path / "one").iterdir()] == [first.name]


def test_it_runs_where_nothing_is_installed(tmp_path: Path, run: Run) -> None:
    agent = build_agent(tmp_path / "built")
    run.script("print('trained'); raise SystemExit(5)")
    run.files.write_job(run.spec)
    # Neither our package, nor the environment's paths, nor the current folder can be imported from.
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(agent), str(run.path)],
        cwd=tmp_path,
        env={},
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0
    assert run.exit().code == 5
    assert "trained" in run.output()
