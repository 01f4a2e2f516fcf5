"""A process puts itself into a sandbox: for forks of the warm parent, and where bubblewrap is missing.

The process that calls becomes three. It stays outside and watches. Its child is process 1 of the sandbox: it
mounts what is shown and collects the dead. The child of that is the job, and only there the call returns.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
from pathlib import Path
from typing import NoReturn

from gpubloom.sandbox import kernel, limiting, seccomp
from gpubloom.sandbox.cgroup import ControlGroup
from gpubloom.sandbox.mounts import enter
from gpubloom.sandbox.options import Options
from gpubloom.sandbox.owners import UserMap, prepare_owners
from gpubloom.sandbox.watch import SIGNALS, threads_of, watch

_NAMESPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
_CANNOT_START = 127
_LOOPBACK, _SIOCSIFFLAGS, _IFF_UP = b"lo", 0x8914, 1


def confine_fork(options: Options) -> None:
    """Returns in the job, confined and without descriptors above 2. Only one thread may run."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    users = prepare_owners(options)
    other_threads = threads_of(options.user)
    group = ControlGroup.create(options.group, options.limits)
    if options.user is None:
        _own_user_namespace()
    kernel.unshare(kernel.CLONE_NEWPID)
    # Whoever has the other end lives; nothing is ever written.
    alive, alive_end = os.pipe()
    child = os.fork()
    if child:
        os.close(alive)
        watch(child, child, options, group)
    try:
        os.close(alive_end)
        _be_the_first(options, users, group)
        job = os.fork()
        if job:
            _collect(job, options, alive)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(options.folder)
        reads_all = options.user is not None and users is None
        limiting.limit(options.limits, user=options.user, reads_all=reads_all, other_threads=other_threads)
        # A process that changed its user counts as one with secrets, and could not look at itself.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    except OSError as problem:
        os.write(2, f"[sandbox] The sandbox could not be set up: {problem}\n".encode())
        os._exit(_CANNOT_START)


def _own_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1\n")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1\n")


def _be_the_first(options: Options, users: UserMap | None, group: ControlGroup | None) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    # Signals to the run's process group are for the watcher, which passes them on.
    os.setsid()
    if group is not None:
        group.join()
    kernel.unshare(_NAMESPACES | (0 if options.network else kernel.CLONE_NEWNET))
    socket.sethostname("job")
    if not options.network:
        _start_loopback()
    enter(options.mounts, users)


def _start_loopback() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", _LOOPBACK, _IFF_UP))


def _collect(job: int, options: Options, alive: int) -> NoReturn:
    """Process 1: ends as the job ends, and with it everything inside."""
    limiting.give_up_rights(options.user)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    # Changing the user took this away. Who was gone by then closed the other end.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([alive], [], [], 0)[0]:
        os._exit(_CANNOT_START)
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(OSError):
        seccomp.install(seccomp.JOB)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == job:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
