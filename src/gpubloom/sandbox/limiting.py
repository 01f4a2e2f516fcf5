"""The last step before a job's first instruction: limits, user, rights, filter. None can be undone."""

import os
import resource
import signal
from pathlib import Path

from gpubloom.sandbox import kernel, seccomp
from gpubloom.sandbox.options import Limits

_OPEN_FILES = 65_536
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def limit(limits: Limits, *, user: int | None, reads_all: bool, other_threads: int) -> None:
    """`reads_all`: what is shown belongs to others, and may be read all the same. `other_threads`: how many
    processes and threads the user already has on this machine."""
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, limits.process_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_MSGQUEUE, 0),
        # Above what is watched for: a job that is merely held at its limit would go on trying forever. The
        # kernel counts all that the user runs on this machine.
        (resource.RLIMIT_NPROC, 2 * limits.processes + other_threads),
    ):
        if value is not None:
            most = resource.getrlimit(which)[1]
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(which, (value, value))
    give_up_rights(user, reads_all=reads_all)
    os.umask(0o077)
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    seccomp.install(seccomp.JOB)


def give_up_rights(user: int | None, *, reads_all: bool = False) -> None:
    """Becomes a user without capabilities."""
    kept = 1 << kernel.CAP_DAC_READ_SEARCH if reads_all else 0
    kernel.prctl(kernel.PR_SET_KEEPCAPS, 1)
    if user is not None:
        os.setgroups([])
        for capability in range(last_capability() + 1):
            if not kept >> capability & 1:
                kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.set_capabilities(kept)
    if reads_all:
        # Kept by the program that this process becomes.
        kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_RAISE, kernel.CAP_DAC_READ_SEARCH)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)


def last_capability() -> int:
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text())
