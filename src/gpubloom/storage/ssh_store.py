"""The disk of the rented machine as the store of one attempt: this server connects over SSH, and pulls.

For services that give a machine with an address. Neither a bucket nor a public address of this server is
needed. The agent on the machine reads and writes files of a folder there (`volume:` addresses); this side
reaches the same files with OpenSSH's client.

- Both keys of a connection are made here, one pair for each attempt, and reach the machine through its user
  data: the key that may sign in, and the machine's own host key. So nobody else is answered, and nobody else
  answers. The key may run one program there (`providers/machine_store.sh`), and nothing else.
- Before the machine is there, files wait in a folder of this server (`staged`). They are sent in the
  background once the machine answers; the file that starts the job goes last.
- The machine is not trusted: what it sends is limited in size, and checked by the receiver as ever.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, NoReturn

from gpubloom.agent.remote.link import VOLUME_SCHEME
from gpubloom.storage.run_store import Method
from gpubloom.storage.server_store import ServerStore
from gpubloom.storage.store import StorageError

USER = "root"
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,254}")
_LISTED = re.compile(r"(\d{1,15}) ([A-Za-z0-9._/-]{1,400})")
_MISSING = 3
_NO_CONNECTION = 255
_CALL_SECONDS = 60.0
# The slowest transfer that is waited for, in bytes per second.
_SLOWEST = 250e3
_CONNECT_SECONDS = 10
# A folder with as many batches as there are slots, many times over.
_LARGEST_LIST = 4 << 20
_LARGEST_FILE = 256 << 20
_RETRY_SECONDS = 5.0
# The start file is what the machine waits for.
_START = re.compile(r".*/bundle/start-\d+-[0-9a-f]+\.py")
_SAID = {
    "connection refused": "the machine does not accept SSH connections yet",
    "timed out": "the machine does not answer on its SSH port",
    "no route to host": "there is no route to the machine",
    "network is unreachable": "this server has no network",
    "permission denied": "the machine does not accept the key of this server yet",
    "host key verification failed": "the machine has another host key than the one that it was given",
    "no matching host key type": "the machine has another host key than the one that it was given",
    "connection lost": "the connection was lost",
}


class MachineUnreachable(StorageError):
    """No SSH connection to the machine. It may be the machine, or the network of this server."""


@dataclass(frozen=True)
class SshAccess:
    """What a machine is told, so that this server can connect: its host key, and who may sign in."""

    host_key: str = field(repr=False)
    authorized_key: str


@dataclass(frozen=True)
class SshKeys:
    """The two key pairs of one attempt, in OpenSSH's formats."""

    access: SshAccess
    identity: str = field(repr=False)
    host_public_key: str

    @classmethod
    def derived(cls, sign: Callable[[str], str], key: str) -> "SshKeys":
        """Of a secret of this installation and the key of an attempt: a restarted worker has the same."""
        identity, public = _key_pair(sign(f"client {key}"))
        host_key, host_public = _key_pair(sign(f"host {key}"))
        return cls(SshAccess(host_key, public), identity, host_public)


