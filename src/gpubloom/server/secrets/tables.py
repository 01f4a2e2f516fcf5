"""The table of named secrets."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table
from gpubloom.server.projects.tables import Project


class Secret(Identified, Table):
    """One value by its name: a person's own (`project_id` is None), or of one of their projects.

    `sealed` opens only with this server's key and for this person, project and name.
    """

    __tablename__ = "secrets"
    # NULL is not equal to itself: the service keeps a person's own secrets single.
    __table_args__ = (UniqueConstraint("user_id", "project_id", "name"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"))
    project_id: Mapped[UUID | None] = mapped_column(ForeignKey(Project.id, ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(64))
    sealed: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now)
