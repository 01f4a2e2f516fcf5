"""People's credentials for services: sealed at rest, opened only to call the service, never given back."""

import json
from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.providers import registry
from gpubloom.providers.cloud import CloudProvider, Fault
from gpubloom.providers.registry import ProviderSpec
from gpubloom.server.problems import FieldError, InvalidInput
from gpubloom.server.rentals.tables import ProviderCredential
from gpubloom.server.security.secrets import CannotOpen, SealedColumn, Vault
from gpubloom.server.settings import Settings


def _context(user_id: UUID, provider: str) -> str:
    return f"provider_credential:{provider}:{user_id}"


SEALED_COLUMN = SealedColumn(ProviderCredential, "sealed", lambda row: _context(row.user_id, row.provider))


def seal(settings: Settings, user_id: UUID, provider: str, values: Mapping[str, str]) -> str:
    """One text that opens only on this server and for this person and service. Reads the key's file."""
    return Vault.of(settings.home).seal(json.dumps(dict(values)), _context(user_id, provider))


def usable(kind: ProviderSpec, values: Mapping[str, str]) -> dict[str, str]:
    """What was entered, without blanks around it. InvalidInput: a sentence for each field that is wrong."""
    known = {field.name: field for field in kind.fields}
    entered = {name: value.strip() for name, value in values.items() if value.strip()}
    errors = [
        FieldError(
            field=f"values.{name}",
            code="extra_forbidden",
            message=f"{kind.title} has no credential field named {name}.",
        )
        for name in sorted(entered.keys() - known.keys())
    ]
    errors += [
        FieldError(field=f"values.{name}", code="missing", message=f"{kind.title} needs the {field.title}.")
        for name, field in known.items()
        if field.required and name not in entered
    ]
    errors += [
        # They go into headers and tokens.
        FieldError(
            field=f"values.{name}",
            code="invalid_credentials",
            message="This value contains characters that credentials cannot have. Copy it again.",
        )
        for name, value in entered.items()
        if not value.isascii() or not value.isprintable()
    ]
    if errors:
        raise InvalidInput(errors[0].message, errors=errors)
    return entered


async def find_sealed(session: AsyncSession, user_id: UUID, provider: str) -> str | None:
    sealed: str | None = await session.scalar(
        select(ProviderCredential.sealed).where(
            ProviderCredential.user_id == user_id, ProviderCredential.provider == provider
        )
    )
    return sealed


def open_provider(settings: Settings, user_id: UUID, provider: str, sealed: str | None) -> CloudProvider:
    """A connection for one person; nothing is called yet. Fault: it is not connected, or cannot be."""
    return registry.provider_spec(provider).open(open_credentials(settings, user_id, provider, sealed))


def open_credentials(
    settings: Settings, user_id: UUID, provider: str, sealed: str | None
) -> Mapping[str, str]:
    """What a person entered for a provider. Fault: it is not connected, or cannot be."""
    kind = registry.provider_spec(provider)
    if (reason := kind.why_not()) is not None:
        raise Fault("refused", reason)
    if sealed is None:
        raise Fault(
            "bad_credentials", f"{kind.title} is not connected. Enter your credentials under Providers first."
        )
    try:
        values: dict[str, str] = json.loads(Vault.of(settings.home).open(sealed, _context(user_id, provider)))
    except CannotOpen:
        # A restored database without its key.
        raise Fault(
            "bad_credentials",
            f"The stored credentials for {kind.title} can no longer be read. Enter them again "
            "under Providers.",
        ) from None
    return values
