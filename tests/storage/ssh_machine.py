"""A machine whose disk is the store of a job: OpenSSH's server on the loopback address, with the keys and the
one command that user data gives to a rented machine."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gpubloom.storage.ssh_store import SshKeys
from tests.ports import free_port

_PROGRAM = Path(__file__).parents[2] / "src/gpubloom/providers/machine_store.sh"


def sshd_program() -> str:
    """Where OpenSSH's server is; a test that needs it is skipped with the reason where it is not."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None or shutil.which("ssh") is None:
        pytest.skip("openssh-server or openssh-client is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root can let root sign in")
    # It refuses to start without the folder that its package makes at boot.
    Path("/run/sshd").mkdir(exist_ok=True)
    return found


class SshMachine:
    """`store` is the folder that the job sees. `start` and `stop` as often as wanted."""

    def __init__(self, folder: Path, keys: SshKeys) -> None:
        self.folder, self.port, self.store = folder, free_port(), folder / "store"
        self._sshd = sshd_program()
        self.store.mkdir(parents=True)
        shutil.copy(_PROGRAM, folder)
        self.write_private("host-key", keys.access.host_key)
        command = f'restrict,command="/bin/sh {folder}/{_PROGRAM.name}"'
        self.write_private("authorized_keys", f"{command} {keys.access.authorized_key}\n")
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host-key\nPidFile {folder}/pid\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nPermitRootLogin forced-commands-only\n"
            # The folders of tests belong to everybody.
            "StrictModes no\nUsePAM no\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def write_private(self, name: str, text: str) -> None:
        (self.folder / name).touch(mode=0o600)
        (self.folder / name).write_text(text)

    def start(self) -> None:
        command = [self._sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, start_new_session=True)

    def stop(self) -> None:
        """The server and every connection: as a machine that is gone."""
        if self._process is not None:
            # Each connection has a session of its own.
            sessions = psutil.Process(self._process.pid).children(recursive=True)
            for process in (*sessions, self._process):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            self._process = None
