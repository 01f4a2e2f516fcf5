"""Rules of the repository that no linter knows: names, and what must not be in the tree."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VAGUE = re.compile(r"(^|[_-])(utils?|helpers?|managers?|common|misc)([_.-]|$)", re.IGNORECASE)


def _tracked() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("this is no git checkout, so there is no list of files")
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    vague = [name for name in _tracked() if any(VAGUE.search(part) for part in Path(name).parts)]
    # A checkpoint manager is the field's own term.
    assert [name for name in vague if not name.endswith("checkpoint/manager.py")] == []


def test_lock_files_record_no_download_addresses() -> None:
    lock = json.loads((ROOT / "ui/package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    assert "://" not in (ROOT / "constraints.txt").read_text()


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        name
        for name in _tracked()
        if name.startswith("src/") and name.endswith("__init__.py")
        if not (ROOT / name).read_text().lstrip().startswith('"""')
        # Alembic's folder of revisions is a list, not a package with a purpose of its own.
        if "migrations/versions" not in name
    ]
    assert silent == []
