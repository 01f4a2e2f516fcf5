"""Watches a sandbox from outside: passes requests to stop on, and ends what takes more than it may."""

import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gpubloom.sandbox.cgroup import ControlGroup
from gpubloom.sandbox.options import Limits, Options

SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}

_LOOK_SECONDS = 0.25
_ENDED_BY_US = 1
_PROC = Path("/proc")
# In /proc/<pid>/stat, behind the program's name.
_PARENT, _THREADS = 1, 17
# Shared memory that no file system and no descriptor shows.
_ANONYMOUS_SHARED = ("/dev/zero (deleted)", "/SYSV")
_MEMFD = "/memfd:"


@dataclass(frozen=True)
class _Seen:
    pid: int
    threads: int


def watch(child: int, first: int | None, options: Options, group: ControlGroup | None) -> NoReturn:
    """Until `child` is gone; ends as it ended. `first`: the sandbox's process 1, by its number out here."""
    asked = passed_on = False
    problem = status = None
    while status is None:
        got = signal.sigtimedwait(SIGNALS, _LOOK_SECONDS)
        asked = asked or (got is not None and got.si_signo != signal.SIGCHLD)
        if asked and not passed_on:
            passed_on = _pass_on(first) if first is not None else _signal(child, signal.SIGTERM)
        if first is not None and (problem := _too_much(first, options)):
            # With its process 1 everything inside dies.
            _signal(first, signal.SIGKILL)
            _signal(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        else:
            pid, ended = os.waitpid(child, os.WNOHANG)
            status = ended if pid else None
    if group is not None:
        if problem is None and group.ran_out_of_memory:
            problem = f"it used more than {options.limits.memory_bytes / 1e9:.1f} GB of memory"
        group.remove()
    if problem is not None:
        os.write(2, f"[sandbox] The {options.noun} was stopped: {problem}.\n".encode())
        os._exit(_ENDED_BY_US)
    end_like(os.waitstatus_to_exitcode(status))


def end_like(code: int) -> NoReturn:
    """A sandbox says 128 + n when signal n ended the command; who waits for us should see the signal."""
    number = -code if code < 0 else code - 128
    if number > 0 and number in set(signal.valid_signals()):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    os._exit(code if code >= 0 else 128 - code)


def threads_of(user: int | None) -> int:
    """How many processes and threads of a user there are; of ours, when no user is named."""
    wanted, count = os.getuid() if user is None else user, 0
    for entry in _PROC.iterdir():
        try:
            if entry.name.isdecimal() and entry.stat().st_uid == wanted:
                count += sum(1 for _ in (entry / "task").iterdir())
        except OSError:
            continue
    return count


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _pass_on(first: int) -> bool:
    """Asks the command itself to stop: process 2 inside. False: it is not there yet."""
    return any(
        _signal(each.pid, signal.SIGTERM) for each in _descendants(first) if _number_inside(each.pid) == 2
    )


def _too_much(first: int, options: Options) -> str | None:
    limits, found = options.limits, _descendants(first)
    threads = sum(each.threads for each in found)
    if threads > limits.processes:
        return f"it had {threads:,} processes and threads (limit {limits.processes:,})"
    memory = _memory(first, [each.pid for each in found], limits)
    if memory > limits.memory_bytes:
        return f"it used {memory / 1e9:.1f} GB of memory (limit {limits.memory_bytes / 1e9:.1f} GB)"
    disk = os.statvfs(options.disk)
    free = disk.f_bavail * disk.f_frsize
    if free < limits.least_free_bytes:
        return f"only {free / 1e9:.1f} GB are left on the disk"
    return None


def _descendants(first: int) -> list[_Seen]:
    """The processes of the sandbox below process 1. Orphans stay below it."""
    children: dict[int, list[_Seen]] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # The program's name stands in brackets and may hold brackets and blanks of its own.
        fields = text.rpartition(")")[2].split()
        children.setdefault(int(fields[_PARENT]), []).append(_Seen(int(entry.name), int(fields[_THREADS])))
    found: list[_Seen] = []
    waiting = [first]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [each.pid for each in below]
    return found


def _memory(first: int, pids: list[int], limits: Limits) -> int:
    """What the processes hold together. Counted exactly only when a quick sum says that it may be too much:
    the quick one counts shared memory once for each process."""
    files = _files_in_memory(first) + sum(_memfds(pids).values())
    quick = files + sum(_resident(pid) for pid in pids)
    return quick if quick <= limits.memory_bytes else files + _exactly(pids)


def _resident(pid: int) -> int:
    """Private memory and shared memory, without files."""
    return sum(
        int(value.split()[0]) * 1024
        for name, value in _lines(_PROC / str(pid) / "status")
        if name in {"RssAnon", "RssShmem"}
    )


def _exactly(pids: list[int]) -> int:
    """Each page once. Files in memory are counted where they are kept, except for memfds without a
    descriptor."""
    total, open_ones = 0, {f"{inode}" for inode in _memfds(pids)}
    for pid in pids:
        counts = False
        for name, value in _lines(_PROC / str(pid) / "smaps"):
            if "-" in name.split(" ")[0]:
                # The first line of a mapping: addresses, rights, offset, device, inode, path.
                parts = f"{name}:{value}".split(maxsplit=5)
                path = parts[5] if len(parts) > 5 else ""
                anonymous = not path.startswith("/") or path.startswith(_ANONYMOUS_SHARED)
                counts = anonymous or (path.startswith(_MEMFD) and parts[4] not in open_ones)
            elif (counts and name == "Pss") or (not counts and name == "Anonymous"):
                total += int(value.split()[0]) * 1024
    return total


def _memfds(pids: list[int]) -> dict[int, int]:
    """Sizes of memory that descriptors hold, by inode."""
    found: dict[int, int] = {}
    for pid in pids:
        try:
            for entry in (_PROC / str(pid) / "fd").iterdir():
                if os.readlink(entry).startswith(_MEMFD):  # noqa: PTH115 - such a link is no path
                    seen = entry.stat()
                    found[seen.st_ino] = seen.st_blocks * 512
        except OSError:
            continue
    return found


def _files_in_memory(first: int) -> int:
    """What the temporary folders hold."""
    kinds = dict(_devices(first))
    total = 0
    for folder in ("tmp", "dev/shm", "job/home"):
        try:
            opened = os.open(_PROC / str(first) / "root" / folder, os.O_PATH)
        except OSError:
            continue
        try:
            device = os.fstat(opened).st_dev
            # While the sandbox is being set up, these may still be folders of outside.
            if kinds.get(f"{os.major(device)}:{os.minor(device)}") == "tmpfs":
                disk = os.fstatvfs(opened)
                total += (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        except OSError:
            continue
        finally:
            os.close(opened)
    return total


def _devices(first: int) -> Iterator[tuple[str, str]]:
    """The kinds of the file systems that are mounted inside, by device."""
    try:
        lines = (_PROC / str(first) / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        mount, _, system = line.partition(" - ")
        yield mount.split()[2], system.split()[0]


def _number_inside(pid: int) -> int | None:
    found = next((value for name, value in _lines(_PROC / str(pid) / "status") if name == "NSpid"), None)
    return None if found is None else int(found.split()[-1])


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            yield name, value
    except OSError:
        return
