"""Control groups of jobs: what is written into them, and what the kernel does with it."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from gpubloom.sandbox import cgroup
from gpubloom.sandbox.cgroup import ControlGroup, delegate
from gpubloom.sandbox.options import Limits

LIMITS = Limits(memory_bytes=256 << 20, processes=50)
ROOT = Path("/sys/fs/cgroup")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A service's group as systemd makes it, in plain files."""
    service = tmp_path / "system.slice" / "bloom.service"
    service.mkdir(parents=True)
    (service / "cgroup.procs").write_text(f"{os.getpid()}\n")
    return tmp_path


def test_a_group_that_is_not_delegated_is_left_alone(tree: Path) -> None:
    reason = delegate(root=tree, own="/system.slice/bloom.service")
    assert reason == "the server's control group is not delegated to it"
    assert [path.name for path in (tree / "system.slice/bloom.service").iterdir()] == ["cgroup.procs"]
    assert ControlGroup.create("job-1", LIMITS, root=tree, own="/system.slice/bloom.service") is None


def test_the_server_moves_down_and_jobs_get_groups_beside_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "_is_ours", lambda group: True)
    service = tree / "system.slice/bloom.service"
    assert delegate(root=tree, own="/system.slice/bloom.service") is None
    assert (service / "bloom-server/cgroup.procs").read_text() == str(os.getpid())
    assert (service / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    own = "/system.slice/bloom.service/bloom-server"
    # A worker that starts again is there already.
    assert delegate(root=tree, own=own) is None
    group = ControlGroup.create("job-1", LIMITS, root=tree, own=own)
    assert group is not None
    written = {path.name: path.read_text() for path in (service / "job-1").iterdir()}
    assert written == {
        "memory.max": str(256 << 20),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "pids.max": "100",
        "cpu.weight": "50",
    }
    assert not group.ran_out_of_memory
    (service / "job-1/memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n")
    assert group.ran_out_of_memory


def _has_groups() -> bool:
    try:
        there = set((ROOT / "cgroup.controllers").read_text().split()) >= {"memory", "pids", "cpu"}
    except OSError:
        return False
    return there and os.geteuid() == 0


@pytest.mark.skipif(not _has_groups(), reason="needs root and control groups of version 2")
def test_the_kernel_ends_a_job_that_takes_too_much_memory() -> None:
    """Memory that no process maps counts too: a watcher of processes would have to search for it."""
    service = ROOT / f"bloom-test-{uuid4().hex[:8]}"
    service.mkdir()
    try:
        program = f"""
import os, subprocess, sys
from pathlib import Path
service = Path({str(service)!r})
os.setxattr(service, "trusted.delegate", b"1")
(service / "cgroup.procs").write_text("0")
from gpubloom.sandbox import cgroup
from gpubloom.sandbox.options import Limits
assert cgroup.delegate() is None, cgroup.delegate()
group = cgroup.ControlGroup.create("job-1", Limits(memory_bytes=256 << 20, processes=50))
assert group is not None
fill = "import os\\nfor _ in range(16): os.write(os.memfd_create('x'), b'x' * (64 << 20))\\nprint('went on')"
done = subprocess.run([sys.executable, "-c", fill], preexec_fn=group.join, capture_output=True, text=True)
print(done.returncode, done.stdout.strip(), group.ran_out_of_memory)
group.remove()
print(group.folder.exists())
"""
        (ROOT / "cgroup.subtree_control").write_text("+memory +pids +cpu")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["-9", "True", "False"], done.stdout + done.stderr
    finally:
        for folder in (service / "bloom-server", service):
            folder.rmdir()
