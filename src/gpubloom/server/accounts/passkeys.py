"""Passkeys (WebAuthn, with the library py_webauthn): a key pair per person and device, bound to this site.

A passkey verifies its owner (fingerprint, PIN) before it signs, so it is two factors in one: it signs in
without a password, and it is a second factor after one. Each ceremony signs a challenge that is stored for
the browser that began it and is deleted by the first answer, right or wrong.
"""

import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from pydantic import JsonValue
from sqlalchemy import BigInteger, ForeignKey, LargeBinary, String, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column
from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url, generate_challenge, options_to_json_dict
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table
from gpubloom.server.db.database import Database
from gpubloom.server.problems import Conflict, Forbidden, NotFound
from gpubloom.server.settings import Settings

RP_NAME = "GPU Bloom"
MOST_PASSKEYS = 20
CHALLENGE_LIFE = timedelta(minutes=5)

Ceremony = Literal["register", "sign_in", "confirm"]
Credential = dict[str, JsonValue]


class Passkey(Identified, Table):
    """The public half of a passkey."""

    __tablename__ = "passkeys"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    name: Mapped[str]
    credential_id: Mapped[str] = mapped_column(unique=True)
    public_key: Mapped[bytes] = mapped_column(LargeBinary)
    sign_count: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=now)
    last_used_at: Mapped[datetime | None]


class PasskeyChallenge(Table):
    """The open challenge of one browser: `holder_id` is its session, or its pending sign-in."""

    __tablename__ = "passkey_challenges"

    holder_id: Mapped[UUID] = mapped_column(primary_key=True)
    ceremony: Mapped[Ceremony] = mapped_column(String(16), primary_key=True)
    challenge: Mapped[bytes] = mapped_column(LargeBinary)
    expires: Mapped[datetime]


@dataclass(frozen=True)
class RelyingParty:
    """This site, as passkeys know it."""

    id: str
    origin: str


def unavailable(settings: Settings) -> str | None:
    """Why this server cannot use passkeys, as a sentence; None if it can."""
    parts = urlsplit(settings.address)
    host = parts.hostname or ""
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return (
            f"Passkeys need a host name, and the address of this server is the IP address {host}. Set "
            "BLOOM_PUBLIC_URL to an address with a host name, for example http://localhost:8000."
        )
    if parts.scheme != "https" and host != "localhost":
        return "Passkeys need HTTPS. Set BLOOM_PUBLIC_URL to an address that begins with https://."
    return None


def relying_party(settings: Settings) -> RelyingParty:
    """This site; raises when its address does not allow passkeys."""
    reason = unavailable(settings)
    if reason is not None:
        raise Conflict(reason, code="passkeys_unavailable")
    parts = urlsplit(settings.address)
    host = parts.hostname or ""
    # Browsers leave a scheme's usual port out of an origin.
    usual = parts.port in {None, {"https": 443, "http": 80}[parts.scheme]}
    return RelyingParty(id=host, origin=f"{parts.scheme}://{host}{'' if usual else f':{parts.port}'}")


async def registration_options(
    session: AsyncSession, site: RelyingParty, user: User, holder_id: UUID
) -> Credential:
    """What the browser needs to make a passkey."""
    known = await list_passkeys(session, user.id)
    if len(known) >= MOST_PASSKEYS:
        raise Conflict(
            f"You already have {MOST_PASSKEYS} passkeys, which is the limit. Delete one that you no longer "
            "use.",
            code="too_many_passkeys",
        )
    options = generate_registration_options(
        rp_id=site.id,
        rp_name=RP_NAME,
        user_id=user.id.bytes,
        user_name=user.email,
        user_display_name=user.name,
        challenge=await _open_challenge(session, holder_id, "register"),
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=[_descriptor(passkey) for passkey in known],
    )
    return options_to_json_dict(options)


async def register(
    database: Database, site: RelyingParty, user: User, holder_id: UUID, *, name: str, credential: Credential
) -> Passkey:
    """The passkey that the browser made; not stored yet."""
    challenge = await _take_challenge(database, holder_id, "register")
    try:
        verified = verify_registration_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=site.id,
            expected_origin=site.origin,
            require_user_verification=True,
        )
    except Exception as error:
        raise _refused() from error
    return Passkey(
        id=uuid4(),
        user_id=user.id,
        name=name,
        credential_id=bytes_to_base64url(verified.credential_id),
        public_key=verified.credential_public_key,
        sign_count=verified.sign_count,
        created_at=now(),
    )


async def store(session: AsyncSession, passkey: Passkey) -> None:
    """Store a new passkey; the id of another one is refused."""
    taken = exists().where(Passkey.credential_id == passkey.credential_id)
    if await session.scalar(select(taken)):
        raise Conflict("This passkey is already registered.", code="passkey_already_registered")
    session.add(passkey)
    await session.flush()


