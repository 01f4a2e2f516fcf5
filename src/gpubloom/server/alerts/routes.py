"""The HTTP routes of alert channels. An address is sent once and never returned.

A channel outlives the session that made it and tells its address about every run. So an address needs a fresh
sign-in; emails go to the owner, and need none.
"""

from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Query

from gpubloom.server.accounts.principal import CurrentMailer, CurrentPrincipal, CurrentSettings
from gpubloom.server.accounts.reauthentication import check_fresh
from gpubloom.server.accounts.tables import User
from gpubloom.server.alerts import service
from gpubloom.server.alerts.delivery import NotDelivered, Sender, trial
from gpubloom.server.alerts.schemas import (
    AlertRule,
    ChannelChange,
    ChannelIn,
    ChannelOut,
    Channels,
    NewChannel,
    TrialResult,
)
from gpubloom.server.alerts.tables import AlertChannel
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import Vault
from gpubloom.traincard.alert_rules import DEFAULT_RULES, RULES

router = APIRouter(prefix="/alert-channels", tags=["alerts"])

_TESTS = Rate("alert-tests", limit=20, seconds=600)


def _shown(channel: AlertChannel, email: str) -> dict[str, object]:
    fields = {name: getattr(channel, name) for name in ChannelOut.model_fields}
    return {**fields, "host": email if channel.kind == "email" else channel.host}


@router.get("")
async def list_channels(
    principal: CurrentPrincipal,
    session: ReadSession,
    project_id: Annotated[UUID | None, Query(description="The channels of this project.")] = None,
    everything: Annotated[
        bool, Query(alias="all", description="True: your own and those of all your projects.")
    ] = False,
) -> Channels:
    """List your alert channels, or those of a project, and the rules that there are."""
    rows = await service.list_channels(session, principal, project_id, everything=everything)
    rules = [
        AlertRule(name=name, title=title, default=name in DEFAULT_RULES) for name, title in RULES.items()
    ]
    return Channels(
        items=[ChannelOut.model_validate(_shown(row, principal.user.email)) for row in rows], rules=rules
    )


@router.post("", status_code=201)
async def create_channel(
    body: ChannelIn,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    session: WriteSession,
    settings: CurrentSettings,
) -> NewChannel:
    """Create an alert channel. The answer holds the signing secret of a webhook, once.

    An address needs a sign-in of the last ten minutes; API tokens can create email channels only.
    """
    if body.address is not None:
        await check_fresh(principal, database)
    vault = await anyio.to_thread.run_sync(Vault.of, settings.home)
    channel, secret = await service.create_channel(session, principal, vault, body)
    return NewChannel.model_validate({**_shown(channel, principal.user.email), "signing_secret": secret})


@router.patch("/{channel_id}")
async def change_channel(
    channel_id: UUID,
    body: ChannelChange,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    session: WriteSession,
    settings: CurrentSettings,
) -> ChannelOut:
    """Change an alert channel. Another address needs a sign-in of the last ten minutes."""
    if body.address is not None:
        await check_fresh(principal, database)
    vault = await anyio.to_thread.run_sync(Vault.of, settings.home)
    channel = await service.change_channel(session, principal, vault, channel_id, body)
    return ChannelOut.model_validate(_shown(channel, principal.user.email))


@router.delete("/{channel_id}", status_code=204)
async def delete_channel(channel_id: UUID, principal: CurrentPrincipal, session: WriteSession) -> None:
    """Delete an alert channel. Messages that wait for it are not sent."""
    await service.delete_channel(session, principal, channel_id)


@router.post("/{channel_id}/test")
async def try_channel(
    channel_id: UUID,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
) -> TrialResult:
    """Send a test message now. It is tried once."""
    async with database.read() as session:
        channel = await service.get_channel(session, principal, channel_id)
        owner = await session.get_one(User, principal.id)
    await _TESTS.count(database, str(principal.id))
    problem: str | None = None
    try:
        await Sender(settings, mailer).send(channel, owner, trial(channel, settings))
    except NotDelivered as failed:
        problem = str(failed)
    return TrialResult(delivered=problem is None, problem=problem)
