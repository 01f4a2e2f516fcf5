"""Migrations: up from nothing, down again, and once however many servers start."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, MetaData, create_engine, inspect, make_url, select, update
from sqlalchemy.pool import NullPool

from gpubloom.errors import InputError
from gpubloom.server import app as _every_table  # noqa: F401 - importing it declares all tables
from gpubloom.server.audit.chain import Head, sign, verify
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.db.migrate import (
    DatabaseNewer,
    current_revision,
    downgrade,
    newest_revision,
    upgrade,
)
from gpubloom.server.jobs.tables import Checkpoint, JobEvent, Machine, MetricPoint, MetricSeries, TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.server.security.secrets import Vault
from tests.errors import raises
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


@pytest.mark.long
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


def test_projects_of_scripts_lose_what_was_invented_and_the_others_keep_theirs(
    empty_database: str, tmp_path: Path
) -> None:
    upgrade(empty_database)
    installation = Installation(tmp_path, empty_database)
    ada = installation.add_user("Ada")
    training = add_training(installation, ada)
    installation.add(Project(user_id=ada.id, name="Scripts", description="Script jobs."))
    downgrade(empty_database, "0019")
    upgrade(empty_database)
    by_name = {row.name: row for row in installation.all(Project)}
    scripts = by_name.pop("Scripts")
    assert (scripts.model_architecture, scripts.model_size) == (None, None)
    assert [(row.model_architecture, row.model_size) for row in by_name.values()] == [("transformer", 0.001)]
    assert installation.get(TrainingJob, training.id) is not None, "its project was rebuilt around it"


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


# The revision of the version be9b74d, and the columns that were renamed since.
_OLD = "0007"
_RENAMED = {
    ("training_jobs", "place"): "offer",
    ("training_jobs", "fruitless_attempts"): "attempts_without_progress",
}
# Two jobs: the second is a task about the first, and lies on the same machine.
_ROWS = {"training_jobs": 2}
_GIVEN: dict[tuple[str, str], tuple[Any, ...]] = {
    ("training_jobs", "kind"): ("train", "evaluate"),
    ("training_jobs", "status"): ("running", "queued"),
    ("training_jobs", "machine"): ("box", "box"),
    ("training_jobs", "place"): ({"provider": "modal", "gpu": "H100"}, None),
    ("training_jobs", "fruitless_attempts"): (2, 0),
}
_MADE_BY_MIGRATIONS = {"alembic_version", "installation"}
# Its rows are only for browsers that look right now.
_EMPTIED = "job_events"
# What came since, one line each, and the columns that a migration fills.
_NEW_TABLES = {
    "alert_channels",
    "alert_deliveries",
    "audit_head",
    "machines",
    "idempotency_keys",
    "job_storage",
    "known_devices",
    "passkey_challenges",
    "passkeys",
    "pending_sign_ins",
    "profile_pictures",
    "provider_credits",
    "run_buckets",
    "queue_turns",
    "recovery_codes",
    "run_views",
    "secrets",
    "stored_artifacts",
    "totp_secrets",
}
_FILLED = {
    "sessions": {"authenticated_at"},
    "training_jobs": {"active_seconds", "run_metrics", "tags", "notes"},
}
_MOMENT = datetime(2026, 3, 4, 5, 6, 7, 891_000, tzinfo=UTC)

Rows = dict[str, list[dict[str, Any]]]


def _id(name: str, number: int) -> UUID:
    return uuid5(NAMESPACE_URL, f"{name}/{number}")


def _value(column: sa.Column[Any], number: int, is_sqlite: bool) -> Any:
    """Something for every column, that of optional ones too; references lead to rows that are there."""
    key = (column.table.name, column.name)
    if key in _GIVEN:
        return _GIVEN[key][number - 1]
    for reference in column.foreign_keys:
        if reference.column.table is column.table:
            return _value(reference.column, number - 1, is_sqlite) if number > 1 else None
        return _value(reference.column, 1, is_sqlite)
    match column.type:
        case sa.JSON():
            return {"of": ".".join(key), "numbers": [1, 2.5, None], "text": "ü"}
        case sa.Uuid():
            return _id(".".join(key), number)
        case sa.CHAR(length=32) if is_sqlite:
            return _id(".".join(key), number).hex
        case sa.String():
            return f"{number}{column.name}"[: column.type.length]
        case sa.Boolean():
            return True
        case sa.Integer():
            return number
        case sa.Float():
            return 0.25
        case sa.DateTime():
            return _MOMENT.replace(tzinfo=None) if is_sqlite else _MOMENT
    raise AssertionError(f"a value for {column.type!r} of {key}")


def _fill(address: str) -> None:
    """Rows in every table, with a value in every column."""
    engine = _engine(address)
    tables = MetaData()
    tables.reflect(engine)
    is_sqlite = engine.dialect.name == "sqlite"
    with engine.begin() as connection:
        for table in tables.sorted_tables:
            if table.name not in _MADE_BY_MIGRATIONS:
                for number in range(1, 1 + _ROWS.get(table.name, 1)):
                    row = {column.name: _value(column, number, is_sqlite) for column in table.columns}
                    connection.execute(table.insert().values(row))
        connection.execute(update(tables.tables["installation"]).values(lies_at="/srv/bloom"))


def _stored(address: str) -> Rows:
    engine = _engine(address)
    tables = MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        return {
            table.name: [
                dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in tables.sorted_tables
            if table.name not in {"alembic_version", _EMPTIED}
        }


# The audit log of old databases becomes the beginning of the chain.
_CHAINED = {"sequence", "previous_hash", "hash"}


def test_a_database_of_be9b74d_keeps_every_value_on_the_way_up_and_down(
    empty_database: str, tmp_path: Path
) -> None:
    upgrade(empty_database, _OLD)
    _fill(empty_database)
    before = _stored(empty_database)
    assert all(before.values()), "every table has a row"

    upgrade(empty_database)
    after = _stored(empty_database)
    assert set(after) - set(before) == _NEW_TABLES
    for name, rows in before.items():
        expected = [
            {_RENAMED.get((name, column), column): value for column, value in row.items()} for row in rows
        ]
        kept = [{column: row[column] for column in expected[0]} for row in after[name]]
        assert kept == expected, name
        added = {column for row in after[name] for column in row.keys() - expected[0].keys() - _CHAINED}
        empty = added - _FILLED.get(name, set())
        assert all(row[column] is None for row in after[name] for column in empty), name
    assert [row["authenticated_at"] for row in after["sessions"]] == [
        row["created_at"] for row in after["sessions"]
    ]

    # What is stored means the same to the program of today.
    installation = Installation(tmp_path, empty_database)
    training, task = (installation.get(TrainingJob, _id("training_jobs.id", number)) for number in (1, 2))
    assert training is not None
    assert task is not None
    assert (training.offer, training.attempts_without_progress) == ({"provider": "modal", "gpu": "H100"}, 2)
    assert (task.offer, task.attempts_without_progress, task.parent_id) == (None, 0, training.id)
    assert training.created_at == _MOMENT
    assert [machine.name for machine in installation.all(Machine)] == ["box"]
    for mapper in Table.registry.mappers:
        name = mapper.local_table.name
        assert installation.all(mapper.class_) or name == _EMPTIED or name in _NEW_TABLES, mapper

    vault = Vault.of(tmp_path)
    with installation.session() as session:
        assert sign(session, vault) == verify(session, vault) == Head(1, after["audit_events"][0]["hash"])

    downgrade(empty_database, _OLD)
    assert _stored(empty_database) == before


@pytest.mark.long
def test_summaries_change_their_spelling_and_last_values_keep_their_names(
    empty_database: str, tmp_path: Path
) -> None:
    upgrade(empty_database)
    installation = Installation(tmp_path, empty_database)
    values = {"train/loss": {"step": 2, "value": "-Infinity"}, "eval/loss": {"step": 2, "value": 1.5}}
    new = {
        "step": 2, "total_steps": 9, "eta_seconds": 1.5, "restart_count": 1, "resumed_from_step": 1,
        "control_version": 3, "updated_at": 5.5, "damaged_lines": 4, "warnings_left_out": 6, "values": values,
        "cost": {"so_far": 0.5, "billed_seconds": 3.0}, "facts": {"totalSteps": 7},
    }  # fmt: skip
    ada = installation.add_user("Ada")
    job, other = add_job(installation, ada, summary=new), add_job(installation, ada)
    installation.add(JobEvent(job_id=job.id, position=1, checkpoints=True))
    for number, name in enumerate(("train/loss", "eval/loss"), start=1):
        installation.add(MetricSeries(id=number, job_id=job.id, name=name, rank=0, axis="step"))
        for x in (1, 2):
            installation.add(MetricPoint(series_id=number, x=x, attempt=1, seq=x, time=0.5, value=None))

    downgrade(empty_database, "0011")
    [old] = [row["summary"] for row in _stored(empty_database)["training_jobs"] if row["summary"]]
    assert (old["totalSteps"], old["etaSeconds"], old["warningsLeftOut"]) == (9, 1.5, 6)
    assert not old.keys() & {"total_steps", "eta_seconds", "restart_count", "updated_at", "damaged_lines"}
    assert (old["cost"], old["facts"]) == (new["cost"], new["facts"])

    upgrade(empty_database)
    kept, untouched = installation.get(TrainingJob, job.id), installation.get(TrainingJob, other.id)
    assert kept is not None
    assert untouched is not None
    assert (kept.summary, untouched.summary) == (new, {})
    assert installation.all(JobEvent) == []
    named = {(point.series_id, point.x): point.non_finite for point in installation.all(MetricPoint)}
    assert named == {(1, 1): None, (1, 2): "-Infinity", (2, 1): None, (2, 2): None}


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


def test_the_first_connections_of_a_server_find_the_write_ahead_log(migrated_sqlite: Path) -> None:
    """Several that switch to it at once turn each other away."""
    with closing(sqlite3.connect(migrated_sqlite)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("statement", [20, 150])
def test_a_killed_migration_leaves_the_database_as_it_was(empty_database: str, statement: int) -> None:
    program = """
import os, sys
from sqlalchemy import Engine, event
from gpubloom.server.db.migrate import upgrade

left = int(sys.argv[2])

@event.listens_for(Engine, "before_cursor_execute")
def count(*_: object) -> None:
    global left
    left -= 1
    if left == 0:
        os._exit(9)

upgrade(sys.argv[1])
"""
    command = [sys.executable, "-c", program, empty_database, str(statement)]
    assert subprocess.run(command, check=False, timeout=120).returncode == 9
    assert current_revision(empty_database) is None
    assert upgrade(empty_database) is True


def test_a_database_of_a_later_version_is_refused_in_a_sentence(empty_database: str) -> None:
    upgrade(empty_database)
    with _engine(empty_database).begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with raises(DatabaseNewer, code="database_newer", match="schema revision 9999.*Install the version"):
        upgrade(empty_database)
    assert current_revision(empty_database) == "9999"


def test_a_revision_that_does_not_exist_is_refused(empty_database: str) -> None:
    with raises(InputError, code="unknown_revision", match="from 0001 to"):
        upgrade(empty_database, "twelve")