async def request_options(
    session: AsyncSession, site: RelyingParty, holder_id: UUID, ceremony: Ceremony, user_id: UUID | None
) -> Credential:
    """What the browser needs to use a passkey: of this person, or of whoever chooses one."""
    known = [] if user_id is None else await list_passkeys(session, user_id)
    options = generate_authentication_options(
        rp_id=site.id,
        challenge=await _open_challenge(session, holder_id, ceremony),
        allow_credentials=[_descriptor(passkey) for passkey in known],
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return options_to_json_dict(options)


async def verify(
    database: Database,
    site: RelyingParty,
    holder_id: UUID,
    ceremony: Ceremony,
    *,
    credential: Credential,
    user_id: UUID | None,
) -> Passkey:
    """The passkey that signed the challenge; of this person, when one is named."""
    challenge = await _take_challenge(database, holder_id, ceremony)
    mine = Passkey.credential_id == str(credential.get("id"))
    if user_id is not None:
        mine &= Passkey.user_id == user_id
    async with database.read() as session:
        passkey = await session.scalar(select(Passkey).where(mine))
    if passkey is None:
        raise Forbidden(
            "This passkey is not registered here. Sign in another way, then add the passkey on your account "
            "page.",
            code="passkey_unknown",
        )
    try:
        verified = verify_authentication_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=site.id,
            expected_origin=site.origin,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
    except Exception as error:
        raise _refused() from error
    async with database.write() as session:
        counted = await session.scalar(
            update(Passkey)
            # Deleted meanwhile, or used at the same moment by its copy.
            .where(Passkey.id == passkey.id, Passkey.sign_count == passkey.sign_count)
            .values(sign_count=verified.new_sign_count, last_used_at=now())
            .returning(Passkey.id)
        )
    if counted is None:
        raise _refused()
    return passkey


async def list_passkeys(session: AsyncSession, user_id: UUID) -> list[Passkey]:
    """A person's passkeys, the oldest first."""
    rows = await session.scalars(
        select(Passkey).where(Passkey.user_id == user_id).order_by(Passkey.created_at, Passkey.id)
    )
    return list(rows)


async def count(session: AsyncSession, user_id: UUID) -> int:
    """How many passkeys a person has."""
    statement = select(func.count()).select_from(Passkey).where(Passkey.user_id == user_id)
    return await session.scalar(statement) or 0


async def rename(session: AsyncSession, user_id: UUID, passkey_id: UUID, name: str) -> Passkey:
    """Give a passkey another name."""
    passkey: Passkey | None = await session.scalar(
        update(Passkey)
        .where(Passkey.id == passkey_id, Passkey.user_id == user_id)
        .values(name=name)
        .returning(Passkey)
    )
    if passkey is None:
        raise NotFound("This passkey does not exist.")
    return passkey


async def remove(session: AsyncSession, user_id: UUID, passkey_id: UUID) -> None:
    """Delete a passkey: it no longer signs in."""
    removed = await session.scalar(
        delete(Passkey).where(Passkey.id == passkey_id, Passkey.user_id == user_id).returning(Passkey.id)
    )
    if removed is None:
        raise NotFound("This passkey does not exist.")


def _descriptor(passkey: Passkey) -> PublicKeyCredentialDescriptor:
    return PublicKeyCredentialDescriptor(id=base64url_to_bytes(passkey.credential_id))


def _refused() -> Forbidden:
    return Forbidden("The passkey could not be verified. Try again.", code="passkey_refused")


async def _open_challenge(session: AsyncSession, holder_id: UUID, ceremony: Ceremony) -> bytes:
    """A new challenge, which replaces the browser's earlier one."""
    await session.execute(delete(PasskeyChallenge).where(PasskeyChallenge.expires < now()))
    challenge = generate_challenge()
    await session.merge(
        PasskeyChallenge(
            holder_id=holder_id, ceremony=ceremony, challenge=challenge, expires=now() + CHALLENGE_LIFE
        )
    )
    return challenge


async def _take_challenge(database: Database, holder_id: UUID, ceremony: Ceremony) -> bytes:
    """The browser's challenge, which nobody can use again: deleted before the answer is looked at."""
    async with database.write() as session:
        taken = (
            await session.execute(
                delete(PasskeyChallenge)
                .where(PasskeyChallenge.holder_id == holder_id, PasskeyChallenge.ceremony == ceremony)
                .returning(PasskeyChallenge.challenge, PasskeyChallenge.expires)
            )
        ).one_or_none()
    if taken is None or taken.expires <= now():
        raise _refused()
    challenge: bytes = taken.challenge
    return challenge
