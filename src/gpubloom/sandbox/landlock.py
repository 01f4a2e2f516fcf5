"""confine_reader(): a process that parses strangers' files gives up everything but its own inputs.

Landlock is the kernel's access control for a process that restricts itself; it needs no root and no
namespaces. A confined reader can read its inputs and Python's own libraries, write where it is told to, and
nothing else: no other file, no program, no TCP connection, no signal to a process outside. Landlock covers
neither UDP nor Unix sockets; the seccomp filter refuses every socket.

The rules bind the calling thread and what it starts later. So a reader confines itself while it has one
thread, before it imports libraries that start more of them.

Written with ctypes because the standard library does not offer these system calls.
"""

import ctypes
import os
import resource
import signal
import sys
import sysconfig
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gpubloom.sandbox import kernel, seccomp

# require: refuse to read without confinement. prefer: read without it where the kernel has none. off: never.
Policy = Literal["require", "prefer", "off"]

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL_OF_VERSION_1 = (1 << 13) - 1
_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
# What the kernel accepts for a path that is not a folder.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1

# Shared libraries, the kernel's random numbers, time zones and the number of processors. Nothing of /proc:
# it shows other processes.
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_SYSTEM = (
    *("/dev/null", "/dev/zero", "/dev/urandom", "/usr/share/zoneinfo", "/etc/localtime"),
    "/sys/devices/system/cpu",
)
# How names become addresses, and whom TLS trusts.
_NETWORK = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"),
    *("/etc/services", "/run/systemd/resolve", "/etc/ssl", "/etc/pki", "/etc/ca-certificates"),
    "/usr/share/ca-certificates",
)

# Address space, not memory in use: libraries reserve much more than they touch.
ADDRESS_BYTES = 6 << 30
_OPEN_FILES = 256
# Counts all threads of this user, so it ends a fork bomb and nothing else.
_PROCESSES = 8_192


class SandboxError(Exception):
    """This process could not be confined, and the policy requires it."""


@dataclass(frozen=True)
class Limits:
    """What a reader may use. `file_bytes` bounds each file that it writes."""

    cpu_seconds: int
    memory_bytes: int = ADDRESS_BYTES
    file_bytes: int = 0
    # Lets everything else on the machine go first.
    nice: bool = False


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


class _Port(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def with_links(folder: Path) -> list[Path]:
    """A folder and the files that its links lead to. An upload has no links; a folder of the operator may."""
    return [folder, *(path.resolve() for path in folder.iterdir() if path.is_symlink())]


def landlock_version() -> int:
    """The version of Landlock that this kernel offers; 0 where it has none, or where it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return kernel.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    except OSError:
        return 0


def confine_reader(
    readable: Sequence[Path],
    writable: Sequence[Path] = (),
    *,
    limits: Limits,
    policy: Policy,
    network: bool = False,
    ports: Collection[int] = (),
) -> None:
    """Confine this process for the rest of its life. Raises SandboxError when the policy requires more.

    `readable` and `writable` are files or folders; a folder stands for all beneath it. `network` leaves
    sockets open, for a process that downloads; TCP to these `ports` only, if there are some.
    """
    apply_limits(limits)
    if not sys.platform.startswith("linux"):
        return
    # A server that was killed leaves no readers behind.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if policy == "off":
        return
    version = landlock_version()
    if version == 0 and policy == "require":
        raise SandboxError("this kernel has no Landlock (Linux 5.13 or later)")
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    if threads > 1:
        raise SandboxError(f"this process has {threads} threads already, which the rules would not bind")
    try:
        if version > 0:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            _restrict(readable, writable, version, network=network, ports=ports)
        parser = seccomp.PARSER
        seccomp.install(replace(parser, families=seccomp.JOB.families) if network else parser)
    except (OSError, KeyError) as problem:
        # The filter knows some kinds of processors only.
        if policy == "require":
            raise SandboxError(str(problem)) from problem


def close_network(policy: Policy) -> None:
    """No new sockets from here on, for a process that was confined with `network` and has downloaded all."""
    if policy == "off" or not sys.platform.startswith("linux"):
        return
    try:
        seccomp.install(seccomp.PARSER)
    except (OSError, KeyError) as problem:
        if policy == "require":
            raise SandboxError(str(problem)) from problem


def apply_limits(limits: Limits) -> None:
    """Bound the memory, time, files and processes of this process; no core files."""
    bounds = {
        resource.RLIMIT_AS: ADDRESS_BYTES,
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_NPROC: _PROCESSES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, wanted in bounds.items():
        _, most = resource.getrlimit(kind)
        allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(kind, (allowed, allowed))
    # The soft limit ends the process; the hard one is for a process that ignores its signal.
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 5))
    if limits.nice:
        os.nice(10)


def _restrict(
    readable: Iterable[Path],
    writable: Iterable[Path],
    version: int,
    *,
    network: bool,
    ports: Collection[int],
) -> None:
    handled = _ALL_OF_VERSION_1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if version >= since:
            handled |= right
    net = _BIND_TCP | (0 if network and not ports else _CONNECT_TCP)
    rules = _Ruleset(handled, net, _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS)
    # Older kernels know fewer fields.
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = kernel.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        inputs = [*readable, *writable]
        # A folder of modules that also holds strangers' files would open them all.
        own = [
            folder for folder in python_folders() if not any(each.is_relative_to(folder) for each in inputs)
        ]
        for path in (*own, *_LIBRARIES, *_SYSTEM, *(_network_files() if network else ()), *readable):
            _allow(ruleset, path, _READ & handled)
        _allow(ruleset, "/dev/null", (_READ_FILE | _WRITE_FILE) & handled)
        for path in writable:
            _allow(ruleset, path, _WRITE & handled)
        # Older kernels have no rules for connections.
        for port in ports if version >= 4 else ():
            rule = _Port(_CONNECT_TCP, port)
            kernel.syscall(_ADD_RULE, ruleset, _NET_PORT, ctypes.byref(rule), ctypes.c_uint32(0))
        kernel.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str | Path, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # What is not there, or may not be seen, cannot be read either.
        return
    try:
        if not Path(f"/proc/self/fd/{descriptor}").is_dir():
            access &= _OF_FILES
        rule = _PathBeneath(access, descriptor)
        kernel.syscall(
            _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0), about=str(path)
        )
    finally:
        os.close(descriptor)


def python_folders() -> list[str]:
    """Where this interpreter finds its modules and their shared libraries."""
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    folders = {*installed, *sys.path}
    folders |= {f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)}
    folders |= set(os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    return sorted(folder for folder in folders if folder and Path(folder).is_absolute())


def _network_files() -> list[str]:
    named = (os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    return [*_NETWORK, *(name for name in named if name)]
