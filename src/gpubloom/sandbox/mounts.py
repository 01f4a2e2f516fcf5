"""The files of a sandbox: as arguments of bubblewrap, or mounted by the process itself.

Both ways show the same tree: an empty read-only root with the mounts of the options in it.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from gpubloom.sandbox import kernel
from gpubloom.sandbox.options import Mount
from gpubloom.sandbox.owners import UserMap

_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_STREAMS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1"}
_LINKS_IN_DEV = {**_STREAMS, "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}
# The path is covered in the namespace of the sandbox only.
_STAGE = "/tmp"  # noqa: S108


def bubblewrap_arguments(mounts: Iterable[Mount]) -> tuple[list[str], dict[str, str]]:
    """Arguments, and texts by path. Bubblewrap reads the texts from descriptors."""
    arguments: list[str] = []
    texts: dict[str, str] = {}
    for each in mounts:
        if each.kind in {"bind", "device", "text", "link"}:
            arguments += _way_to(each.target)
        match each.kind:
            case "bind":
                word = "bind" if each.writable else "ro-bind"
                arguments += [f"--{word}{'-try' if each.optional else ''}", each.source, each.target]
            case "device":
                arguments += ["--dev-bind-try", each.source, each.target]
            case "tmpfs":
                if PurePosixPath(each.target).parent != PurePosixPath("/dev"):
                    arguments += _way_to(each.target)
                arguments += ["--perms", "1777", "--size", str(max(each.size, 4096)), "--tmpfs", each.target]
                if not each.writable:
                    arguments += ["--remount-ro", each.target]
            case "proc":
                arguments += ["--proc", each.target]
            case "dev":
                arguments += ["--dev", each.target]
            case "link":
                arguments += ["--symlink", each.source, each.target]
            case "text":
                texts[each.target] = each.source
    return arguments, texts


def _way_to(path: str) -> Iterator[str]:
    """The folders above a mount point. Left to itself, bubblewrap makes them for root alone."""
    for folder in reversed(PurePosixPath(path).parents[:-1]):
        if folder != PurePosixPath("/dev"):
            yield from ("--perms", "0755", "--dir", str(folder))


def enter(mounts: Sequence[Mount], users: UserMap | None) -> None:
    """Makes the tree the root of this process, which has a mount namespace of its own."""
    kernel.make_private("/")
    # Opened before anything is covered: a source may lie where the new root is put together.
    trees = [_open(each, users) for each in mounts]
    before = os.umask(0)
    kernel.mount("tmpfs", _STAGE, kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=16m")
    os.chdir(_STAGE)
    for each, tree in zip(mounts, trees, strict=True):
        _put(each, tree)
    os.umask(before)
    kernel.pivot_root(".", ".")
    # The old root now lies on top of the new one.
    kernel.detach(".")
    os.chdir("/")
    # Not what is mounted in it.
    for target in ["/", *(each.target for each in mounts if each.kind == "dev")]:
        kernel.set_read_only(target)


def _open(each: Mount, users: UserMap | None) -> int | None:
    if each.kind not in {"bind", "device"}:
        return None
    try:
        tree = kernel.open_tree(each.source)
    except FileNotFoundError:
        if each.optional or each.kind == "device":
            return None
        raise
    attributes = kernel.ATTR_NOSUID | (0 if each.writable or each.kind == "device" else kernel.ATTR_RDONLY)
    kernel.set_mount_attributes(tree, attributes | (0 if each.kind == "device" else kernel.ATTR_NODEV))
    if users is not None and each.owned:
        users.apply(tree)
    return tree


def _put(each: Mount, tree: int | None) -> None:
    at = each.target.lstrip("/")
    match each.kind:
        case "bind" | "device":
            if tree is not None:
                _make_place(at, is_folder=stat.S_ISDIR(os.fstat(tree).st_mode))
                kernel.move_mount(tree, at)
                os.close(tree)
        case "tmpfs":
            _make_place(at, is_folder=True)
            flags = kernel.MS_NOSUID | kernel.MS_NODEV | (0 if each.writable else kernel.MS_RDONLY)
            kernel.mount("tmpfs", at, flags, f"mode=1777,size={max(each.size, 4096)}")
        case "proc":
            _make_place(at, is_folder=True)
            kernel.mount("proc", at, kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        case "dev":
            _put_devices(at)
        case "link":
            Path(at).parent.mkdir(parents=True, exist_ok=True)
            Path(at).symlink_to(each.source)
        case "text":
            _make_place(at, is_folder=False)
            Path(at).write_text(each.source, encoding="utf-8")
            Path(at).chmod(0o444)


def _put_devices(at: str) -> None:
    _make_place(at, is_folder=True)
    kernel.mount("tmpfs", at, kernel.MS_NOSUID, "mode=0755,size=64k")
    for name in _NODES:
        tree = kernel.open_tree(f"/dev/{name}")
        _make_place(f"{at}/{name}", is_folder=False)
        kernel.move_mount(tree, f"{at}/{name}")
        os.close(tree)
    for name, target in _LINKS_IN_DEV.items():
        Path(at, name).symlink_to(target)
    Path(at, "pts").mkdir(mode=0o755)
    kernel.mount(
        "devpts", f"{at}/pts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
    )


def _make_place(at: str, *, is_folder: bool) -> None:
    path = Path(at)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    if is_folder:
        path.mkdir(mode=0o755)
    else:
        path.touch(mode=0o644)
