"""System calls that Python does not offer. Each raises OSError as Python's own would."""

import ctypes
import os
import platform
import sys

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
MNT_DETACH = 2

ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, ATTR_IDMAP = 0x1, 0x2, 0x4, 0x8, 0x10_0000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS = 1, 4, 8
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 24, 38, 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_READ_SEARCH, LAST_CAPABILITY = 2, 63

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_FROM_EMPTY_PATH = 4
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _call(name: str, *arguments: object, about: str | None = None) -> int:
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", about)
    return result


def syscall(number: int, *arguments: object, about: str | None = None) -> int:
    """For what the C library has no function for."""
    result: int = _call("syscall", ctypes.c_long(number), *arguments, about=about)
    return result


def prctl(option: int, *arguments: int) -> None:
    _call("prctl", option, *(ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]))


def unshare(flags: int) -> None:
    _call("unshare", flags)


def mount(kind: str, target: str, flags: int = 0, data: str = "") -> None:
    """A new file system of a kind at a path."""
    _call("mount", kind.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def make_private(target: str) -> None:
    """What is mounted below from now on stays in this namespace."""
    _call("mount", b"none", target.encode(), None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None, about=target)


def pivot_root(new: str, old: str) -> None:
    syscall(_PIVOT_ROOT[platform.machine()], new.encode(), old.encode())


def detach(target: str) -> None:
    """Unmounts a tree as soon as nobody uses it."""
    _call("umount2", target.encode(), MNT_DETACH)


def open_tree(path: str) -> int:
    """A descriptor of a copy of the mounts at a path. It stands nowhere until it is moved."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), ctypes.c_uint(flags), about=path)


def move_mount(tree: int, target: str) -> None:
    flags = ctypes.c_uint(_MOVE_MOUNT_FROM_EMPTY_PATH)
    syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), flags, about=target)


def set_mount_attributes(tree: int, attributes: int, *, user_namespace: int = 0) -> None:
    """Adds attributes to a mount and to all below it."""
    wanted = _MountAttr(attributes, 0, 0, user_namespace)
    arguments = (ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE), ctypes.byref(wanted), ctypes.c_size_t(32))
    syscall(_MOUNT_SETATTR, tree, b"", *arguments)


def set_read_only(target: str) -> None:
    """One mount, without those below it."""
    wanted = _MountAttr(ATTR_RDONLY, 0, 0, 0)
    arguments = (ctypes.c_uint(0), ctypes.byref(wanted), ctypes.c_size_t(32))
    syscall(_MOUNT_SETATTR, _AT_FDCWD, target.encode(), *arguments, about=target)


def set_capabilities(kept: int = 0) -> None:
    """Keeps these of the process's own capabilities, as a set of bits."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    low, high = kept & 0xFFFF_FFFF, kept >> 32
    data = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)
    _call("capset", header, data)
