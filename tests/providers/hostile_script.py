"""A training that attacks everything around it. Runs inside the sandbox, with the standard library only.

`python hostile_script.py look SECRETS PORT PID` prints a JSON list of what it reached. The other words take
as much of something as they can, up to a bound that spares the machine if nothing stops them.
"""

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

MOST_BYTES = 3 << 30
PIECE = 64 << 20
libc = ctypes.CDLL(None, use_errno=True)
reached: list[str] = []


def attack(name: str, act: Callable[[], object]) -> None:
    """An attack that neither raises nor returns an error has reached something."""
    try:
        if act() not in (-1, False, None):
            reached.append(name)
    except (OSError, ValueError, PermissionError):
        return


def read(path: str) -> bool:
    with open(path, "rb") as file:
        return bool(file.read(64))


def connect(family: int, address: object) -> bool:
    with socket.socket(family) as asking:
        asking.settimeout(2)
        asking.connect(address)
    return True


def look(secrets: list[str], port: int, pid: int) -> None:
    for path in secrets:
        attack(f"read {path}", lambda path=path: read(path))
    for path in ("/etc/shadow", "/proc/1/environ", "/proc/1/mem", "/dev/mem", "/dev/kmsg", "/dev/vda"):
        attack(f"read {path}", lambda path=path: read(path))
    attack(
        "root of process 1", lambda: [name for name in os.listdir("/proc/1/root") if name == "home"] or None
    )
    here = Path.cwd()
    for number, path in enumerate(secrets):
        link = here / f"link-{number}"
        attack(f"link to {path}", lambda link=link, path=path: link.symlink_to(path) or read(str(link)))
        attack(
            f"hard link to {path}", lambda path=path, number=number: os.link(path, f"hard-{number}") or True
        )
    attack("write the log", lambda: (here / "logs" / "output.log").open("a"))
    attack("the agent's files", lambda: os.listdir(here / "agent") or None)
    attack("replace the agent's files", lambda: (here / "agent").rename(here / "elsewhere"))
    attack("loopback of the machine", lambda: connect(socket.AF_INET, ("127.0.0.1", port)))
    attack("another network", lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))
    attack("abstract socket", lambda: connect(socket.AF_UNIX, f"\0hostile-{port}"))
    attack("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
    attack("packets", lambda: socket.socket(17, socket.SOCK_RAW))
    attack("crypto sockets", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
    attack("keyctl", lambda: libc.syscall(250, 0, -3, 1))
    attack("add_key", lambda: libc.syscall(248, b"user", b"bloom", b"x", 1, -3))
    attack("io_uring", lambda: libc.syscall(425, 8, ctypes.create_string_buffer(120)))
    attack("bpf", lambda: libc.syscall(321, 0, ctypes.create_string_buffer(64), 64))
    attack("perf", lambda: libc.syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0))
    attack("userfaultfd", lambda: libc.syscall(323, 0))
    attack("ptrace", lambda: libc.ptrace(16, os.getppid(), 0, 0))
    attack(
        "memory of process 1", lambda: libc.syscall(310, 1, ctypes.create_string_buffer(16), 1, None, 0, 0)
    )
    attack("user namespace", lambda: libc.unshare(0x1000_0000))
    attack("mount namespace", lambda: libc.unshare(0x0002_0000))
    attack("clone with a namespace", lambda: _cloned(0x1000_0000))
    attack("another's namespace", lambda: libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))
    attack("mount", lambda: libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b""))
    attack("chroot", lambda: libc.chroot(b"/tmp"))
    attack("device node", lambda: os.mknod("node", 0o600 | 0o020000, os.makedev(1, 1)) or True)
    attack("kernel setting", lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    attack("system file", lambda: os.open("/sys/kernel/mm/transparent_hugepage/enabled", os.O_WRONLY))
    attack("open by handle", lambda: libc.syscall(304, -100, ctypes.create_string_buffer(64), 0))
    attack("root", lambda: os.setuid(0) or True)
    attack("signal to a process outside", lambda: os.kill(pid, 0) or True)
    attack("terminal", lambda: libc.ioctl(0, 0x5412, b"x"))
    attack("priority", lambda: os.nice(-5))
    with open("/proc/self/status") as status:
        rights = [line for line in status if line.startswith(("CapPrm", "CapEff", "CapBnd"))]
    reached.extend(
        line.split()[0] for line in rights if os.getuid() >= 0x7000_0000 and int(line.split()[1], 16)
    )
    json.dump(reached, sys.stdout)
    print(flush=True)


def _cloned(flags: int) -> int:
    pid = libc.syscall(56, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return int(pid)


def forks() -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.fork()
        except OSError:
            continue


def memory(kind: str) -> None:
    """Fills shared memory, files in memory or memory without a name, in several processes."""
    kept = []
    for number in range(MOST_BYTES // PIECE):
        if kind == "mmap":
            piece = mmap.mmap(-1, PIECE, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
            piece.write(b"x" * PIECE)
            kept.append(piece)
        elif kind == "memfd":
            descriptor = os.memfd_create("filled")
            os.write(descriptor, b"x" * PIECE)
            kept.append(descriptor)
        elif kind == "private":
            kept.append(bytearray(b"x" * PIECE))
        else:
            folder = ("/tmp", "/dev/shm", "/job/home")[number % 3]
            with open(f"{folder}/{number}", "wb") as file:
                file.write(b"x" * PIECE)
    print("not stopped", flush=True)


def output() -> None:
    line = b"x" * (1 << 20)
    for _ in range(200):
        os.write(1, line)


if __name__ == "__main__":
    word = Path("attack").read_text() if Path("attack").exists() else sys.argv[1]
    if word.startswith("look"):
        said = json.loads(Path("look.json").read_text())
        look(said["secrets"], said["port"], said["pid"])
    elif word == "forks":
        forks()
    elif word == "output":
        output()
    elif word == "neighbour":
        while not Path("enough").exists():
            with open("ticks", "a") as ticks:
                ticks.write(".")
            time.sleep(0.05)
    else:
        memory(word)
