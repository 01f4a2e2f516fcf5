"""Runs one command in a sandbox of bubblewrap and watches what it takes.

Started as a file, so the standard library is all it has. It lives twice. Outside it starts `bwrap`, holds
the locks of the run, passes requests to stop on, and ends what takes more than it may. Inside it is the first
thing that runs: it closes what was inherited, sets the kernel's limits, gives up root, becomes the command.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

# Where bubblewrap shows this file inside.
INSIDE_PATH = "/bloom/confined.py"

_LOOK_SECONDS = 0.25
_INFO_SECONDS = 10.0
# Devices are chosen by whoever starts the job; the rest of the environment comes with the options.
_INHERITED = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")
_ENDED_BY_US = 1
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
_PROC = Path("/proc")
_PAGE_BYTES = resource.getpagesize()
# In /proc/<pid>/stat, behind the program's name.
_PARENT, _THREADS = 1, 17


def outside(options: Mapping[str, Any], command: Sequence[str]) -> NoReturn:
    """Runs the command inside, and ends as it ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    chosen = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    told = {
        "environment": {**options["environment"], **chosen},
        "limits": options["limits"],
        "user": options["user"],
        "beside": _threads_of(options["user"]),
    }
    information, information_end = os.pipe()
    kept = [information_end]
    arguments = list(options["arguments"])
    for path, text in options["files"].items():
        kept.append(_held(text))
        arguments += ["--perms", "0444", "--ro-bind-data", str(kept[-1]), path]
    arguments += ["--remount-ro", "/", "--info-fd", str(information_end)]
    # By descriptor: its process 1 is seen inside, and with it what stands on its command line.
    kept.append(_held("\0".join(arguments)))
    inner = [*options["python"], INSIDE_PATH, "inside", json.dumps(told), *command]
    process = subprocess.Popen(
        [options["bwrap"], "--args", str(kept[-1]), "--", *inner],
        # Nothing that a person chose: a variable such as LD_PRELOAD would act out here.
        env={},
        pass_fds=kept,
        # Signals to the run's process group reach this process alone, which passes them on properly.
        start_new_session=True,
    )
    for descriptor in kept:
        os.close(descriptor)
    first = _first_process(information)
    problem = _watch(process, first, options["limits"], options["work"])
    if problem is not None:
        sys.stderr.write(f"[sandbox] {problem}\n")
        sys.stderr.flush()
        os._exit(_ENDED_BY_US)
    _end_like(process.returncode)


def _held(text: str) -> int:
    """A descriptor from which a text can be read once."""
    descriptor = os.memfd_create("sandbox")
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _first_process(information: int) -> int | None:
    """The sandbox's process 1, by the number it has out here; None when bubblewrap could not start it."""
    told = b""
    while select.select([information], [], [], _INFO_SECONDS)[0]:
        part = os.read(information, 4096)
        told += part
        if not part or b"}" in told:
            break
    os.close(information)
    try:
        return int(json.loads(told)["child-pid"])
    except (ValueError, KeyError):
        return None


def _watch(
    process: "subprocess.Popen[bytes]", first: int | None, limits: Mapping[str, Any], work: str
) -> str | None:
    """Until the sandbox is gone; a sentence when it was ended because of what it took."""
    asked, passed_on = False, False
    while process.poll() is None:
        got = signal.sigtimedwait(_SIGNALS, _LOOK_SECONDS)
        if got is not None and got.si_signo != signal.SIGCHLD:
            asked = True
        if first is None:
            if asked:
                process.terminate()
            continue
        if asked and not passed_on:
            passed_on = _pass_on(first)
        if problem := _too_much(first, limits, work):
            # Its process 1 dies with it, and with that everything inside.
            process.kill()
            process.wait()
            return problem
    return None


def _pass_on(first: int) -> bool:
    """Asks the command itself to stop: process 2 inside. False: it is not there yet."""
    for pid, _, _ in _descendants(first):
        if _number_inside(pid) == 2:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                return False
            return True
    return False


def _too_much(first: int, limits: Mapping[str, Any], work: str) -> str | None:
    some = _descendants(first)
    threads = sum(count for _, _, count in some)
    if threads > limits["processes"]:
        most = limits["processes"]
        return f"The script was stopped: it had {threads:,} processes and threads (limit {most:,})."
    memory = sum(_own_memory(pid) for pid, _, _ in some)
    if memory > limits["memory_bytes"]:
        taken, most = memory / 1e9, limits["memory_bytes"] / 1e9
        return f"The script was stopped: it used {taken:.1f} GB of memory (limit {most:.1f} GB)."
    disk = os.statvfs(work)
    free = disk.f_bavail * disk.f_frsize
    if free < limits["least_free_bytes"]:
        return f"The script was stopped before it could fill the disk: only {free / 1e9:.1f} GB are left."
    return None


def _descendants(first: int) -> list[tuple[int, int, int]]:
    """The processes of the sandbox, each with its parent and its threads. Orphans stay below process 1."""
    children: dict[int, list[tuple[int, int, int]]] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # The program's name stands in brackets and may hold brackets and blanks of its own.
        fields = text.rpartition(")")[2].split()
        parent = int(fields[_PARENT])
        children.setdefault(parent, []).append((int(entry.name), parent, int(fields[_THREADS])))
    found: list[tuple[int, int, int]] = []
    waiting = [first]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [pid for pid, _, _ in below]
    return found


def _threads_of(user: int | None) -> int:
    """How many processes and threads of a user there are; of ours, when no user is named."""
    wanted, count = os.getuid() if user is None else user, 0
    for entry in _PROC.iterdir():
        try:
            if entry.name.isdecimal() and entry.stat().st_uid == wanted:
                count += sum(1 for _ in (entry / "task").iterdir())
        except OSError:
            continue
    return count


def _own_memory(pid: int) -> int:
    try:
        _, resident, shared, *_ = (_PROC / str(pid) / "statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def _number_inside(pid: int) -> int | None:
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("NSpid:")), None)
    return None if found is None else int(found.split()[-1])


def _end_like(code: int) -> NoReturn:
    """Bubblewrap says 128 + n for a command that signal n ended; who waits for us should see the signal."""
    number = -code if code < 0 else code - 128
    if number > 0 and number in set(signal.valid_signals()):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    os._exit(code if code >= 0 else 128 - code)


def inside(told: Mapping[str, Any], command: Sequence[str]) -> NoReturn:
    """Become the command, without inherited descriptors or rights."""
    limits, user = told["limits"], told["user"]
    # The locks of the run and of its devices belong to those outside.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        # Above what is watched for: a script that is merely held at its limit would go on trying forever. The
        # kernel counts all that the user runs on this machine.
        (resource.RLIMIT_NPROC, 2 * limits["processes"] + told["beside"]),
    ):
        if value is not None:
            most = resource.getrlimit(which)[1]
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(which, (value, value))
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    os.umask(0o022)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvpe(command[0], list(command), told["environment"])  # noqa: S606 - what the sandbox is for
    except OSError as problem:
        sys.exit(f"[sandbox] {command[0]} could not be started: {problem.strerror}")


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        inside(json.loads(sys.argv[2]), sys.argv[3:])
    outside(json.loads(sys.argv[1]), sys.argv[2:])
