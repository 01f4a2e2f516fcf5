"""Named secrets: stored encrypted, opened only to start a job, never given back.

A job's row keeps the names that it gets, not the values: a value is read when an attempt starts, so a secret
that was replaced is used as it is now, and a job whose secret was deleted says so instead of starting. A
project's secret takes the place of a person's own of the same name.
"""

import re
from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.errors import CodedError
from gpubloom.server.accounts.hub_tokens import open_hub_token
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.problems import InvalidInput, NotFound
from gpubloom.server.projects.service import get_project
from gpubloom.server.secrets.tables import Secret
from gpubloom.server.security.secrets import CannotOpen, SealedColumn, Vault
from gpubloom.server.settings import Settings

MOST = 100
# All of a job together: they travel in one variable of its machine's environment.
MOST_BYTES = 16_000
NAME = r"^[A-Z][A-Z0-9_]{0,63}$"
# These act on the programs that start a job, not on the job.
_NOT_ALLOWED = re.compile(
    r"BLOOM_.*|LD_.*|PYTHON.*|CUDA_.*|NVIDIA_.*|BASH_.*|PATH|HOME|SHELL|IFS|ENV|USER|TMPDIR"
)


class SecretUnavailable(CodedError):
    """A job needs a secret that is gone, or that cannot be read."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def _context(user_id: UUID, project_id: UUID | None, name: str) -> str:
    return f"secret:{user_id}:{project_id or ''}:{name}"


SEALED_COLUMN = SealedColumn(Secret, "sealed", lambda row: _context(row.user_id, row.project_id, row.name))


async def list_secrets(
    session: AsyncSession, principal: Principal, project_id: UUID | None, *, everything: bool = False
) -> list[Secret]:
    """A person's own, or those of one project; `everything`: all of them. Without their values."""
    statement = select(Secret).where(Secret.user_id == principal.id)
    if not everything:
        if project_id is not None:
            await get_project(session, principal, project_id)
        statement = statement.where(_of_project(project_id))
    return list(await session.scalars(statement.order_by(Secret.project_id.is_not(None), Secret.name)))


async def store_secret(
    session: AsyncSession, principal: Principal, vault: Vault, project_id: UUID | None, name: str, value: str
) -> Secret:
    """In place of an earlier one of the same name."""
    if _NOT_ALLOWED.fullmatch(name):
        raise InvalidInput.for_field(
            "name",
            f"A secret cannot be named {name}: this variable belongs to the system. Choose another name.",
            code="secret_name_reserved",
        )
    if project_id is not None:
        await get_project(session, principal, project_id)
    known = await session.scalars(select(Secret).where(Secret.user_id == principal.id).with_for_update())
    rows = list(known)
    row = next((each for each in rows if (each.project_id, each.name) == (project_id, name)), None)
    if row is None:
        if len(rows) >= MOST:
            raise InvalidInput(
                f"You have {MOST} secrets, which is the limit. Delete one first.", code="too_many_secrets"
            )
        row = Secret(id=uuid4(), user_id=principal.id, project_id=project_id, name=name, created_at=now())
        session.add(row)
    row.sealed = vault.seal(value, _context(principal.id, project_id, name))
    row.updated_at = now()
    record(session, principal.actor, "secret.stored", f"secret:{name}", project_id)
    await session.flush()
    return row


async def delete_secret(
    session: AsyncSession, principal: Principal, project_id: UUID | None, name: str
) -> None:
    row = await session.scalar(
        select(Secret).where(Secret.user_id == principal.id, _of_project(project_id), Secret.name == name)
    )
    if row is None:
        raise NotFound("This secret does not exist.")
    await session.delete(row)
    record(session, principal.actor, "secret.deleted", f"secret:{name}", project_id)


