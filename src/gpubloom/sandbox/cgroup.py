"""Control groups (version 2): memory, processes and processor time of a job, counted by the kernel.

They are there where the operator gave the server a group of its own: `Delegate=yes` in a systemd unit, or a
container. Elsewhere `watch.py` counts, which is slower to notice.
"""

import contextlib
import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from gpubloom.sandbox.options import Limits

_ROOT = Path("/sys/fs/cgroup")
_OURS = "bloom-server"
_CONTROLLERS = ("memory", "pids", "cpu")
# Below that of a service that has none of its own (100), so that the server answers while jobs compute.
_WEIGHT = "50"
_REMOVE_SECONDS = 5.0


@dataclass(frozen=True)
class ControlGroup:
    folder: Path

    @classmethod
    def create(
        cls, name: str, limits: Limits, *, root: Path = _ROOT, own: str | None = None
    ) -> "ControlGroup | None":
        """None: there are no groups that this process may make."""
        above = _delegated(root, _own_group() if own is None else own)
        if above is None:
            return None
        group = cls(above / name)
        try:
            group.folder.mkdir(exist_ok=True)
            for file, value in (
                ("memory.max", str(limits.memory_bytes)),
                ("memory.oom.group", "1"),
                # A job that is merely held at its limit would go on trying: the watcher ends it at half.
                ("pids.max", str(2 * limits.processes)),
                ("cpu.weight", _WEIGHT),
            ):
                (group.folder / file).write_text(value)
            with contextlib.suppress(OSError):
                (group.folder / "memory.swap.max").write_text("0")
        except OSError:
            group.remove()
            return None
        return group

    def join(self) -> None:
        """Moves this process into the group, and with it all that it starts."""
        (self.folder / "cgroup.procs").write_text("0")

    @property
    def ran_out_of_memory(self) -> bool:
        try:
            lines = (self.folder / "memory.events").read_text().splitlines()
        except OSError:
            return False
        counts = dict(line.split() for line in lines)
        return int(counts.get("oom_kill", 0)) > 0

    def remove(self) -> None:
        """Waits a moment for processes that are about to be gone."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError as problem:
                if problem.errno != errno.EBUSY or time.monotonic() > deadline:
                    return
                time.sleep(0.02)
            else:
                return


def delegate(*, root: Path = _ROOT, own: str | None = None) -> str | None:
    """Prepares the server's own group for groups of jobs. Returns why jobs will have none; None: they will.

    A group with processes cannot pass controllers on, so those of the server move to one below it.
    """
    own = _own_group() if own is None else own
    if own is None:
        return "this machine has no control groups of version 2"
    if Path(own).name == _OURS:
        return None
    group = root / own.lstrip("/")
    if own != "/" and not _is_ours(group):
        return "the server's control group is not delegated to it"
    below = group / _OURS
    try:
        below.mkdir(exist_ok=True)
        for pid in (group / "cgroup.procs").read_text().split():
            # One that has just ended need not move.
            with contextlib.suppress(ProcessLookupError):
                (below / "cgroup.procs").write_text(pid)
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
    except OSError as problem:
        return f"control groups cannot be made: {problem.strerror}"
    return None


def _is_ours(group: Path) -> bool:
    """Whether systemd marked the group as delegated."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _delegated(root: Path, own: str | None) -> Path | None:
    """The group that holds the server's and the jobs' groups."""
    if own is None or Path(own).name != _OURS:
        return None
    return (root / own.lstrip("/")).parent


def _own_group() -> str | None:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    found = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    # A system with both versions shows the second without controllers.
    return found if (_ROOT / "cgroup.controllers").exists() else None
