"""The hash chain of the audit log: whoever changes, removes or inserts an entry is found."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import select, text
from typer.testing import CliRunner, Result

from gpubloom.cli.app import app as bloom
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import SYSTEM, Actor, AuditEvent, AuditHead, record
from gpubloom.server.audit.chain import BEGINNING, content_hash
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from tests.server.installation import Installation

ENTRIES = 8


@pytest.fixture
def operate(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`bloom server audit …` on the installation."""
    monkeypatch.setenv("BLOOM_HOME", str(installation.home))
    monkeypatch.setenv("BLOOM_DATABASE_URL", installation.database_url)
    return lambda *words: CliRunner().invoke(bloom, ["server", "audit", *words])


async def _write(
    installation: Installation, count: int, *, at_once: int = 1, home: Path | None = None
) -> None:
    database = Database(installation.database_url, home or installation.home)

    async def one(number: int) -> None:
        async with database.write() as session:
            record(session, SYSTEM, "test.done", f"test:{number}", number=number)
            # Flushed early, as a service that needs an id does it.
            await session.flush()
            record(session, Actor(uuid4(), "::1"), "test.done_again", "test", uuid4())

    for first in range(0, count, at_once):
        await asyncio.gather(*(one(number) for number in range(first, min(count, first + at_once))))
    await database.close()


@pytest.fixture
def written(installation: Installation) -> Installation:
    asyncio.run(_write(installation, ENTRIES // 2))
    return installation


def _statement(installation: Installation, statement: str, **values: object) -> None:
    with installation.session() as session:
        session.execute(text(statement), values)


def test_an_untouched_log_is_valid_and_prints_its_head(
    written: Installation, operate: Callable[..., Result]
) -> None:
    result = operate("verify")
    assert result.exit_code == 0, result.stderr
    last = max(written.all(AuditEvent), key=lambda event: event.sequence or 0)
    assert f"head: {ENTRIES}:{last.hash}" in result.output


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE audit_events SET subject = 'test:other' WHERE sequence = 3", "Entry 3 was changed"),
        ("UPDATE audit_events SET actor_id = NULL WHERE sequence = 4", "Entry 4 was changed"),
        ("DELETE FROM audit_events WHERE sequence = 5", "Entry 5 was removed"),
        ("DELETE FROM audit_events WHERE sequence >= 6", "Entry 6 and all entries after it were removed"),
        ("DELETE FROM audit_events", "Entry 1 and all entries after it were removed"),
        ("UPDATE audit_head SET sequence = 2", "not signed by this server"),
        ("DELETE FROM audit_head", "head of the audit log was removed"),
    ],
)
def test_a_changed_or_removed_entry_is_found(
    written: Installation, operate: Callable[..., Result], statement: str, sentence: str
) -> None:
    _statement(written, statement)
    result = operate("verify")
    assert result.exit_code == 1
    assert "error[audit_tampered]" in result.stderr
    assert sentence in result.stderr


def _forged(sequence: int | None, previous: str | None) -> AuditEvent:
    event = AuditEvent(id=uuid4(), at=now(), action="test.forged", subject="test", details={})
    event.sequence, event.previous_hash = sequence, previous
    if sequence is not None and previous is not None:
        event.hash = content_hash(event, sequence, previous)
    return event


def test_an_inserted_entry_is_found_at_the_end_and_outside_of_the_chain(
    written: Installation, operate: Callable[..., Result]
) -> None:
    last = max(written.all(AuditEvent), key=lambda event: event.sequence or 0)
    forged = written.add(_forged(ENTRIES + 1, last.hash))
    assert f"Entry {ENTRIES + 1} was inserted" in operate("verify").stderr
    written.change(forged, sequence=None)
    assert f"Entry {forged.id} has no place in the chain" in operate("verify").stderr


def _rewrite(installation: Installation, upto: int) -> None:
    """As somebody does it who has the database and this program, but not the key."""
    with installation.session() as session:
        previous = BEGINNING
        for event in session.scalars(select(AuditEvent).order_by(AuditEvent.sequence)):
            assert event.sequence is not None
            if event.sequence > upto:
                session.delete(event)
                continue
            event.subject, event.previous_hash = "test:rewritten", previous
            event.hash = previous = content_hash(event, event.sequence, previous)
        head = session.scalars(select(AuditHead)).one()
        head.sequence, head.hash = upto, previous


