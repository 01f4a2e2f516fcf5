"""The table of projects."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table
from gpubloom.server.projects.schemas import Architecture


class Project(Identified, Table):
    """A model to be trained; `model_size` is in billions of parameters.

    A project that holds scripts or playgrounds has neither an architecture nor a size.
    """

    __tablename__ = "projects"
    __table_args__ = (Index(None, "user_id", "updated_at"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"))
    name: Mapped[str]
    description: Mapped[str | None]
    model_architecture: Mapped[Architecture | None] = mapped_column(String(32))
    model_size: Mapped[float | None]
    training_data_path: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
