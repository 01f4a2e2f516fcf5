"""A machine that a fake of a service rents out: a folder, an environment, and processes that really run.

When it is taken away, everything that was started on it goes, also what left its session: every process
inherits a mark in its environment. Nothing else is ever signalled.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.ports import free_port

_MARK = "RENTED_MACHINE"

# What must not reach the machine that the tests run on.
_STUBS = {
    "shutdown": '#!/bin/sh\necho "$@" >"$HOME/powered-off"\nkill -KILL "$RENTED_INIT"\n',
    "apt-get": "#!/bin/sh\nexit 1\n",
    "systemd-run": "#!/bin/sh\nexit 1\n",
    "systemctl": "#!/bin/sh\nexit 1\n",
    "nvidia-smi": "#!/bin/sh\nfor gpu in 1 2 3 4 5 6 7 8; do echo 'NVIDIA A10, 580.95.05, 8.6, 23028 MiB'\n"
    "done\n",
}
# The machine's own SSH server: the real one, on a port of the loopback address.
_SSHD = """\
#!/bin/sh
cat >"$HOME/sshd_config" <<END
Port $RENTED_SSH_PORT
ListenAddress 127.0.0.1
HostKey $BLOOM_SSH_FOLDER/ssh_host_ed25519_key
PidFile $HOME/sshd.pid
AuthorizedKeysFile $HOME/.ssh/authorized_keys
PermitRootLogin forced-commands-only
StrictModes no
UsePAM no
END
exec /usr/sbin/sshd -f "$HOME/sshd_config" "$@"
"""
# The machines of these tests have no GPU: the check of CUDA is tested by itself.
_CUDA_WORKS = "print('PyTorch 2.11.0 computes on NVIDIA A10 (8.6)')\n"
_INIT = 'export RENTED_INIT=$$; bash "$1"; exec sleep infinity'


class Machine:
    """Runs `command` in `folder` from `start` on. Times are seconds by `clock`, as the service would bill."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.command = list(command)
        self.environment = dict(environment or {})
        self.output: list[tuple[float, str]] = []
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self._clock = clock
        self._mark = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._returncode: int | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "BLOOM_JOB_FOLDER": str(self.folder / "job"),
                _MARK: self._mark,
                **self.environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started_at = self._clock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append((self._clock(), line.decode(errors="replace")))

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def text(self) -> str:
        return "".join(line for _, line in self.output)

    @property
    def returncode(self) -> int | None:
        """How the command ended; None: it runs. What it left running ends with it, as in a container."""
        if self._returncode is None and self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._take_away(code)
        return self._returncode

    @property
    def running(self) -> bool:
        return self._process is not None and self.returncode is None

    @property
    def billed_seconds(self) -> float:
        if self.started_at is None:
            return 0.0
        end = self.ended_at if self.returncode is not None else None
        return (end if end is not None else self._clock()) - self.started_at

    def end(self, grace_seconds: float = 5.0) -> None:
        """Asked to go: SIGTERM to the command, and after a while the machine is gone."""
        if self._process is not None and self.running:
            self._process.terminate()
            deadline = time.monotonic() + grace_seconds
            while self._process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
        self.vanish()

    def vanish(self) -> None:
        """Gone from one moment to the next."""
        if self._process is not None and self._returncode is None:
            self._take_away(self._process.poll())

    def _take_away(self, code: int | None) -> None:
        assert self._process is not None
        while left := self.processes():
            for process in left:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    continue
            time.sleep(0.01)
        self._process.wait(10)
        if self._reader is not None:
            self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.ended_at = self._clock()
        self._returncode = code if code is not None else -signal.SIGKILL

    @property
    def ssh_address(self) -> str:
        return "127.0.0.1"

    @property
    def ssh_port(self) -> int:
        """Where the machine's SSH server is reached from here."""
        return int(self.environment["RENTED_SSH_PORT"])

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on it, wherever it went."""
        found = self._ssh_server()
        for process in psutil.process_iter():
            try:
                if self._has(process) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                continue
        return found

    def _ssh_server(self) -> list[psutil.Process]:
        """It has a session of its own and overwrites its environment with its title."""
        try:
            server = psutil.Process(int((self.folder / "sshd.pid").read_text()))
            return [server, *server.children(recursive=True)] if server.name() == "sshd" else []
        except (OSError, ValueError, psutil.NoSuchProcess):
            return []

    def _has(self, process: psutil.Process) -> bool:
        if process.environ().get(_MARK) == self._mark:
            return True
        # A process that gives itself a title overwrites its environment; it is mostly still in the session,
        # whose number nobody else gets while our own child has not been waited for.
        ours = self._process is not None and self._process.returncode is None
        return ours and self._process is not None and os.getsid(process.pid) == self._process.pid


def plain_machine(
    folder: Path,
    script: str,
    stubs: Mapping[str, str] | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> Machine:
    """One that runs a script when it boots, and stays until it is switched off. `stubs`: further programs."""
    environment = image(folder, stubs)
    (folder / "boot.sh").write_text(script)
    return Machine(
        folder,
        ["bash", "-c", _INIT, "init", str(folder / "boot.sh")],
        environment,
        clock=clock,
    )


def image(folder: Path, stubs: Mapping[str, str] | None = None) -> dict[str, str]:
    """Puts the programs of a machine into its folder; returns the environment in which they are found."""
    programs = folder / "stubs"
    programs.mkdir(parents=True)
    for program, text in {**_STUBS, "sshd": _SSHD, **(stubs or {})}.items():
        (programs / program).write_text(text)
        (programs / program).chmod(0o700)
    (programs / "cuda_works.py").write_text(_CUDA_WORKS)
    return {
        "BLOOM_HOME": str(folder / "bloom"),
        "BLOOM_CUDA_CHECK": str(programs / "cuda_works.py"),
        "BLOOM_SSH_FOLDER": str(folder / "ssh"),
        "RENTED_SSH_PORT": str(free_port()),
        # Without the folders that have the real shutdown: tests that are killed leave machines behind.
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    }
