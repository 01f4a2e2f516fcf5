"""`bloom server`: a database that cannot be used is said in a sentence by every command that needs it."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner, Result

from gpubloom.cli.app import app
from gpubloom.server.db.migrate import newest_revision
from tests.errors import printed


def bloom(*arguments: str, home: Path, database: str) -> Result:
    environment = {"BLOOM_HOME": str(home), "BLOOM_DATABASE_URL": database}
    return CliRunner().invoke(app, ["server", *arguments], env=environment)


@pytest.mark.parametrize(
    "command",
    [
        ("database", "status"),
        ("database", "upgrade"),
        ("database", "downgrade", "base", "--yes"),
        ("database", "moved"),
        ("machines", "list"),
        ("audit", "verify"),
        ("reset-factors", "ada@example.com", "--yes"),
        ("rotate-key",),
        ("worker",),
    ],
    ids=" ".join,
)
def test_a_file_that_is_no_database_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("buy milk" * 100)
    done = bloom(*command, home=tmp_path / "home", database=f"sqlite:///{tmp_path / 'notes.db'}")
    assert done.exit_code == 69, done.output
    assert printed(done.output) == ["database_unavailable"]
    assert "file is not a database" in done.output


def test_a_database_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'bloom.db'}"
    assert bloom("database", "upgrade", home=tmp_path, database=address).exit_code == 0
    with sa.create_engine(address).begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for command in (("database", "upgrade"), ("worker",), ("machines", "list")):
        done = bloom(*command, home=tmp_path, database=address)
        assert done.exit_code == 2, done.output
        assert printed(done.output) == ["database_newer"]
        assert newest_revision() in done.output
