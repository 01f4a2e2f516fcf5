"""Migrations: up from nothing, down again, and once however many servers start."""

import subprocess
import sys
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, make_url
from sqlalchemy.pool import NullPool

from gpubloom.server import app as _every_table  # noqa: F401 - importing it declares all tables
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.db.migrate import current_revision, downgrade, newest_revision, upgrade
from gpubloom.server.jobs.tables import Checkpoint, Machine, TrainingJob
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job, add_training


def _engine(address: str) -> Engine:
    url = make_url(address)
    driver = "sqlite" if url.get_backend_name() == "sqlite" else "postgresql+psycopg"
    return create_engine(url.set(drivername=driver), poolclass=NullPool)


def test_up_from_nothing_down_again_and_up(empty_database: str) -> None:
    assert current_revision(empty_database) is None
    assert upgrade(empty_database) is True
    assert current_revision(empty_database) == newest_revision()
    assert upgrade(empty_database) is False
    assert downgrade(empty_database, "base") is True
    assert set(inspect(_engine(empty_database)).get_table_names()) <= {"alembic_version"}
    assert upgrade(empty_database) is True


def test_every_revision_can_be_taken_back_alone(empty_database: str) -> None:
    upgrade(empty_database)
    while current_revision(empty_database) is not None:
        before = current_revision(empty_database)
        downgrade(empty_database, "-1")
        assert current_revision(empty_database) != before
    assert upgrade(empty_database) is True


def test_the_migrated_schema_is_what_the_code_expects(empty_database: str) -> None:
    upgrade(empty_database)
    with _engine(empty_database).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []


def test_trainings_keep_what_belongs_to_them_when_kinds_come_and_go(
    empty_database: str, tmp_path: Path
) -> None:
    upgrade(empty_database)
    installation = Installation(tmp_path, empty_database)
    ada = installation.add_user("Ada")
    training = add_training(installation, ada)
    task = add_job(installation, ada, kind="export", parent_id=training.id, project_id=training.project_id)
    # Older versions would take a task for a training: it goes, the training stays.
    downgrade(empty_database, "0003")
    upgrade(empty_database)
    assert installation.get(TrainingJob, task.id) is None
    kept = installation.get(TrainingJob, training.id)
    assert kept is not None
    assert (kept.kind, kept.config) == ("train", training.config)
    assert [row.job_id for row in installation.all(Checkpoint)] == [training.id]


def test_machines_are_known_by_their_jobs_when_their_table_comes_and_goes(
    empty_database: str, tmp_path: Path
) -> None:
    upgrade(empty_database)
    installation = Installation(tmp_path, empty_database)
    job = add_job(installation, installation.add_user("Ada"), machine="box", status="running", attempt=1)
    downgrade(empty_database, "0007")
    before = now()
    upgrade(empty_database)
    kept = installation.get(TrainingJob, job.id)
    assert kept is not None
    assert (kept.status, kept.machine, kept.config) == ("running", "box", job.config)
    [machine] = installation.all(Machine)
    assert (machine.name, machine.gone_at) == ("box", None)
    assert machine.last_seen_at >= before.replace(microsecond=0)


def test_servers_that_start_at_once_migrate_once_and_all_succeed(empty_database: str) -> None:
    program = "import sys; from gpubloom.server.db.migrate import upgrade; print(upgrade(sys.argv[1]))"
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_database],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    outcomes = [process.communicate(timeout=120) for process in starting]
    assert [process.returncode for process in starting] == [0, 0, 0], outcomes
    assert sorted(out.strip() for out, _ in outcomes) == ["False", "False", "True"]
    assert current_revision(empty_database) == newest_revision()
