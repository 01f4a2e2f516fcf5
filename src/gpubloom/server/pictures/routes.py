"""A person's own picture, and the pictures of others for those who may list people."""

import base64
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy import select

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, SessionPrincipal
from gpubloom.server.accounts.schemas import UserOut
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import record
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.pictures import service
from gpubloom.server.pictures.reencode import LARGEST_BYTES, MEDIA_TYPE, NotAPicture
from gpubloom.server.pictures.tables import ProfilePicture
from gpubloom.server.problems import InvalidInput, NotFound
from gpubloom.server.schema import Schema

router = APIRouter(tags=["accounts"])

_PICTURE = "/api/me/picture"
# Base64, and room for the rest of the request.
BODIES = {_PICTURE: LARGEST_BYTES * 4 // 3 + 4096}
# What a person with a picture of one address sees never changes.
_FOREVER = "private, max-age=31536000, immutable"

_SENTENCES = {
    "not_a_picture": "This is not a PNG, JPEG, WebP or GIF image, or it is damaged. Choose another image.",
    "picture_too_large": "The image has more than 4 MiB or 40 million pixels. Choose a smaller image.",
}


class NewPicture(Schema):
    """An image file: PNG, JPEG, WebP or GIF, at most 4 MiB and 40 million pixels."""

    content: Annotated[str, Field(min_length=1, max_length=LARGEST_BYTES * 4 // 3 + 4)] = Field(
        description="The file in base64."
    )


@router.put("/me/picture")
async def change_picture(
    body: NewPicture, principal: SessionPrincipal, settings: CurrentSettings, database: CurrentDatabase
) -> UserOut:
    """Replace your picture. The middle of the image is kept, 256 × 256 pixels, without metadata."""
    try:
        # Characters outside ASCII are a ValueError, wrong padding is binascii.Error, which is one too.
        content = base64.b64decode(body.content, validate=True)
    except ValueError:
        raise InvalidInput.for_field(
            "content", "The content is not valid base64.", code="not_base64"
        ) from None
    try:
        picture = await service.decode(settings, content)
    except NotAPicture as problem:
        raise InvalidInput.for_field("content", _SENTENCES[problem.code], code=problem.code) from problem
    async with database.write() as session:
        user = await session.scalar(select(User).where(User.id == principal.id).with_for_update())
        assert user is not None
        await service.keep(session, user, picture)
        await session.flush()
        record(session, principal.actor, "user.picture_changed", f"user:{principal.id}")
        return UserOut.model_validate(user)


@router.delete("/me/picture")
async def remove_picture(principal: SessionPrincipal, session: WriteSession) -> UserOut:
    """Remove your picture."""
    user = await session.scalar(select(User).where(User.id == principal.id).with_for_update())
    assert user is not None
    await service.remove(session, user)
    await session.flush()
    record(session, principal.actor, "user.picture_removed", f"user:{principal.id}")
    return UserOut.model_validate(user)


@router.get(
    "/users/{user_id}/picture",
    response_class=Response,
    responses={200: {"content": {MEDIA_TYPE: {}}, "description": "The picture."}},
)
async def read_picture(
    user_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    version: Annotated[str, Field(max_length=64)] = "",
) -> Response:
    """Return the picture of a user: your own, or for admins anybody's."""
    row = None
    if user_id == principal.id or principal.user.role == "admin":
        row = await session.scalar(select(ProfilePicture).where(ProfilePicture.user_id == user_id))
    if row is None:
        raise NotFound("This user has no picture that you can see.")
    is_this_version = service.address_of(user_id, row.content).endswith(f"={version}")
    kept = _FOREVER if is_this_version else "private, no-cache"
    return Response(row.content, media_type=MEDIA_TYPE, headers={"Cache-Control": kept})
