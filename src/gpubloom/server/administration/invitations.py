"""Invitations: one-time links with which a person creates an account even while sign-up is closed.

An admin creates an invitation after a fresh sign-in in a browser, so that a leaked API token cannot invite.
When that admin is disabled, demoted or deleted, the invitation becomes invalid for good.
"""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, BackgroundTasks
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import mail
from gpubloom.server.accounts.principal import (
    AdminPrincipal,
    CurrentMailer,
    CurrentSettings,
    Principal,
)
from gpubloom.server.accounts.reauthentication import FreshAdminPrincipal
from gpubloom.server.accounts.registration import find_by_email, issue_link
from gpubloom.server.accounts.schemas import Email, Role
from gpubloom.server.accounts.tables import OneTimeLink, User
from gpubloom.server.administration.schemas import ActorOut
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.problems import InvalidInput, NotFound
from gpubloom.server.schema import Schema

router = APIRouter(prefix="/invitations", tags=["administration"])


class InvitationIn(Schema):
    email: Email
    role: Role = "member"


class InvitationOut(Schema):
    """An invitation that can still be used."""

    id: UUID
    email: str
    role: Role
    inviter: ActorOut
    created_at: datetime
    expires_at: datetime


class CreatedInvitation(InvitationOut):
    """A new invitation. Only this response contains its link, which an admin can pass on without email."""

    link: str


class Invitations(Schema):
    items: list[InvitationOut]


def _out(link: OneTimeLink, inviter: User) -> InvitationOut:
    return InvitationOut(
        id=link.id,
        email=link.identifier,
        role=link.role or "member",
        inviter=ActorOut(id=inviter.id, name=inviter.name, email=inviter.email),
        created_at=link.created_at,
        expires_at=link.expires,
    )


@router.get("")
async def list_invitations(principal: AdminPrincipal, session: ReadSession) -> Invitations:
    """List the invitations that can still be used, newest first."""
    rows = await session.execute(
        select(OneTimeLink, User)
        .join(User, User.id == OneTimeLink.inviter_id)
        .where(OneTimeLink.purpose == "invite", OneTimeLink.used_at.is_(None), OneTimeLink.expires > now())
        .where(User.role == "admin", User.disabled.is_(False))
        .order_by(OneTimeLink.created_at.desc(), OneTimeLink.id)
    )
    return Invitations(items=[_out(link, inviter) for link, inviter in rows])


@router.post("", status_code=201)
async def invite(
    body: InvitationIn,
    principal: FreshAdminPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> CreatedInvitation:
    """Invite a person with a one-time link. An earlier invitation of the same address ends."""
    known = await find_by_email(session, body.email)
    # A sign-up that nobody confirmed may be a stranger's: the invited person takes its place.
    if known is not None and (known.email_verified is not None or known.disabled):
        raise InvalidInput.for_field(
            "email", "An account with this email address already exists.", code="already_registered"
        )
    secret, link = await issue_link(session, "invite", body.email, role=body.role, inviter_id=principal.id)
    await session.flush()
    record(session, principal.actor, "user.invited", f"email:{body.email}", role=body.role)
    email = mail.invitation(settings.address, body.email, principal.user.name, secret)
    assert email.link is not None
    after.add_task(mailer.send, email)
    return CreatedInvitation(**_out(link, principal.user).model_dump(), link=email.link)


@router.delete("/{invitation_id}", status_code=204)
async def revoke_invitation(invitation_id: UUID, principal: AdminPrincipal, session: WriteSession) -> None:
    """Revoke an invitation. Its link stops working at once."""
    email = await session.scalar(
        delete(OneTimeLink)
        .where(
            OneTimeLink.id == invitation_id, OneTimeLink.purpose == "invite", OneTimeLink.used_at.is_(None)
        )
        .returning(OneTimeLink.identifier)
    )
    if email is None:
        raise NotFound("This invitation does not exist. It may have been used or revoked.")
    record(session, principal.actor, "user.invitation_revoked", f"email:{email}")


async def void_invitations(session: AsyncSession, principal: Principal, inviter_id: UUID) -> None:
    """End the invitations of somebody who may no longer invite."""
    emails = await session.scalars(
        delete(OneTimeLink)
        .where(
            OneTimeLink.purpose == "invite",
            OneTimeLink.inviter_id == inviter_id,
            OneTimeLink.used_at.is_(None),
        )
        .returning(OneTimeLink.identifier)
    )
    for email in emails.all():
        record(session, principal.actor, "user.invitation_revoked", f"email:{email}")
