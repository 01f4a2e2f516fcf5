"""The HTTP routes of named secrets. A value is sent once and never returned."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Path, Query
from pydantic import Field, SecretStr

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, SessionPrincipal
from gpubloom.server.accounts.reauthentication import FreshPrincipal
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.schema import Schema, StorableSecret
from gpubloom.server.secrets import service
from gpubloom.server.security.secrets import Vault

router = APIRouter(prefix="/secrets", tags=["secrets"])

SecretName = Annotated[
    str,
    Path(pattern=service.NAME, description="The environment variable of the job, such as HF_TOKEN."),
]
ProjectId = Annotated[UUID | None, Query(description="The project of the secret. If empty: your own.")]


class SecretIn(Schema):
    """The value of a secret. Jobs get it in their environment."""

    value: Annotated[SecretStr, Field(min_length=1, max_length=8_000), StorableSecret]


class SecretOut(Schema):
    """A stored secret. Its value never leaves the server, except to the jobs that use it."""

    name: str
    project_id: UUID | None
    created_at: datetime
    updated_at: datetime


class Secrets(Schema):
    items: list[SecretOut]


@router.get("")
async def list_secrets(
    principal: CurrentPrincipal,
    session: ReadSession,
    project_id: ProjectId = None,
    everything: Annotated[
        bool, Query(alias="all", description="True: your own and those of all your projects.")
    ] = False,
) -> Secrets:
    """List your secrets, or those of a project, without their values."""
    rows = await service.list_secrets(session, principal, project_id, everything=everything)
    return Secrets(items=[SecretOut.model_validate(row) for row in rows])


@router.put("/{name}")
async def store_secret(
    name: SecretName,
    body: SecretIn,
    principal: FreshPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    project_id: ProjectId = None,
) -> SecretOut:
    """Store a secret. Replaces an earlier value; jobs that run keep the value that they started with."""
    vault = await anyio.to_thread.run_sync(Vault.of, settings.home)
    value = body.value.get_secret_value()
    return SecretOut.model_validate(
        await service.store_secret(session, principal, vault, project_id, name, value)
    )


@router.delete("/{name}", status_code=204)
async def delete_secret(
    name: SecretName, principal: SessionPrincipal, session: WriteSession, project_id: ProjectId = None
) -> None:
    """Delete a secret. Jobs that need it and have not started fail with a sentence."""
    await service.delete_secret(session, principal, project_id, name)
