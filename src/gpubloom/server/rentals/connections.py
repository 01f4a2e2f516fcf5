"""Which services there are, and which of them a person is connected to."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import delete, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.providers import registry
from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import CloudProvider, Fault
from gpubloom.providers.registry import ProviderSpec
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.rentals.schemas import ConnectionOut
from gpubloom.server.rentals.store_choice import Stores
from gpubloom.server.rentals.tables import BILLED, ProviderCredential, Rental

# A service that has not answered by then is down for whoever waits.
_LONGEST_SECONDS = 60.0


@dataclass(frozen=True)
class Checked:
    """The provider's answer about credentials: the account they belong to, or what is wrong."""

    account: str | None
    fault: Fault | None

    @property
    def problem(self) -> str | None:
        return None if self.fault is None else str(self.fault)


def find_kind(name: str) -> ProviderSpec:
    """Imports the service's module. NotFound: there is no such service."""
    try:
        return registry.provider_spec(name)
    except ProviderError as unknown:
        raise NotFound(str(unknown), code=unknown.code) from None


def connection_out(
    kind: ProviderSpec, credential: ProviderCredential | None, stores: Stores
) -> ConnectionOut:
    reason = kind.why_not()
    return ConnectionOut.model_validate(
        {
            "name": kind.name,
            "title": kind.title,
            "available": reason is None,
            "reason": reason,
            "connected": credential is not None,
            "account": None if credential is None else credential.account,
            "checked_at": None if credential is None else credential.checked_at,
            "problem": None if credential is None else credential.problem,
            "page": kind.page,
            "fields": list(kind.fields),
            "capabilities": kind.capabilities,
            "store": stores.best(kind.name),
        }
    )


async def credentials_of(session: AsyncSession, user_id: UUID) -> Mapping[str, ProviderCredential]:
    rows = await session.scalars(select(ProviderCredential).where(ProviderCredential.user_id == user_id))
    return {row.provider: row for row in rows}


async def check(provider: CloudProvider) -> Checked:
    """Ask a provider which account these credentials belong to. Starts nothing, and never raises a Fault."""
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            return Checked(await provider.check(), None)
    except Fault as fault:
        return Checked(None, fault)
    except TimeoutError:
        return Checked(
            None, Fault("timed_out", f"{provider.name} did not answer within one minute. Try again.")
        )
    finally:
        await provider.close()


def refuse(fault: Fault) -> Conflict | InvalidInput:
    """The message for a user whose credentials are wrong or cannot be checked now."""
    if fault.kind in {"bad_credentials", "refused", "quota"}:
        return InvalidInput(str(fault), code=fault.kind)
    return Conflict(str(fault), code=fault.kind)


async def store(
    session: AsyncSession, principal: Principal, provider: str, sealed: str, account: str | None
) -> ProviderCredential:
    """Keep credentials that the service knows, in place of earlier ones."""
    credential = await session.merge(
        ProviderCredential(
            user_id=principal.id,
            provider=provider,
            sealed=sealed,
            account=account,
            problem=None,
            checked_at=now(),
            created_at=now(),
        )
    )
    record(session, principal.actor, "provider_credential.stored", f"provider:{provider}")
    return credential


async def note_check(session: AsyncSession, user_id: UUID, provider: str, checked: Checked) -> None:
    credential = await session.get(ProviderCredential, (user_id, provider))
    if credential is not None:
        credential.account = checked.account or credential.account
        credential.problem = checked.problem
        credential.checked_at = now()


async def forget(session: AsyncSession, principal: Principal, provider: str) -> None:
    """Raises Conflict while machines run there: without the credentials they could not be terminated."""
    running = exists().where(
        Rental.user_id == principal.id, Rental.provider == provider, Rental.state.in_(BILLED)
    )
    if await session.scalar(select(running)):
        raise Conflict(
            "Your machines at this provider are still running. Without the credentials, they could not "
            "be terminated. Cancel their jobs first.",
            code="machines_running",
        )
    await session.execute(
        delete(ProviderCredential).where(
            ProviderCredential.user_id == principal.id, ProviderCredential.provider == provider
        )
    )
    record(session, principal.actor, "provider_credential.deleted", f"provider:{provider}")
