"""The HTTP routes of providers: connect them, and terminate machines that no job owns."""

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Path

from gpubloom.providers import registry
from gpubloom.providers.base import ProviderError
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, SessionPrincipal
from gpubloom.server.accounts.reauthentication import FreshPrincipal
from gpubloom.server.audit import record_apart
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.problems import Conflict, NotFound
from gpubloom.server.rentals import connections
from gpubloom.server.rentals.credentials import open_provider, seal, usable
from gpubloom.server.rentals.reconciling import reconcile_accounts
from gpubloom.server.rentals.schemas import (
    ConnectionOut,
    Connections,
    CredentialsIn,
    EndedMachine,
    Reconciled,
    StorageReady,
    UnseenService,
)
from gpubloom.server.rentals.store_choice import no_store, read_stores
from gpubloom.server.security.rates import Rate

router = APIRouter(prefix="/providers", tags=["providers"])

# Each is a call to somebody else's server with what a stranger may have entered.
_CHECKS = Rate("provider-checks", limit=30, seconds=15 * 60)
_RECONCILES = Rate("provider-reconciles", limit=10, seconds=5 * 60)

ProviderName = Annotated[str, Path(max_length=64)]


@router.get("")
async def list_providers(
    principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> Connections:
    """List the providers, what each supports, and whether you are connected."""
    # In a thread: a service's own library may take a while to import.
    kinds = await anyio.to_thread.run_sync(
        lambda: [registry.provider_spec(name) for name in registry.provider_names()]
    )
    known = await connections.credentials_of(session, principal.id)
    stores = await read_stores(session, settings)
    items = [connections.connection_out(kind, known.get(kind.name), stores) for kind in kinds]
    without = [item.title for item in items if item.connected and item.store is None]
    reason = no_store(" and ".join(without)) if without else None
    return Connections(items=items, storage=StorageReady(ready=not without, reason=reason))


@router.put("/{provider}/credentials")
async def connect(
    provider: ProviderName,
    body: CredentialsIn,
    principal: FreshPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> ConnectionOut:
    """Connect a provider. The credentials are checked and encrypted, and are never returned."""
    kind = await anyio.to_thread.run_sync(connections.find_kind, provider)
    if (reason := kind.why_not()) is not None:
        raise Conflict(reason, code="provider_unavailable")
    values = usable(kind, {field: value.get_secret_value() for field, value in body.values.items()})
    await _CHECKS.count(database, str(principal.id))
    checked = await connections.check(kind.open(values))
    if checked.fault is not None:
        raise connections.refuse(checked.fault)
    sealed = await anyio.to_thread.run_sync(seal, settings, principal.id, provider, values)
    async with database.write() as session:
        credential = await connections.store(session, principal, provider, sealed, checked.account)
        return connections.connection_out(kind, credential, await read_stores(session, settings))


@router.delete("/{provider}/credentials", status_code=204)
async def disconnect(provider: ProviderName, principal: SessionPrincipal, session: WriteSession) -> None:
    """Delete the credentials of a provider. Not possible while your machines run there."""
    await anyio.to_thread.run_sync(connections.find_kind, provider)
    await connections.forget(session, principal, provider)


@router.post("/{provider}/check")
async def check_provider(
    provider: ProviderName, principal: CurrentPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> ConnectionOut:
    """Check the stored credentials with the provider."""
    kind = await anyio.to_thread.run_sync(connections.find_kind, provider)
    async with database.read() as session:
        credential = (await connections.credentials_of(session, principal.id)).get(provider)
    if credential is None:
        raise NotFound(f"{kind.title} is not connected.", code="not_connected")
    await _CHECKS.count(database, str(principal.id))
    try:
        cloud = await anyio.to_thread.run_sync(
            open_provider, settings, principal.id, provider, credential.sealed
        )
    except ProviderError as problem:
        raise Conflict(str(problem), code="provider_unavailable") from problem
    checked = await connections.check(cloud)
    async with database.write() as session:
        await connections.note_check(session, principal.id, provider, checked)
        credential = (await connections.credentials_of(session, principal.id)).get(provider)
        return connections.connection_out(kind, credential, await read_stores(session, settings))


@router.post("/reconcile")
async def reconcile_providers(
    principal: CurrentPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> Reconciled:
    """Terminate machines at your providers that no job owns. Workers also do this every few minutes."""
    await _RECONCILES.count(database, str(principal.id))
    ended, unseen = await reconcile_accounts(database, settings, user_id=principal.id)
    await record_apart(
        database, principal.actor, "provider.reconciled", f"user:{principal.id}", ended=len(ended)
    )
    return Reconciled(
        ended=[EndedMachine.model_validate(each) for each in ended],
        unseen=[UnseenService.model_validate(each) for each in unseen],
    )
