"""What datasets and models have in common: somebody's files, and a worker that prepares them.

The lease is as in docs/jobs.md: whoever holds the token may write, and a token that ran out may be replaced.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Double, ForeignKey, String
from sqlalchemy.orm import Mapped, declared_attr, mapped_column

from gpubloom.server.clock import now


class KeepsFiles:
    """A row that stands for files on this machine."""

    @declared_attr
    def user_id(cls) -> Mapped[UUID]:  # noqa: N805 - SQLAlchemy gives the class
        return mapped_column(ForeignKey("users.id", ondelete="CASCADE"))

    name: Mapped[str]
    source: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16))
    # Bytes: as announced, and as far as they have come.
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    received: Mapped[int] = mapped_column(BigInteger, default=0)
    # From 0 to 1, of what the status says.
    progress: Mapped[float | None] = mapped_column(Double)
    problem: Mapped[str | None]

    lease_token: Mapped[UUID | None]
    lease_expires: Mapped[datetime | None]
    worker: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(default=0)

    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
