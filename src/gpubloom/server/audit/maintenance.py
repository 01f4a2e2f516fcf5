"""What operators and admins do with the audit log: verify, export, filter, and sign its end again."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import anyio.to_thread
from fastapi import Depends, Query
from pydantic import AwareDatetime, Field
from sqlalchemy import ColumnElement, func, or_, select

from gpubloom.server.audit import SYSTEM, chain
from gpubloom.server.audit.recording import record
from gpubloom.server.audit.tables import AuditEvent
from gpubloom.server.db.database import Database
from gpubloom.server.schema import Storable
from gpubloom.server.security.secrets import Vault

# The revision that brought the chain.
_CHAINED = "0017"
_PAGE = 500

# Years that every time zone and both databases know.
Moment = Annotated[
    AwareDatetime, Field(ge=datetime(1970, 1, 2, tzinfo=UTC), lt=datetime(2200, 1, 1, tzinfo=UTC))
]


@dataclass(frozen=True)
class AuditFilter:
    """Which entries are asked for; None leaves a field open."""

    actor_id: UUID | None = None
    action: str = ""
    project_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> Sequence[ColumnElement[bool]]:
        """For the WHERE of a statement over AuditEvent."""
        found: list[ColumnElement[bool]] = []
        if self.actor_id is not None:
            found.append(AuditEvent.actor_id == self.actor_id)
        if self.action:
            # "API token created", as the web app shows it, is api_token.created.
            words = func.replace(AuditEvent.action, ".", " ")
            typed = re.sub(r"[\s._]+", " ", self.action.strip())
            found.append(func.replace(words, "_", " ").istartswith(typed, autoescape=True))
        if self.project_id is not None:
            # Entries from before the chain name a project as their subject only.
            found.append(
                or_(
                    AuditEvent.project_id == self.project_id,
                    AuditEvent.subject == f"project:{self.project_id}",
                )
            )
        if self.since is not None:
            found.append(AuditEvent.at >= self.since)
        if self.until is not None:
            found.append(AuditEvent.at < self.until)
        return found


def _filter_query(
    actor_id: Annotated[UUID | None, Query(description="The user who acted.")] = None,
    action: Annotated[
        str,
        Query(max_length=120, description="The beginning of the action, such as api_token."),
        Storable,
    ] = "",
    project_id: Annotated[UUID | None, Query()] = None,
    since: Annotated[Moment | None, Query(description="Only entries at or after this time.")] = None,
    until: Annotated[Moment | None, Query(description="Only entries before this time.")] = None,
) -> AuditFilter:
    return AuditFilter(actor_id, action, project_id, since, until)


FilterQuery = Annotated[AuditFilter, Depends(_filter_query)]


async def export(database: Database, wanted: AuditFilter) -> AsyncIterator[bytes]:
    """JSON lines, oldest entry first. A short transaction for each page: a slow reader holds none open."""
    after = 0
    while True:
        async with database.read() as session:
            rows = (
                await session.execute(
                    select(*AuditEvent.__table__.columns)
                    .where(AuditEvent.sequence > after, *wanted.conditions())
                    .order_by(AuditEvent.sequence)
                    .limit(_PAGE)
                )
            ).all()
        if rows:
            yield "".join(_line(row) for row in rows).encode()
        if len(rows) < _PAGE:
            return
        after = rows[-1].sequence


def _line(row: Any) -> str:
    """Every field that the hash covers, so that an export can be verified without the database."""
    return (
        json.dumps(
            {
                "sequence": row.sequence,
                "at": row.at.isoformat(timespec="microseconds"),
                "actor_id": row.actor_id and str(row.actor_id),
                "action": row.action,
                "subject": row.subject,
                "project_id": row.project_id and str(row.project_id),
                "ip_address": row.ip_address,
                "details": row.details,
                "id": str(row.id),
                "previous_hash": row.previous_hash,
                "hash": row.hash,
            }
        )
        + "\n"
    )


async def verify(
    database: Database, home: Path, noted: chain.Head | None = None
) -> chain.Head | chain.Finding:
    """The end of the chain, or the first entry that was changed, removed or inserted."""
    vault = await anyio.to_thread.run_sync(Vault.of, home)
    async with database.read() as session:
        return await session.run_sync(chain.verify, vault, noted)


async def accept(database: Database, home: Path) -> chain.Head:
    """Sign the end of the log as it is, and record that somebody did."""
    vault = await anyio.to_thread.run_sync(Vault.of, home)
    async with database.write() as session:
        await session.run_sync(chain.sign, vault)
        record(session, SYSTEM, "audit.accepted", "audit")
    async with database.read() as session:
        return await session.run_sync(chain.last_entry)


async def sign_migrated(database: Database, home: Path, before: str | None) -> None:
    """Sign the chain that a migration made, once: only if the database had none before the migration."""
    if before is None or before >= _CHAINED:
        return
    vault = await anyio.to_thread.run_sync(Vault.of, home)
    async with database.write() as session:
        await session.run_sync(chain.sign, vault)