def test_a_chain_that_was_rewritten_is_found_and_never_signed_again(
    written: Installation, operate: Callable[..., Result]
) -> None:
    _rewrite(written, upto=6)
    assert "not signed by this server" in operate("verify").stderr
    # Entries that follow must not make it valid.
    asyncio.run(_write(written, 1))
    assert "not signed by this server" in operate("verify").stderr
    assert operate("accept", "--yes").exit_code == 0
    assert operate("verify").exit_code == 0
    assert written.actions()[-1] == "audit.accepted"


def test_a_head_that_was_noted_finds_a_database_that_was_set_back(
    written: Installation, operate: Callable[..., Result]
) -> None:
    with written.session() as session:
        old = session.execute(text("SELECT sequence, hash, signature FROM audit_head")).one()
    asyncio.run(_write(written, 2))
    noted = operate("verify").output.rpartition("head: ")[2].strip()
    _statement(written, "DELETE FROM audit_events WHERE sequence > :sequence", sequence=old.sequence)
    _statement(
        written,
        "UPDATE audit_head SET sequence = :sequence, hash = :hash, signature = :signature",
        **old._mapping,
    )
    assert operate("verify").exit_code == 0
    assert "were removed" in operate("verify", "--expect", noted).stderr
    assert "error[invalid_head]" in operate("verify", "--expect", "9").stderr


def test_another_key_signs_nothing(
    written: Installation, operate: Callable[..., Result], tmp_path: Path
) -> None:
    asyncio.run(_write(written, 1, home=tmp_path / "thief"))
    assert "not signed by this server" in operate("verify").stderr


def test_transactions_that_commit_at_once_form_one_chain(
    installation: Installation, operate: Callable[..., Result]
) -> None:
    asyncio.run(_write(installation, 40, at_once=8))
    numbers = sorted(event.sequence or 0 for event in installation.all(AuditEvent))
    assert numbers == list(range(1, 81))
    assert operate("verify").exit_code == 0


def test_a_transaction_or_savepoint_that_is_rolled_back_leaves_no_gap(
    installation: Installation, operate: Callable[..., Result]
) -> None:
    async def story() -> None:
        database = Database(installation.database_url, installation.home)
        with suppress(ZeroDivisionError):
            async with database.write() as session:
                record(session, SYSTEM, "test.lost", "test")
                raise ZeroDivisionError
        async with database.write() as session:
            record(session, SYSTEM, "test.first", "test")
            with suppress(ZeroDivisionError):
                async with session.begin_nested():
                    record(session, SYSTEM, "test.lost", "test")
                    raise ZeroDivisionError
            async with session.begin_nested():
                record(session, SYSTEM, "test.second", "test")
        await database.close()

    asyncio.run(story())
    assert sorted(installation.actions()) == ["test.first", "test.second"]
    assert operate("verify").exit_code == 0


def test_the_export_holds_what_the_hash_covers(
    written: Installation, operate: Callable[..., Result], admin: User, tmp_path: Path
) -> None:
    assert operate("export", "--output", str(tmp_path / "log.jsonl")).exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, ENTRIES + 1))
    assert [line["previous_hash"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]
    assert "error[file_exists]" in operate("export", "--output", str(tmp_path / "log.jsonl")).stderr
    with written.serve() as server:
        answer = server.signed_in(admin).get("/api/audit-events/export?action=test.")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        assert [json.loads(line) for line in answer.text.splitlines()] == lines
        member = server.signed_in(written.add_user("Mallory"))
        assert member.get("/api/audit-events/export").status_code == 403
    assert written.actions()[-1] == "audit.exported"


def test_a_deleted_user_does_not_change_the_log(
    installation: Installation, operate: Callable[..., Result]
) -> None:
    user = installation.add_user("Gone")

    async def act() -> None:
        database = Database(installation.database_url, installation.home)
        async with database.write() as session:
            record(session, Actor(user.id, None), "test.done", "test")
        await database.close()

    asyncio.run(act())
    _statement(installation, "DELETE FROM users")
    assert [event.actor_id for event in installation.all(AuditEvent)] == [user.id]
    assert operate("verify").exit_code == 0


def test_every_process_of_the_product_signs_what_it_writes() -> None:
    calls = [
        (path.name, call)
        for path in (Path(__file__).parents[2] / "src/gpubloom").rglob("*.py")
        for call in re.findall(r"[= ]Database\(([^)]*)\)", path.read_text())
    ]
    assert len(calls) >= 5
    assert [call for call in calls if not call[1].endswith("settings.home")] == []
