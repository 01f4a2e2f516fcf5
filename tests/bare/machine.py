"""A bare machine: a root file system of its own, own processes, own mounts, and a network of one interface.

Nothing of this machine is visible there, and nothing outside is reachable but the ports of the loopback
address that are forwarded to it: package index, bucket, and the API of the service.
"""

import ctypes
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.providers.services.machine import Machine

_CLONE_NEWNET = 0x40000000
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DRIVER = "#!/bin/sh\necho 'NVIDIA A10, 580.95.05, 8.6, 23028 MiB'\n"
# There is no GPU in it: the check of CUDA has tests of its own.
_CUDA_WORKS = """\
try:
    import torch
except ImportError:
    raise SystemExit from None
print("PyTorch", torch.__version__, "computes on NVIDIA A10 (8.6)")
"""

# $1: the root below, $2: the folder of the job on the machine, $3: a command that prepares the root.
_ENTER = """\
set -eu
lower=$1 home=$2 prepare=$3
shift 3
ip link set lo up
mkdir -p upper work root bloom
mount -t overlay overlay -o "lowerdir=$lower,upperdir=upper,workdir=work" root
mount -t proc proc root/proc
mount -t tmpfs -o mode=755 tmpfs root/dev
for device in null zero full random urandom; do
  touch "root/dev/$device"
  mount --bind "/dev/$device" "root/dev/$device"
done
ln -s /proc/self/fd root/dev/fd
mkdir root/dev/shm
mount -t tmpfs tmpfs root/dev/shm
mkdir -p "root$home"
mount --bind bloom "root$home"
cp -a image/. root/
eval "$prepare"
touch entered
while [ ! -e forwarded ]; do sleep 0.05; done
# Set for machines that are folders of this one.
case $BLOOM_JOB_FOLDER in "$PWD"/*) unset BLOOM_JOB_FOLDER ;; esac
cd /
exec chroot "$OLDPWD/root" "$@"
"""
# The first process of the machine. A container is what its command is; a machine stays until it is off.
_INIT = 'trap "exit 0" TERM; bash /boot.sh & while :; do sleep 3600 & wait $!; done'


@dataclass
class Image:
    """What machines of a test start with.

    `ports`: of the loopback address here, reachable there too. `bytes_per_second`: how fast they are.
    `files`: written into the root. `prepare`: a command for the folder of the machine, before it boots.
    """

    root: Path
    ports: list[int]
    files: dict[str, str] = field(default_factory=dict)
    prepare: str = ":"
    bytes_per_second: float | None = None
    environment: dict[str, str] = field(default_factory=dict)
    # Whether the SSH port of each machine is reached from here.
    ssh: bool = False

    def write(self, folder: Path, more: Mapping[str, str]) -> None:
        programs = {
            "usr/local/bin/nvidia-smi": _DRIVER,
            "usr/local/lib/cuda_works.py": _CUDA_WORKS,
            "usr/sbin/shutdown": "#!/bin/sh\nexec kill -TERM 1\n",
        }
        for name, text in {**programs, **self.files, **more}.items():
            path = folder / "image" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)


class BareMachine(Machine):
    """`bloom` in its folder is the folder of the job there, as on the machines of other tests."""

    def __init__(
        self,
        folder: Path,
        image: Image,
        home: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        given = {
            "PATH": _PATH,
            "HOME": "/root",
            "BLOOM_CUDA_CHECK": "/usr/local/lib/cuda_works.py",
            # Threads that wait for each other are slow beside other tests.
            "OMP_NUM_THREADS": "1",
        }
        self._image = image
        self._forwards: list[_Forward | _SshForward] = []
        self._ssh: _SshForward | None = None
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        enter = ["sh", "-c", _ENTER, "enter", str(image.root), home, image.prepare]
        # Its environment is all that it gets from here: what is in a command, everybody sees.
        seen = {**given, **image.environment, **environment}
        super().__init__(folder, [*namespaces, *enter, *command], seen, clock=clock)

    def start(self) -> None:
        # A container that is started again has a fresh root and the same disk.
        for used in ("upper", "work", "root", "entered", "forwarded"):
            path = self.folder / used
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        super().start()
        deadline = time.monotonic() + 60
        while not (self.folder / "entered").exists():
            assert self.running, f"the machine could not be entered: {self.text}"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert self.pid is not None
        listening = _listen_in(self.pid, self._image.ports)
        self._forwards = [_Forward(each, self._image.bytes_per_second) for each in listening]
        if self._image.ssh:
            self._ssh = _SshForward(self.pid)
            self._forwards.append(self._ssh)
        (self.folder / "forwarded").touch()

    @property
    def ssh_address(self) -> str:
        """Where its port 22 is reached from here; the same port, at an address of its own."""
        return "127.0.0.1" if self._ssh is None else self._ssh.address

    @property
    def ssh_port(self) -> int:
        return 22

    def vanish(self) -> None:
        super().vanish()
        for forward in self._forwards:
            forward.close()


def machine_of(
    folder: Path, image: Image, script: str, *, clock: Callable[[], float] = time.time
) -> BareMachine:
    """One that runs user data when it boots."""
    image.write(folder, {"boot.sh": script})
    return BareMachine(folder, image, "/opt/bloom", ["bash", "-c", _INIT], {}, clock=clock)


def _enter_network(pid: int) -> None:
    """This thread, and no other, is in the network of a process from now on."""
    with Path(f"/proc/{pid}/ns/net").open() as network:
        if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns failed")


def _listen_in(pid: int, ports: Sequence[int]) -> list[socket.socket]:
    """Sockets that listen on the loopback address of another network. A socket stays where it was made, so
    a thread goes there, and ends."""
    made: list[socket.socket] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            _enter_network(pid)
            made.extend(socket.create_server(("127.0.0.1", port), backlog=64) for port in ports)
        except OSError as problem:
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not problems, problems
    return made


class _SshForward:
    """Carries connections from an address here to the SSH port of a machine."""

    _made = 0

    def __init__(self, pid: int) -> None:
        _SshForward._made += 1
        self.address, self._pid = f"127.77.{_SshForward._made // 250}.{1 + _SshForward._made % 250}", pid
        try:
            self._listening = socket.create_server((self.address, 22), backlog=16)
        except OSError as problem:
            pytest.skip(f"port 22 of the loopback addresses is taken: {problem}")
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(here,), daemon=True).start()

    def _connect(self, here: socket.socket) -> None:
        # This thread goes to the network of the machine, and ends there.
        with here, suppress(OSError):
            _enter_network(self._pid)
            with socket.create_connection(("127.0.0.1", 22)) as there:
                back = threading.Thread(target=_carry, args=(there, here), daemon=True)
                back.start()
                _carry(here, there)
                back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(1 << 16):
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class _Forward:
    """Carries connections from a machine to the same port here."""

    def __init__(self, listening: socket.socket, bytes_per_second: float | None) -> None:
        self._listening, self._rate = listening, bytes_per_second
        self._port: int = listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                there, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(there,), daemon=True).start()

    def _connect(self, there: socket.socket) -> None:
        with there, suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as here:
            back = threading.Thread(target=self._carry, args=(here, there), daemon=True)
            back.start()
            self._carry(there, here)
            back.join()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                target.sendall(content)
                if self._rate is not None:
                    time.sleep(len(content) / self._rate)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
