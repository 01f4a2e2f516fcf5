"""The table of profile pictures. `users.image` holds the address of a person's picture."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.clock import now
from gpubloom.server.db.base import Table


class ProfilePicture(Table):
    """A picture as this server encoded it; in the database, which all servers of an installation share."""

    __tablename__ = "profile_pictures"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    content: Mapped[bytes]
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
