"""Databases that were moved or copied, while machines are rented in their name and while none are."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.rentals.installation import InstallationMoved, become_another, note_move, settle
from gpubloom.server.rentals.tables import Installation as InstallationRow
from gpubloom.server.rentals.tables import Rental
from tests.errors import raises
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job
from tests.server.rentals.machines import add_rental

Result = TypeVar("Result")


def _told(installation: Installation, work: Callable[[Database], Awaitable[Result]]) -> Result:
    async def told() -> Result:
        database = Database(installation.database_url)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(told())


def _name(installation: Installation) -> UUID:
    [row] = installation.all(InstallationRow)
    return row.id


def _carry_off(installation: Installation) -> None:
    """What it remembers is not where it lies now."""
    [row] = installation.all(InstallationRow)
    installation.change(row, lies_at="/elsewhere/bloom.db on machine 0badcafe")


def _rents(installation: Installation, member: User) -> Any:
    job = add_job(installation, member, status="running", attempt=1, target="toy", offer={"provider": "toy"})
    add_rental(installation, job, state="running", billed_to=None)
    return job


def test_a_database_that_stays_keeps_its_name(installation: Installation, member: User) -> None:
    before = _name(installation)
    for _ in range(2):
        _told(installation, settle)
        _rents(installation, member)
    assert _name(installation) == before


def test_one_without_machines_takes_a_new_name_after_a_move(installation: Installation) -> None:
    _told(installation, settle)
    before = _name(installation)
    _carry_off(installation)
    _told(installation, settle)
    moved_name = _name(installation)
    _told(installation, settle)
    assert before != moved_name == _name(installation)


def test_one_that_rents_machines_starts_nothing_after_a_move_until_it_is_told_of_it(
    installation: Installation, member: User
) -> None:
    before = _name(installation)
    job = _rents(installation, member)
    _carry_off(installation)
    with raises(InstallationMoved, code="installation_moved"):
        _told(installation, settle)
    _told(installation, note_move)
    _told(installation, settle)
    assert _name(installation) == before
    assert installation.get(type(job), job.id).status == "running"


def test_a_copy_leaves_machines_and_jobs_to_the_original(installation: Installation, member: User) -> None:
    before = _name(installation)
    running = _rents(installation, member)
    waiting = add_job(installation, member, status="queued", target="toy", offer={"provider": "toy"})
    here = add_job(installation, member, status="queued")
    _carry_off(installation)
    assert _told(installation, become_another) == 2
    _told(installation, settle)
    assert _name(installation) != before
    rows = [installation.get(type(job), job.id) for job in (running, waiting, here)]
    assert [row.status for row in rows] == ["paused", "paused", "queued"]
    assert [row.error_code for row in rows] == ["copied", "copied", None]
    assert [rental.state for rental in installation.all(Rental)] == ["ended"]
    assert "installation.copied" in installation.actions()


def _bloom(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
    return subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", *arguments],
        env={**clean, "BLOOM_HOME": str(home)},
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
def test_a_server_with_a_copied_folder_asks_before_it_starts(migrated_sqlite: Path, tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    shutil.copy(migrated_sqlite, home / "bloom.db")
    original = Installation(home, f"sqlite+aiosqlite:///{home / 'bloom.db'}")
    _rents(original, original.add_user("Ada"))
    assert _bloom(home, "server", "database", "moved").returncode == 0
    shutil.copytree(home, copy)
    refused = _bloom(copy, "server", "start", "--port", "0")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert str(home) in refused.stderr
    assert "bloom server database copied" in refused.stderr
    answered = _bloom(copy, "server", "database", "copied")
    assert answered.returncode == 0
    assert "on the original server: 1." in answered.stdout
    assert _name(Installation(copy, f"sqlite+aiosqlite:///{copy / 'bloom.db'}")) != _name(original)
