"""The disk of a rented machine as the store of a job, reached with OpenSSH's client and Debian's server."""

import hashlib
import hmac
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.storage import MachineUnreachable, ServerStore, SshKeys, SshStore, StorageError
from tests.storage.ssh_machine import SshMachine
from tests.waiting import wait_until

JOB = "jobs/one"
KEY = "bloom-x-one-a1"


def keys_of(secret: bytes, key: str = KEY) -> SshKeys:
    return SshKeys.derived(lambda text: hmac.new(secret, text.encode(), "sha256").hexdigest(), key)


def staged(folder: Path) -> ServerStore:
    return ServerStore(folder, "", lambda text: "", lambda text, signature: False)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SshMachine]:
    made = SshMachine(tmp_path / "machine", keys_of(b"ours"))
    yield made
    made.stop()


@pytest.fixture
def store(tmp_path: Path, machine: SshMachine) -> Iterator[SshStore]:
    opened = SshStore(staged(tmp_path / "staged"), JOB, keys_of(b"ours"), retry_seconds=0.1)
    yield opened
    opened.close()


def test_files_wait_for_the_machine_and_the_one_that_starts_the_job_comes_last(
    store: SshStore, machine: SshMachine
) -> None:
    start = f"{JOB}/bundle/start-1-{'0' * 16}.py"
    large = os.urandom(3 << 20)
    digest = hashlib.sha256(large).hexdigest()
    store.put(start, b"print('start')")
    store.put(f"{JOB}/bundle/{digest}", large)
    store.put(f"{JOB}/a0001/mailbox.json", b"{}")
    assert store.has(start)
    assert store.get(f"{JOB}/a0001/mailbox.json") == b"{}"
    # The provider has told where the machine is, but it has not booted yet: that is no fault.
    store.reach("127.0.0.1", machine.port)
    assert store.sizes(f"{JOB}/a0001/in") == {}
    assert store.problem is not None
    machine.start()
    wait_until((machine.store / start).exists)
    assert (machine.store / f"{JOB}/bundle/{digest}").read_bytes() == large
    assert (machine.store / f"{JOB}/a0001/mailbox.json").read_bytes() == b"{}"


def test_what_the_job_writes_is_pulled_and_what_it_is_told_arrives(
    store: SshStore, machine: SshMachine
) -> None:
    machine.start()
    store.put(f"{JOB}/a0001/control.json", b"1")
    store.reach("127.0.0.1", machine.port)
    control = machine.store / f"{JOB}/a0001/control.json"
    wait_until(control.exists)
    wait_until(lambda: store._all_sent)
    store.put(f"{JOB}/a0001/control.json", b"2")
    assert control.read_bytes() == b"2"
    batches = machine.store / f"{JOB}/a0001/in"
    batches.mkdir()
    (batches / "00000001").write_bytes(b"x" * 100_000)
    (batches / ".00000002.part").write_bytes(b"half")
    name = f"{JOB}/a0001/in/00000001"
    assert store.sizes(f"{JOB}/a0001/in") == {name: 100_000}
    assert store.get(name) == b"x" * 100_000
    # A machine may send more than it announced.
    assert store.get(name, most=1000) is None
    assert store.get(f"{JOB}/a0001/in/00000009") is None
    store.delete([name])
    assert store.sizes(f"{JOB}/a0001/in") == {}


def test_a_machine_that_goes_away_is_told_apart_and_comes_back(store: SshStore, machine: SshMachine) -> None:
    machine.start()
    store.reach("127.0.0.1", machine.port)
    wait_until(lambda: store.sizes(JOB) == {} and store.problem is None)
    machine.stop()
    with pytest.raises(MachineUnreachable, match="does not accept SSH connections"):
        store.sizes(f"{JOB}/a0001/in")
    machine.start()

    def answers() -> bool:
        try:
            return store.sizes(f"{JOB}/a0001/in") == {}
        except StorageError:
            return False

    wait_until(answers)


def test_another_host_key_and_another_key_are_refused(tmp_path: Path, machine: SshMachine) -> None:
    machine.start()
    ours, theirs = keys_of(b"ours"), keys_of(b"theirs")
    machine_in_the_middle = SshKeys(ours.access, ours.identity, theirs.host_public_key)
    stranger = SshKeys(ours.access, theirs.identity, ours.host_public_key)
    for keys, said in ((machine_in_the_middle, "another host key"), (stranger, "does not accept the key")):
        store = SshStore(staged(tmp_path / said), JOB, keys, retry_seconds=0.1)
        store.put(f"{JOB}/bundle/secret", b"secret")
        store.reach("127.0.0.1", machine.port)
        wait_until(lambda store=store, said=said: said in (store.problem or ""))
        store.close()
    assert not (machine.store / JOB).exists()


def test_the_key_may_run_one_program_and_reaches_one_folder(store: SshStore, machine: SshMachine) -> None:
    machine.start()
    store.reach("127.0.0.1", machine.port)
    wait_until(lambda: store.sizes(JOB) == {} and store.problem is None)
    (machine.folder / "outside").write_text("secret")
    for asked in (
        "cat outside",
        "get ../outside",
        "get /etc/passwd",
        "list ..",
        "put ../x 1",
        "get .hidden",
        "sh",
    ):
        *program, there = store._command("127.0.0.1", machine.port)
        done = subprocess.run([*program, there, asked], capture_output=True, check=False, input=b"y")
        assert (done.returncode, done.stdout) == (2, b""), asked
    # A transfer that breaks leaves nothing.
    done = subprocess.run([*program, there, f"put {JOB}/bundle/x 10"], input=b"half", check=False)
    assert done.returncode == 1
    assert store.sizes(JOB) == {}


def test_the_keys_are_the_same_after_a_restart_and_different_for_each_attempt() -> None:
    assert keys_of(b"a").host_public_key == keys_of(b"a").host_public_key
    lines = {keys_of(b"a", f"{KEY}{number}").access.authorized_key for number in range(3)}
    assert len(lines) == 3
    assert "PRIVATE" not in repr(keys_of(b"a"))
