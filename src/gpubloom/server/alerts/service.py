"""Channels of alerts. Every query filters by the owner; addresses and signing secrets are stored encrypted.

A webhook's address lets anybody who knows it write into a chat, so it is handled like a password. An email
goes only to the address of the account: the server writes to nobody who did not sign up.
"""

import json
from dataclasses import dataclass
from ipaddress import ip_address
from uuid import UUID, uuid4

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.egress import EgressRefused, Policy
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.alerts.schemas import ChannelChange, ChannelIn
from gpubloom.server.alerts.tables import AlertChannel
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.problems import InvalidInput, NotFound
from gpubloom.server.projects.service import get_project
from gpubloom.server.security.secrets import CannotOpen, SealedColumn, Vault, new_secret

MOST_CHANNELS = 50
UNREADABLE = "The address of this channel can no longer be read. Delete the channel and create it again."


@dataclass(frozen=True)
class Target:
    """What a sealed channel opens to."""

    address: str
    secret: str | None


def _context(channel_id: UUID) -> str:
    return f"alert_channel:{channel_id}"


SEALED_COLUMN = SealedColumn(AlertChannel, "sealed", lambda row: _context(row.id))


def open_target(vault: Vault, channel: AlertChannel) -> Target:
    """The address of a channel that has one. CannotOpen: it was stored with another key."""
    assert channel.sealed is not None
    return Target(**json.loads(vault.open(channel.sealed, _context(channel.id))))


def _own(principal: Principal) -> Select[AlertChannel]:
    return select(AlertChannel).where(AlertChannel.user_id == principal.id)


async def list_channels(
    session: AsyncSession, principal: Principal, project_id: UUID | None, *, everything: bool
) -> list[AlertChannel]:
    """A person's own channels, or those of one project; `everything`: all of them."""
    statement = _own(principal)
    if not everything:
        if project_id is None:
            statement = statement.where(AlertChannel.project_id.is_(None))
        else:
            await get_project(session, principal, project_id)
            statement = statement.where(AlertChannel.project_id == project_id)
    return list(await session.scalars(statement.order_by(AlertChannel.created_at, AlertChannel.id)))


async def get_channel(session: AsyncSession, principal: Principal, channel_id: UUID) -> AlertChannel:
    """One channel. Those of others are not found."""
    channel = await session.scalar(_own(principal).where(AlertChannel.id == channel_id))
    if channel is None:
        raise NotFound("This alert channel does not exist.")
    return channel


async def create_channel(
    session: AsyncSession, principal: Principal, vault: Vault, body: ChannelIn
) -> tuple[AlertChannel, str | None]:
    """The channel, and the secret that signs its messages: only of a webhook, and only this once."""
    address = None if body.address is None else body.address.get_secret_value().strip()
    host = _host(body.kind, address)
    if body.project_id is not None:
        await get_project(session, principal, body.project_id)
    count = select(func.count()).select_from(_own(principal).subquery())
    if (await session.scalar(count) or 0) >= MOST_CHANNELS:
        raise InvalidInput(
            f"You have {MOST_CHANNELS} alert channels, which is the limit. Delete one first.",
            code="too_many_channels",
        )
    channel_id = uuid4()
    secret = new_secret() if body.kind == "webhook" else None
    channel = AlertChannel(
        id=channel_id,
        user_id=principal.id,
        project_id=body.project_id,
        kind=body.kind,
        name=body.name,
        host=host,
        sealed=None if address is None else _seal(vault, channel_id, Target(address, secret)),
        rules=list(dict.fromkeys(body.rules)),
        created_at=now(),
    )
    session.add(channel)
    await session.flush()
    _record(session, principal, "alert_channel.created", channel)
    return channel, secret


async def change_channel(
    session: AsyncSession, principal: Principal, vault: Vault, channel_id: UUID, body: ChannelChange
) -> AlertChannel:
    """Change a channel. A webhook keeps its signing secret."""
    channel = await get_channel(session, principal, channel_id)
    if body.name is not None:
        channel.name = body.name
    if body.rules is not None:
        channel.rules = list(dict.fromkeys(body.rules))
    if body.enabled is not None:
        channel.enabled = body.enabled
    if body.address is not None:
        address = body.address.get_secret_value().strip()
        channel.host = _host(channel.kind, address)
        try:
            secret = open_target(vault, channel).secret
        except CannotOpen:
            raise InvalidInput(UNREADABLE, code="channel_unreadable") from None
        channel.sealed = _seal(vault, channel.id, Target(address, secret))
        channel.problem = None
    await session.flush()
    _record(session, principal, "alert_channel.changed", channel)
    return channel


async def delete_channel(session: AsyncSession, principal: Principal, channel_id: UUID) -> None:
    """Delete a channel, with the messages that wait for it."""
    channel = await get_channel(session, principal, channel_id)
    _record(session, principal, "alert_channel.deleted", channel)
    await session.delete(channel)
    await session.flush()


def _seal(vault: Vault, channel_id: UUID, target: Target) -> str:
    return vault.seal(json.dumps({"address": target.address, "secret": target.secret}), _context(channel_id))


def check_target(policy: Policy, address: str) -> str:
    """The host of an address that may be connected to. EgressRefused says why not.

    Plain http only to hosts that the operator lists: the message and its signature could be read on the way.
    """
    host, _ = policy.check_address(address)
    if not address.lower().startswith("https://") and not _is_operators(policy, host):
        raise EgressRefused("This address cannot be used: it must start with https://.")
    return host


def _is_operators(policy: Policy, host: str) -> bool:
    try:
        literal = ip_address(host)
    except ValueError:
        return policy.is_listed(host)
    return any(literal.version == network.version and literal in network for network in policy.networks)


def _host(kind: str, address: str | None) -> str:
    if kind == "email":
        if address is not None:
            raise InvalidInput.for_field(
                "address",
                "Emails go to the address of your account. Leave the address empty.",
                code="address_not_allowed",
            )
        return ""
    if not address:
        raise InvalidInput.for_field("address", "Enter the address of the webhook.", code="address_missing")
    try:
        return check_target(Policy.of_operator(), address)
    except EgressRefused as refused:
        raise InvalidInput.for_field("address", str(refused), code=refused.code) from None


def _record(session: AsyncSession, principal: Principal, action: str, channel: AlertChannel) -> None:
    record(
        session,
        principal.actor,
        action,
        f"alert_channel:{channel.id}",
        channel.project_id,
        kind=channel.kind,
        host=channel.host,
    )
