"""The hash chain of the audit log.

Each entry has a number without gaps, and the SHA-256 of its content, its number and the hash before it. So
whoever changes, removes or inserts an entry must rewrite all entries after it. The end of the chain is stored
in `audit_head` with an HMAC under the server's key (BLOOM_HOME/secret.key): whoever can write to the database
alone can neither cut the end off nor rewrite the whole chain without being found.

Entries join the chain when their transaction commits, one transaction at a time: SQLite has one writer
anyway, PostgreSQL takes an advisory lock. The lock is the last one that a transaction takes, so it cannot
cause a deadlock.

An old database backup has a valid chain of its own. `verify` therefore also takes a head that was noted
earlier, outside of the database.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import delete, func, insert, inspect, or_, select, text, update
from sqlalchemy.orm import Session

from gpubloom.errors import InputError
from gpubloom.server.audit.tables import AuditEvent, AuditHead
from gpubloom.server.security.secrets import Vault

BEGINNING = "0" * 64
# Any number, as long as every version of this program uses the same one.
_ADVISORY_LOCK = 4_170_301_117
_HEAD_ID = 1
_CONTEXT = "audit head"
_ROWS = 1_000

Tampering = Literal["changed", "removed", "inserted", "unsigned"]


@dataclass(frozen=True)
class Head:
    """The end of the chain; `0:000…` is that of an empty log."""

    sequence: int = 0
    hash: str = BEGINNING

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"

    @classmethod
    def read(cls, words: str) -> "Head":
        """The head in the form in which it is printed."""
        number, _, digest = words.partition(":")
        if len(digest) != 64 or not number.isdecimal():
            raise InputError("invalid_head", f"{words!r} is not a head: it has the form NUMBER:HASH.")
        return cls(int(number), digest)


@dataclass(frozen=True)
class Finding:
    """The first entry that is not as it was written."""

    kind: Tampering
    sequence: int | None
    sentence: str


def content_hash(event: Any, sequence: int, previous: str) -> str:
    """SHA-256 of the canonical JSON of an entry. Changing this function invalidates every stored chain."""
    content = {
        "action": event.action,
        "actor_id": None if event.actor_id is None else str(event.actor_id),
        "at": event.at.isoformat(timespec="microseconds"),
        "details": event.details,
        "id": str(event.id),
        "ip_address": event.ip_address,
        "previous": previous,
        "project_id": None if event.project_id is None else str(event.project_id),
        "sequence": sequence,
        "subject": event.subject,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def extend(session: Session, events: Sequence[AuditEvent], vault: Vault | None) -> None:
    """Append entries to the chain; called inside of their transaction, at its end."""
    session.flush()
    events = [event for event in events if inspect(event).persistent]
    if not events:
        # A savepoint was rolled back, and the entries with it.
        return
    head, trusted = _locked_head(session, vault)
    for event in events:
        event.sequence, event.previous_hash = head.sequence + 1, head.hash
        event.hash = content_hash(event, event.sequence, head.hash)
        head = Head(event.sequence, event.hash)
    # A head that somebody changed is extended but not signed: that would hide the change.
    _store(session, head, vault.sign(str(head), _CONTEXT) if vault is not None and trusted else None)


def sign(session: Session, vault: Vault) -> Head:
    """Sign the end of the chain as it is now, whatever stands in the head."""
    _lock(session)
    head = last_entry(session)
    _store(session, head, vault.sign(str(head), _CONTEXT))
    return head


def sign_again(session: Session, vault: Vault) -> None:
    """Sign a valid head with the newest key, after the key was rotated."""
    head, trusted = _locked_head(session, vault)
    if trusted and head.sequence:
        _store(session, head, vault.sign(str(head), _CONTEXT))


def verify(session: Session, vault: Vault, noted: Head | None = None) -> Head | Finding:
    """The end of a valid chain, or the first entry at which it is not valid."""
    loose = session.execute(
        select(AuditEvent.id)
        .where(or_(AuditEvent.sequence.is_(None), AuditEvent.hash.is_(None)))
        .order_by(AuditEvent.at)
        .limit(1)
    ).scalar()
    if loose is not None:
        return Finding("inserted", None, f"Entry {loose} has no place in the chain: it was inserted.")
    last = Head()
    for event in read_in_order(session):
        if (finding := _check(event, last)) is not None:
            return finding
        last = Head(event.sequence, event.hash)
        if noted is not None and last.sequence == noted.sequence and last.hash != noted.hash:
            return Finding("changed", last.sequence, f"Entry {last.sequence} differs from the noted head.")
    return _check_end(session, vault, last, noted) or last


def read_in_order(session: Session, *conditions: Any) -> Iterator[Any]:
    """Every entry in the order of the chain, a page at a time."""
    after = 0
    while True:
        rows = session.execute(
            select(*AuditEvent.__table__.columns)
            .where(AuditEvent.sequence > after, *conditions)
            .order_by(AuditEvent.sequence)
            .limit(_ROWS)
        ).all()
        yield from rows
        if len(rows) < _ROWS:
            return
        after = rows[-1].sequence


def _check(event: Any, last: Head) -> Finding | None:
    expected = last.sequence + 1
    if event.sequence > expected:
        return Finding("removed", expected, f"Entry {expected} was removed.")
    if event.previous_hash != last.hash:
        return Finding(
            "inserted",
            event.sequence,
            f"Entry {event.sequence} does not follow the entry before it: one of them was inserted or "
            "replaced.",
        )
    if content_hash(event, event.sequence, last.hash) != event.hash:
        return Finding("changed", event.sequence, f"Entry {event.sequence} was changed.")
    return None


def _check_end(session: Session, vault: Vault, last: Head, noted: Head | None) -> Finding | None:
    if noted is not None and noted.sequence > last.sequence:
        return _cut(last.sequence + 1)
    row = session.execute(select(AuditHead.sequence, AuditHead.hash, AuditHead.signature)).one_or_none()
    if row is None:
        if last.sequence == 0:
            return None
        return Finding("unsigned", last.sequence, "The head of the audit log was removed.")
    head = Head(row.sequence, row.hash)
    if not vault.has_signed(str(head), row.signature or "", _CONTEXT):
        return Finding(
            "unsigned",
            head.sequence,
            "The head of the audit log is not signed by this server: entries at the end were removed, or the "
            "log was rewritten.",
        )
    if head.sequence > last.sequence:
        return _cut(last.sequence + 1)
    if head != last:
        return Finding("inserted", head.sequence + 1, f"Entry {head.sequence + 1} was inserted.")
    return None


def _cut(sequence: int) -> Finding:
    return Finding("removed", sequence, f"Entry {sequence} and all entries after it were removed.")


def _lock(session: Session) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})


def _locked_head(session: Session, vault: Vault | None) -> tuple[Head, bool]:
    """The head, and whether it may be signed again: it is signed, or it is that of an empty log."""
    _lock(session)
    row = session.execute(select(AuditHead.sequence, AuditHead.hash, AuditHead.signature)).one_or_none()
    if row is None:
        last = last_entry(session)
        return last, last.sequence == 0
    head = Head(row.sequence, row.hash)
    signed = vault is not None and vault.has_signed(str(head), row.signature or "", _CONTEXT)
    # A number is given once, also where the head was set back.
    last = last_entry(session)
    return (last, False) if last.sequence > head.sequence else (head, signed)


def last_entry(session: Session) -> Head:
    """The end of the chain by its entries, whatever stands in the head."""
    row = session.execute(
        select(AuditEvent.sequence, AuditEvent.hash).where(
            AuditEvent.sequence == select(func.max(AuditEvent.sequence)).scalar_subquery()
        )
    ).one_or_none()
    return Head() if row is None else Head(row.sequence or 0, row.hash or BEGINNING)


def _store(session: Session, head: Head, signature: str | None) -> None:
    values = {"sequence": head.sequence, "hash": head.hash, "signature": signature}
    changed = session.execute(update(AuditHead).values(**values).returning(AuditHead.id)).all()
    if len(changed) > 1:
        session.execute(delete(AuditHead).where(AuditHead.id != _HEAD_ID))
    if not changed:
        session.execute(insert(AuditHead).values(id=_HEAD_ID, **values))
