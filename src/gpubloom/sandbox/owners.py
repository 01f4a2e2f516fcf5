"""A user of its own for each tenant, when the server runs as root.

The files of a job stay the server's on the disk. Where the sandbox shows them, the kernel translates their
owner (an idmapped mount). File systems that cannot do this have the files of a job given to the job's user.
"""

import contextlib
import hashlib
import os
import signal
from pathlib import Path

from gpubloom.sandbox import kernel
from gpubloom.sandbox.options import Options

# Above the ranges that system users and containers have.
_FIRST, _COUNT = 0x7000_0000, 0x0FFF_0000


def user_of(tenant: str) -> int:
    """The number of a tenant's user on this machine; the same each time."""
    digest = hashlib.sha256(tenant.encode()).digest()
    return _FIRST + int.from_bytes(digest[:8]) % _COUNT


class UserMap:
    """Shows files of this process's user as files of another one."""

    def __init__(self, user: int) -> None:
        self._namespace = _namespace_with_map(os.geteuid(), user)

    def apply(self, tree: int) -> None:
        """To a mount that stands nowhere yet. OSError: its file system cannot."""
        kernel.set_mount_attributes(tree, kernel.ATTR_IDMAP, user_namespace=self._namespace)

    def cover(self, path: str) -> None:
        """Puts the translated files over the files themselves, in this mount namespace."""
        tree = kernel.open_tree(path)
        try:
            self.apply(tree)
            kernel.move_mount(tree, path)
        finally:
            os.close(tree)

    def close(self) -> None:
        os.close(self._namespace)


def prepare_owners(options: Options) -> UserMap | None:
    """Lets the job's user write what it may write. None: its files are its own, or there is no such user.

    Forks, so only one thread may run.
    """
    if options.user is None:
        return None
    users = UserMap(options.user) if _can_map(options.disk, options.user) else None
    for each in options.mounts:
        if each.owned and each.writable:
            # What an earlier version gave away must be ours again where owners are translated.
            give(Path(each.source), options.user if users is None else os.geteuid())
    return users


def _can_map(path: str, user: int) -> bool:
    """Whether the file system at a path shows its files as another user's."""
    try:
        with contextlib.closing(UserMap(user)) as users:
            tree = kernel.open_tree(path)
            try:
                users.apply(tree)
            finally:
                os.close(tree)
    except OSError:
        return False
    return True


def give(folder: Path, user: int) -> None:
    """Makes a folder and all in it a user's own; not what links name, and not what has a second name."""
    for top, folders, names in os.walk(folder):
        for path in [Path(top, name) for name in (*folders, *names)]:
            found = path.lstat()
            if found.st_uid != user and (path.is_dir() or found.st_nlink == 1):
                os.chown(path, user, user, follow_symlinks=False)
    os.chown(folder, user, user, follow_symlinks=False)


def _namespace_with_map(outside: int, inside: int) -> int:
    """A user namespace that nobody lives in, for its map alone."""
    ready, ready_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(ready_end, b"r")
            signal.pause()
        os._exit(0)
    os.close(ready_end)
    try:
        if not os.read(ready, 1):
            raise PermissionError("user namespaces are not allowed here")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{name}").write_text(f"{outside} {inside} 1\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