class SshStore:
    """The store of one attempt. `staged` holds its files until they are on the machine. `close` it."""

    def __init__(
        self, staged: ServerStore, folder: str, keys: SshKeys, *, retry_seconds: float = _RETRY_SECONDS
    ) -> None:
        self._staged, self._folder, self.keys = staged, folder, keys
        self._retry_seconds = retry_seconds
        self._machine: tuple[str, int] | None = None
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._sending: threading.Thread | None = None
        self._closed = threading.Event()
        # Guards what is staged, and whether all of it has been sent.
        self._lock = threading.Lock()
        self._all_sent = False
        self._connecting = threading.Lock()
        self._connection: subprocess.Popen[bytes] | None = None
        # Whether the machine has ever answered, and why it did not the last time.
        self._has_answered = False
        self.problem: str | None = None

    def reach(self, host: str, port: int) -> None:
        """The machine is there, at this address; what waits for it is sent from now on."""
        if _HOST.fullmatch(host) is None or not 0 < port < 65536:
            raise StorageError("store_unavailable", "The provider gave no usable address of the machine.")
        if self._machine not in (None, (host, port)):
            with self._connecting:
                self._disconnect()
        self._machine = (host, port)
        self._write_files()
        if self._sending is None:
            self._sending = threading.Thread(target=self._send_staged, name="ssh store", daemon=True)
            self._sending.start()

    def put(self, name: str, content: bytes | Path | BinaryIO) -> None:
        """Staged, and sent at once where everything else has been sent before."""
        with self._lock:
            self._staged.put(name, content)
            send_now = self._all_sent
        if send_now:
            self._send(name)

    def put_files(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self.put(name, path)

    def get(self, name: str, *, most: int | None = None) -> bytes | None:
        staged = self._staged.get(name, most=most)
        if staged is not None or not self._may_ask():
            return staged
        largest = _LARGEST_FILE if most is None else most
        code, content = self._call("get", name, largest=largest, seconds=_seconds_for(largest))
        return None if code == _MISSING or len(content) > largest else content

    def has(self, name: str) -> bool:
        return self._staged.has(name) or name in self.sizes(name.rpartition("/")[0])

    def sizes(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        if self._may_ask():
            _, content = self._call("list", folder.rstrip("/"), largest=_LARGEST_LIST)
            prefix = f"{folder.rstrip('/')}/"
            for line in content.decode("ascii", "replace").splitlines():
                match = _LISTED.fullmatch(line)
                if match is not None and match[2].startswith(prefix) and ".." not in match[2]:
                    found[match[2]] = int(match[1])
        return {**found, **self._staged.sizes(folder)}

    def delete(self, names: Sequence[str]) -> None:
        self._staged.delete(names)
        names = list(names) if self._may_ask() else []
        for begin in range(0, len(names), 100):
            self._call("delete", *names[begin : begin + 100])

    def delete_folder(self, folder: str) -> None:
        """What waits here. The machine goes with all that is on it."""
        self._staged.delete_folder(folder)

    def addresses(self, method: Method, names: Sequence[str], life_seconds: float) -> list[str]:
        """Names in the folder on the machine; they do not expire, and mean nothing anywhere else."""
        return [f"{VOLUME_SCHEME}{name}" for name in names]

    def close(self) -> None:
        self._closed.set()
        with self._connecting:
            self._disconnect()
        if self._sending is not None:
            self._sending.join(_CONNECT_SECONDS)
        if self._files is not None:
            self._files.cleanup()

    def _may_ask(self) -> bool:
        """False: there is no machine yet, or it has just booted and does not answer yet."""
        if self._machine is None:
            return False
        if not self._has_answered:
            with suppress(MachineUnreachable):
                self._call("list", self._folder, largest=_LARGEST_LIST)
        return self._has_answered

    def _send_staged(self) -> None:
        """Until everything that was stored before the machine was there is on it."""
        while not self._closed.is_set():
            try:
                with self._lock:
                    names = list(self._staged.sizes(self._folder))
                    if not names:
                        self._all_sent = True
                        return
                for name in sorted(names, key=lambda name: (_is_start(name), name)):
                    if self._closed.is_set():
                        return
                    self._send(name)
            except StorageError as problem:
                self.problem = str(problem)
                self._closed.wait(self._retry_seconds)

    def _send(self, name: str) -> None:
        path = self._staged.path(name)
        try:
            with path.open("rb") as source:
                before = os.fstat(source.fileno())
                size, seconds = str(before.st_size), _seconds_for(before.st_size)
                self._call("put", name, size, source=source, seconds=seconds)
            with self._lock:
                # It may have been replaced meanwhile; then the new one is sent next.
                if path.stat().st_ino == before.st_ino:
                    path.unlink()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise StorageError(
                "store_unavailable", f"A file of the job cannot be read here ({type(problem).__name__})."
            ) from problem

    def _call(
        self,
        action: str,
        *arguments: str,
        source: IO[bytes] | None = None,
        largest: int = 1 << 16,
        seconds: float = _CALL_SECONDS,
    ) -> tuple[int, bytes]:
        """Run one action there. Of its output, a byte more than `largest` at most."""
        if self._machine is None:
            raise MachineUnreachable("store_unavailable", "The rented machine has no address yet.")
        if self._closed.is_set():
            raise MachineUnreachable("store_unavailable", "The connection to the rented machine was closed.")
        self._connect()
        process = subprocess.Popen(
            [*self._command(*self._machine), " ".join([action, *arguments])],
            stdin=subprocess.DEVNULL if source is None else source,
            stdout=subprocess.PIPE,
            # A machine may say as much as it likes.
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout is not None
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        try:
            content = process.stdout.read(largest + 1)
            if len(content) > largest:
                process.kill()
            process.stdout.close()
            code = process.wait()
        finally:
            killer.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        if code in {_NO_CONNECTION, -signal.SIGKILL} and len(content) <= largest:
            with self._connecting:
                self._disconnect()
            self._raise_unreachable("connection lost")
        self._has_answered, self.problem = True, None
        if code not in {0, _MISSING} and len(content) <= largest:
            told = "; its disk may be full" if action == "put" else ""
            raise StorageError("store_unavailable", f"The rented machine could not {action} a file{told}.")
        return code, content

    def _write_files(self) -> None:
        if self._files is not None:
            return
        self._files = tempfile.TemporaryDirectory(prefix="bloom-ssh-")
        folder = Path(self._files.name)
        (folder / "identity").touch(mode=0o600)
        (folder / "identity").write_text(self.keys.identity)
        (folder / "known_hosts").write_text(f"machine {self.keys.host_public_key}\n")

    def _command(self, host: str, port: int) -> list[str]:
        """Only what is written here counts: no configuration, no agent and no key of whoever runs this."""
        assert self._files is not None
        folder = Path(self._files.name)
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": _CONNECT_SECONDS,
            "ControlMaster": "no",
            "ControlPath": folder / "control",
            "ForwardAgent": "no",
            "GlobalKnownHostsFile": "none",
            "HostKeyAlgorithms": "ssh-ed25519",
            "HostKeyAlias": "machine",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "IdentityFile": folder / "identity",
            "LogLevel": "ERROR",
            "PermitLocalCommand": "no",
            "PreferredAuthentications": "publickey",
            "ServerAliveInterval": 10,
            "ServerAliveCountMax": 3,
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
            "UserKnownHostsFile": folder / "known_hosts",
        }
        given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-T", *given, "-p", str(port), f"{USER}@{host}"]

    def _connect(self) -> None:
        """One connection, which all calls share. MachineUnreachable: there is none."""
        assert self._machine is not None
        assert self._files is not None
        control, log = Path(self._files.name, "control"), Path(self._files.name, "log")
        with self._connecting:
            if self._connection is not None and self._connection.poll() is None and control.exists():
                return
            self._disconnect()
            program, *options = self._command(*self._machine)
            with log.open("wb") as said:
                self._connection = subprocess.Popen(
                    # Of an option that is given twice, the first one counts.
                    [program, "-o", "ControlMaster=yes", "-N", *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            deadline = time.monotonic() + 2 * _CONNECT_SECONDS
            while not control.exists():
                if self._connection.poll() is not None or time.monotonic() > deadline:
                    self._disconnect()
                    self._raise_unreachable(log.read_text(errors="replace"))
                time.sleep(0.02)

    def _raise_unreachable(self, said: str) -> NoReturn:
        self.problem = _reason(said)
        raise MachineUnreachable(
            "store_unavailable", f"No SSH connection to the rented machine: {self.problem}."
        )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.kill()
            connection.wait()
        if self._files is not None:
            Path(self._files.name, "control").unlink(missing_ok=True)


def why_no_ssh() -> str | None:
    """Why this server cannot connect to machines; None: it can."""
    if shutil.which("ssh") is None:
        return "This server has no SSH client. Install openssh-client."
    return None


def _seconds_for(size: int) -> float:
    return _CALL_SECONDS + size / _SLOWEST


def _is_start(name: str) -> bool:
    return _START.fullmatch(name) is not None


def _reason(said: str) -> str:
    """In our words: what a machine, or the program, says can hold anything."""
    return next((ours for theirs, ours in _SAID.items() if theirs in said.lower()), "unexpected answer")


def _key_pair(secret: str) -> tuple[str, str]:
    """An Ed25519 key pair of a secret: the private key, and the public one as a line."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(secret.encode()).digest())
    text = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return text, private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
