"""Rotating the encryption key: nothing is lost, wherever the process ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import String
from typer.testing import CliRunner, Result

from gpubloom.cli.app import app as bloom
from gpubloom.server import app as _every_table  # noqa: F401 - importing it declares all tables
from gpubloom.server import key_rotation
from gpubloom.server.accounts.hub_tokens import HubToken
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.db.database import Database
from gpubloom.server.key_rotation import SEALED_COLUMNS
from gpubloom.server.rentals.credentials import seal
from gpubloom.server.rentals.tables import ProviderCredential, Rental
from gpubloom.server.secrets.tables import Secret
from gpubloom.server.security.secrets import CannotOpen, Vault
from gpubloom.server.settings import Settings
from tests.server.installation import Installation

STEPS = ["new_key", "old_kept", "replaced", "encrypted", "committed", "settled"]

# Ends itself as a power failure would, after the step that its arguments name.
DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from gpubloom.server import key_rotation
from gpubloom.server.db.database import Database

def die(step):
    if step == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

home = Path(sys.argv[1])
key_rotation.SETTLE_SECONDS = 0
asyncio.run(key_rotation.rotate_key(Database(sys.argv[2], home), home, after=die))
"""


@pytest.fixture
def operate(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(key_rotation, "SETTLE_SECONDS", 0)
    monkeypatch.setenv("BLOOM_HOME", str(installation.home))
    monkeypatch.setenv("BLOOM_DATABASE_URL", installation.database_url)
    return lambda *words: CliRunner().invoke(bloom, ["server", *words])


@pytest.fixture
def stored(installation: Installation) -> Installation:
    """Three people's tokens and credentials, stored over time with the first key."""
    settings = Settings(_env_file=None, home=installation.home, database_url=installation.database_url)
    for name in ("Ada", "Eve", "Joan"):
        user = installation.add_user(name)
        token = Vault.of(installation.home).seal(f"hf_{name}", f"hub_token:{user.id}")
        installation.add(HubToken(user_id=user.id, sealed=token, created_at=now()))
        sealed = seal(settings, user.id, "lambda", {"api_key": name})
        installation.add(ProviderCredential(user_id=user.id, provider="lambda", sealed=sealed))
        named = Vault.of(installation.home).seal(f"wandb_{name}", f"secret:{user.id}::WANDB_API_KEY")
        installation.add(Secret(id=uuid4(), user_id=user.id, name="WANDB_API_KEY", sealed=named))
    return installation


def _texts(installation: Installation, vault: Vault) -> list[str]:
    """Every secret, as the server reads it."""
    return sorted(
        vault.open(getattr(row, column.name), column.context(row))
        for column in SEALED_COLUMNS
        for row in installation.all(column.table)
    )


def test_every_value_opens_with_the_new_key_only(
    stored: Installation, operate: Callable[..., Result]
) -> None:
    old = Vault.of(stored.home)
    before = _texts(stored, old)
    assert len(before) == 9
    result = operate("rotate-key")
    assert result.exit_code == 0, result.stderr
    assert "encrypted again: 9" in result.output
    assert _texts(stored, Vault.of(stored.home)) == before
    with pytest.raises(CannotOpen):
        _texts(stored, old)
    assert not (stored.home / "secret.key.old").exists()
    assert (stored.home / "secret.key").stat().st_mode & 0o777 == 0o600
    assert "server.key_rotated" in stored.actions()
    assert operate("audit", "verify").exit_code == 0


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_rotation_that_is_killed_loses_nothing_and_can_be_repeated(
    stored: Installation, operate: Callable[..., Result], step: str
) -> None:
    old = Vault.of(stored.home)
    before = _texts(stored, old)
    child = [sys.executable, "-c", DYING, str(stored.home), stored.database_url, step]
    assert subprocess.run(child, check=False).returncode == -signal.SIGKILL
    assert _texts(stored, Vault.of(stored.home)) == before, "a server goes on with what is there"
    result = operate("rotate-key")
    assert result.exit_code == 0, result.stderr
    assert _texts(stored, Vault.of(stored.home)) == before
    with pytest.raises(CannotOpen):
        _texts(stored, old)
    assert not (stored.home / "secret.key.old").exists()
    assert operate("audit", "verify").exit_code == 0


def test_a_value_that_was_sealed_with_the_old_key_and_stored_late_is_found(
    stored: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_rotation, "SETTLE_SECONDS", 0)
    late = stored.add_user("Late")
    sealed = Vault.of(stored.home).seal("hf_Late", f"hub_token:{late.id}")

    def after(step: str) -> None:
        if step == "committed":
            stored.add(HubToken(user_id=late.id, sealed=sealed, created_at=now()))

    async def rotate() -> None:
        database = Database(stored.database_url, stored.home)
        await key_rotation.rotate_key(database, stored.home, after)
        await database.close()

    asyncio.run(rotate())
    assert "hf_Late" in _texts(stored, Vault.of(stored.home))


def test_a_value_that_no_key_opens_is_left_alone(
    stored: Installation, operate: Callable[..., Result], tmp_path: Path
) -> None:
    member = stored.add_user("Grace")
    foreign = Vault.of(tmp_path / "other").seal("x", f"hub_token:{member.id}")
    stored.add(HubToken(user_id=member.id, sealed=foreign, created_at=now()))
    assert "left as they are: 1" in operate("rotate-key").output
    assert foreign in {row.sealed for row in stored.all(HubToken)}


def _rent(installation: Installation, store: str, name: str) -> Rental:
    return installation.add(
        Rental(
            id=uuid4(),
            user_id=installation.all(User)[0].id,
            job_name=name,
            attempt=1,
            provider="lambda",
            key=f"bloom-x-{name}-a1",
            state="running",
            store=store,
            gpu="A10",
            gpus=1,
            kind="on_demand",
            hourly=1.29,
        )
    )


def test_the_key_stays_while_machines_are_connected_with_it(
    stored: Installation, operate: Callable[..., Result]
) -> None:
    key = (stored.home / "secret.key").read_bytes()
    machines = [_rent(stored, store, f"over-{store}") for store in ("bucket", "ssh", "server")]
    result = operate("rotate-key")
    assert "error[key_in_use]" in result.stderr
    assert "over-ssh, over-server" in result.stderr
    assert "over-bucket" not in result.stderr
    assert (stored.home / "secret.key").read_bytes() == key
    assert not (stored.home / "secret.key.old").exists()
    assert result.exit_code != 0
    for machine in machines:
        stored.change(machine, state="ended")
    assert operate("rotate-key").exit_code == 0


def test_a_damaged_key_is_refused_with_a_sentence(
    stored: Installation, operate: Callable[..., Result]
) -> None:
    key = stored.home / "secret.key"
    key.write_bytes(b"short")
    result = operate("rotate-key")
    assert result.exit_code == 2
    assert "error[invalid_key]" in result.stderr
    assert key.read_bytes() == b"short"


def test_every_sealed_column_takes_part() -> None:
    known = {(column.table.__tablename__, column.name) for column in SEALED_COLUMNS}
    found = {
        (table.name, column.name)
        for table in Table.metadata.tables.values()
        for column in table.columns
        if "sealed" in column.name and isinstance(column.type, String)
    }
    assert found == known


def test_the_new_key_is_private_whatever_the_umask(
    stored: Installation, operate: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "umask", lambda mask: 0)
    assert operate("rotate-key").exit_code == 0
    assert (stored.home / "secret.key").stat().st_mode & 0o777 == 0o600
