"""One-time links: issued as a secret in a URL's fragment (which never reaches a log), used once."""

from datetime import timedelta

from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.tables import LinkPurpose, OneTimeLink, Role
from gpubloom.server.clock import now
from gpubloom.server.problems import Problem
from gpubloom.server.security.secrets import fingerprint, new_secret

LIFETIMES: dict[LinkPurpose, timedelta] = {
    "setup": timedelta(hours=24),
    "verify": timedelta(hours=24),
    "reset": timedelta(hours=1),
    "invite": timedelta(days=7),
}


KEPT_FOR = timedelta(days=30)


class LinkRefused(Problem):
    """A one-time link that does not work (any more)."""

    status, code = 410, "link_unknown"


async def issue_link(
    session: AsyncSession, purpose: LinkPurpose, identifier: str, *, role: Role | None = None
) -> tuple[str, OneTimeLink]:
    """A new link for somebody; earlier unused ones of the same purpose stop working."""
    await session.execute(
        delete(OneTimeLink).where(
            or_(
                and_(
                    OneTimeLink.purpose == purpose,
                    OneTimeLink.identifier == identifier,
                    OneTimeLink.used_at.is_(None),
                ),
                # Long enough after its end nobody comes back with a link to be told what became of it.
                OneTimeLink.expires < now() - KEPT_FOR,
            )
        )
    )
    secret = new_secret()
    link = OneTimeLink(
        purpose=purpose,
        identifier=identifier,
        role=role,
        fingerprint=fingerprint(secret),
        expires=now() + LIFETIMES[purpose],
    )
    session.add(link)
    return secret, link


async def use_link(session: AsyncSession, purpose: LinkPurpose, secret: str) -> OneTimeLink:
    """Spend a link; raises with the reason when it cannot be spent."""
    mine = (OneTimeLink.fingerprint == fingerprint(secret), OneTimeLink.purpose == purpose)
    moment = now()
    spent: OneTimeLink | None = await session.scalar(
        update(OneTimeLink)
        .where(*mine, OneTimeLink.used_at.is_(None), OneTimeLink.expires > moment)
        .values(used_at=moment)
        .returning(OneTimeLink)
    )
    if spent is not None:
        return spent
    known = await session.scalar(select(OneTimeLink).where(*mine))
    if known is None:
        newer = "printed at a later start" if purpose == "setup" else "sent"
        raise LinkRefused(f"This link is not valid. Perhaps a newer one was {newer}: use the latest.")
    if known.used_at is not None:
        raise LinkRefused("This link was already used. Each one works once.", code="link_used")
    raise LinkRefused("This link has expired. Ask for a new one.", code="link_expired")