async def names_for(
    session: AsyncSession, principal: Principal, project_id: UUID | None, asked: Sequence[str] | None
) -> list[str]:
    """The names that a new job gets: those asked for, or all of the person and the project."""
    rows = await session.scalars(_for_job(principal.id, project_id))
    known = sorted({row.name for row in rows})
    if asked is None:
        return known
    if missing := sorted(set(asked) - set(known)):
        raise InvalidInput.for_field("secrets", _missing(missing), code="secret_missing")
    return sorted(set(asked))


async def open_secrets(session: AsyncSession, settings: Settings, job: TrainingJob) -> Mapping[str, str]:
    """The values for an attempt that starts. SecretUnavailable: a sentence for the owner."""
    names = set(job.secrets or ())
    if not names:
        return {}
    rows = list(await session.scalars(_for_job(job.user_id, job.project_id)))
    vault, values = Vault.of(settings.home), {}
    # A project's own come last, in place of the person's.
    for row in sorted(rows, key=lambda row: row.project_id is not None):
        if row.name in names:
            try:
                values[row.name] = vault.open(row.sealed, _context(row.user_id, row.project_id, row.name))
            except CannotOpen:
                raise SecretUnavailable(
                    "secret_unreadable",
                    f"The secret {row.name} can no longer be read. Store it again under Settings, Tokens.",
                ) from None
    if missing := sorted(names - values.keys()):
        raise SecretUnavailable("secret_missing", _missing(missing))
    if sum(len(name) + len(value.encode()) for name, value in values.items()) > MOST_BYTES:
        raise SecretUnavailable(
            "secrets_too_large",
            f"The secrets of the job have more than {MOST_BYTES:,} bytes together. Start the job with fewer.",
        )
    return values


async def require_own(session: AsyncSession, principal: Principal, name: str) -> None:
    """Raises when a person has no secret of their own with this name."""
    found = await session.scalar(_own(principal.id, name))
    if found is None:
        raise InvalidInput.for_field(
            "secret",
            f"You have no secret named {name}. Store it under Settings, Tokens.",
            code="secret_missing",
        )


async def open_own(session: AsyncSession, settings: Settings, user_id: UUID, name: str) -> str:
    """The value of a person's own secret. SecretUnavailable: a sentence for the owner."""
    row = await session.scalar(_own(user_id, name))
    if row is None:
        raise SecretUnavailable(
            "secret_missing", f"The secret {name} does not exist any more. Store it under Settings, Tokens."
        )
    try:
        return Vault.of(settings.home).open(row.sealed, _context(row.user_id, None, row.name))
    except CannotOpen:
        raise SecretUnavailable(
            "secret_unreadable",
            f"The secret {name} can no longer be read. Store it again under Settings, Tokens.",
        ) from None


def _own(user_id: UUID, name: str) -> Select[Secret]:
    return select(Secret).where(Secret.user_id == user_id, Secret.project_id.is_(None), Secret.name == name)


async def job_secrets(session: AsyncSession, settings: Settings, job: TrainingJob) -> Mapping[str, str]:
    """The same, with the person's Hugging Face token for a job that loads something from the Hub."""
    values = await open_secrets(session, settings, job)
    if "HF_TOKEN" in values or not (job.config.get("hub_models") or job.config.get("hub_datasets")):
        return values
    token = await open_hub_token(session, settings, job.user_id)
    return values if token is None else {**values, "HF_TOKEN": token}


def _for_job(user_id: UUID, project_id: UUID | None) -> Select[Secret]:
    own = Secret.project_id.is_(None)
    usable = own if project_id is None else or_(own, Secret.project_id == project_id)
    return select(Secret).where(Secret.user_id == user_id, usable)


def _of_project(project_id: UUID | None) -> ColumnElement[bool]:
    return Secret.project_id.is_(None) if project_id is None else Secret.project_id == project_id


def _missing(names: Sequence[str]) -> str:
    what = f"The secret {names[0]} does" if len(names) == 1 else f"The secrets {', '.join(names)} do"
    return f"{what} not exist (any more). Store it under Settings, Tokens, or start the job without it."
