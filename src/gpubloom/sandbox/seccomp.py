"""Filters for system calls: which ones a job and a parser of files may make.

A filter is a list of what is refused. It takes away what reaches around the sandbox (namespaces, mounts,
keyrings, tracing) and the parts of the kernel where faults are found most often (io_uring, bpf, perf). What
is refused gives an error, so a program that only tries goes on without.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpubloom.sandbox import kernel

# Numbers of x86-64 and of 64-bit Arm; None: that processor does not have it. From 424 on they are the same.
_NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "clone": (56, 220),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "kill": (62, 129),
    "ioctl": (16, 29),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "vhangup": (153, 58),
    "pivot_root": (155, 41),
    "adjtimex": (159, 171),
    "chroot": (161, 51),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "tkill": (200, 130),
    "sched_setaffinity": (203, 122),
    "tgkill": (234, 131),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ioprio_set": (251, 30),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "prlimit64": (302, 261),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "clock_adjtime": (305, 266),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "finit_module": (313, 273),
    "sched_setattr": (314, 274),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "execveat": (322, 281),
    "userfaultfd": (323, 282),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "clone3": (435, 435),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "landlock_create_ruleset": (444, 444),
    "memfd_secret": (447, 447),
    "process_mrelease": (448, 448),
}
_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}

_NAMESPACES = (
    (kernel.CLONE_NEWNS | kernel.CLONE_NEWCGROUP | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    | kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
)
_CLONE_THREAD = 0x0001_0000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# Of struct seccomp_data: the number, the processor, the low half of each argument.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST = 0x15, 0x35
_ALLOW, _ERROR, _KILL_PROCESS = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
# Calls of the x32 interface reach the same code by other numbers.
_X32 = 0x4000_0000
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _ALL_THREADS = 1, 1


@dataclass(frozen=True)
class Profile:
    """`refused` fail with EPERM; `missing` fail as if the kernel had none, which programs expect. Sockets are
    of the given families only. `alone`: no new processes or programs, no signals to others."""

    refused: frozenset[str]
    missing: frozenset[str]
    families: tuple[int, ...]
    alone: bool = False


_NEVER = frozenset(
    {
        *(
            "unshare",
            "setns",
            "mount",
            "umount2",
            "pivot_root",
            "chroot",
            "open_tree",
            "move_mount",
            "fsopen",
        ),
        *("fsconfig", "fsmount", "fspick", "mount_setattr", "name_to_handle_at", "open_by_handle_at"),
        *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "memfd_secret"),
        *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise"),
        *(
            "process_mrelease",
            "init_module",
            "finit_module",
            "delete_module",
            "kexec_load",
            "kexec_file_load",
        ),
        *("reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup"),
        *("settimeofday", "adjtimex", "clock_adjtime", "sethostname", "setdomainname", "iopl", "ioperm"),
        "fanotify_init",
    }
)
# A thread library that finds no clone3 uses clone, whose flags a filter can read. Memory of System V outlives
# its processes and is not seen by who watches them.
_MISSING = frozenset({"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "shmget", "msgget"})

JOB = Profile(_NEVER, _MISSING, (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK))
PARSER = Profile(
    _NEVER
    | {"execve", "execveat", "fork", "vfork", "pidfd_send_signal", "tkill", "setpriority", "ioprio_set"}
    | {"sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"},
    _MISSING | {"semget"},
    (),
    alone=True,
)


def program(profile: Profile, *, pid: int = 0) -> bytes:
    """The filter as the kernel reads it. `pid`: the process that an `alone` profile may signal."""
    column, architecture = _MACHINES[platform.machine()]
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_IF_EQUAL, architecture, 1, 0),
        _line(_RETURN, _KILL_PROCESS),
        _line(_LOAD, _NUMBER),
        _line(_IF_AT_LEAST, _X32, 0, 1),
        _line(_RETURN, _ERROR | errno.ENOSYS),
    ]

    def rule(name: str, check: Iterable[bytes]) -> None:
        if (number := _NUMBERS[name][column]) is not None:
            # The check ends with an answer, or with the number loaded again for the next rule.
            body = list(check)
            lines.append(_line(_IF_EQUAL, number, 0, len(body)))
            lines.extend(body)

    for name in sorted(profile.refused):
        rule(name, _refuse(errno.EPERM))
    for name in sorted(profile.missing):
        rule(name, _refuse(errno.ENOSYS))
    rule("clone", _unless_flags(_NAMESPACES, wanted=False))
    rule("socket", _only(0, profile.families, errno.EAFNOSUPPORT))
    rule("ioctl", _not(1, (_TIOCSTI, _TIOCLINUX)))
    if profile.alone:
        rule("clone", _unless_flags(_CLONE_THREAD, wanted=True))
        rule("kill", _only(0, (pid,), errno.EPERM))
        rule("tgkill", _only(0, (pid,), errno.EPERM))
        rule("prlimit64", _only(0, (0, pid), errno.EPERM))
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def install(profile: Profile) -> None:
    """Filters this process, all its threads, and all that comes of it. There is no way back."""
    content = program(profile, pid=os.getpid())
    code = ctypes.create_string_buffer(content, len(content))
    filter_ = _Program(len(content) // 8, ctypes.cast(code, ctypes.c_void_p))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    mode, flags = ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_ALL_THREADS)
    if kernel.syscall(_SECCOMP[platform.machine()], mode, flags, ctypes.byref(filter_)) > 0:
        raise OSError(errno.EBUSY, "a thread of this process has a filter of its own")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _line(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, when_true, when_false, value)


def _refuse(number: int) -> list[bytes]:
    return [_line(_RETURN, _ERROR | number)]


def _only(argument: int, values: tuple[int, ...], number: int) -> list[bytes]:
    """Goes on when the argument is one of the values."""
    checks = [_line(_IF_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)]
    return [_line(_LOAD, _ARGUMENTS + 8 * argument), *checks, *_refuse(number), _line(_LOAD, _NUMBER)]


def _not(argument: int, values: tuple[int, ...]) -> list[bytes]:
    """Goes on when the argument is none of the values."""
    checks = [_line(_IF_EQUAL, value, len(values) - 1 - index, 0) for index, value in enumerate(values)]
    # The last check that fails jumps over the refusal.
    checks[-1] = _line(_IF_EQUAL, values[-1], 0, 1)
    return [_line(_LOAD, _ARGUMENTS + 8 * argument), *checks, *_refuse(errno.EPERM), _line(_LOAD, _NUMBER)]


def _unless_flags(flags: int, *, wanted: bool) -> list[bytes]:
    """Goes on when the first argument has some of the flags, or none of them."""
    jumps = (0, 1) if wanted else (1, 0)
    return [
        _line(_LOAD, _ARGUMENTS),
        _line(_AND, flags),
        _line(_IF_EQUAL, 0, *jumps),
        *_refuse(errno.EPERM),
        _line(_LOAD, _NUMBER),
    ]
