"""Keeping pictures, and taking one over from a sign-in provider."""

import asyncio
import hashlib
from urllib.parse import urlsplit
from uuid import UUID

import httpx2
import structlog
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.clients import UNPACKED, AnswerRefused, async_client, read_bounded
from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.pictures.reencode import LARGEST_BYTES, NotAPicture, PictureTooLarge, reencode
from gpubloom.server.pictures.tables import ProfilePicture
from gpubloom.server.settings import Settings

log = structlog.get_logger("bloom.pictures")

# A person waits for it while they sign in.
_FETCH_SECONDS = 5.0
# Each decodes one file with up to a gigabyte; more at once would be felt by others.
_decoders = asyncio.Semaphore(2)


def address_of(user_id: UUID, content: bytes) -> str:
    """Another picture has another address, so that browsers may keep each for ever."""
    return f"/api/users/{user_id}/picture?version={hashlib.sha256(content).hexdigest()[:16]}"


async def decode(settings: Settings, content: bytes) -> bytes:
    """The picture in a file. Raises NotAPicture. Not inside of a transaction: it takes a while."""
    async with _decoders:
        return await reencode(content, settings.sandbox_mode)


async def keep(session: AsyncSession, user: User, picture: bytes) -> None:
    """Make a picture the person's."""
    await remove(session, user)
    session.add(ProfilePicture(user_id=user.id, content=picture))
    user.image = address_of(user.id, picture)


async def remove(session: AsyncSession, user: User) -> None:
    await session.execute(delete(ProfilePicture).where(ProfilePicture.user_id == user.id))
    user.image = None


async def take_over(
    database: Database, settings: Settings, policy: Policy, user_id: UUID, address: str
) -> None:
    """Keep the picture that a sign-in provider names, for a person who has none. Never fails a sign-in."""
    try:
        async with asyncio.timeout(_FETCH_SECONDS):
            content = await _fetch(policy, address)
        picture = await decode(settings, content)
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, EgressRefused, NotAPicture) as problem:
        log.info("picture_not_taken_over", host=urlsplit(address).hostname, reason=type(problem).__name__)
        return
    async with database.write() as session:
        user = await session.scalar(select(User).where(User.id == user_id).with_for_update())
        if user is not None and user.image is None:
            await keep(session, user, picture)


async def _fetch(policy: Policy, address: str) -> bytes:
    async with (
        async_client(policy, timeout=_FETCH_SECONDS, follow_redirects=True, max_redirects=3) as client,
        client.stream("GET", address, headers=UNPACKED) as answer,
    ):
        answer.raise_for_status()
        try:
            return await read_bounded(answer, LARGEST_BYTES)
        except AnswerRefused as refused:
            raise PictureTooLarge from refused
