"""The tables of alerts: where they go, and what was sent."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from sqlalchemy import JSON, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project

ChannelKind = Literal["email", "webhook", "slack"]


class AlertChannel(Identified, Table):
    """Where alerts of a person go (`project_id` is None), or those of one of their projects.

    `sealed` holds the address and the signing secret; an email goes to the person's own address, so it has
    none. It opens only with this server's key and for this channel.
    """

    __tablename__ = "alert_channels"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    project_id: Mapped[UUID | None] = mapped_column(ForeignKey(Project.id, ondelete="CASCADE"), index=True)
    kind: Mapped[ChannelKind] = mapped_column(String(16))
    name: Mapped[str]
    # The host of the address: all of it that is ever shown.
    host: Mapped[str] = mapped_column(default="")
    sealed: Mapped[str | None]
    rules: Mapped[list[str]] = mapped_column(JSON)
    enabled: Mapped[bool] = mapped_column(default=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
    last_sent_at: Mapped[datetime | None]
    # Why the newest message did not arrive; None: it did.
    problem: Mapped[str | None]


class AlertDelivery(Identified, Table):
    """One message to one channel. `key` names the event, so the same event is sent once."""

    __tablename__ = "alert_deliveries"
    __table_args__ = (UniqueConstraint("channel_id", "key"), Index(None, "next_try_at"))

    channel_id: Mapped[UUID] = mapped_column(ForeignKey(AlertChannel.id, ondelete="CASCADE"))
    job_id: Mapped[UUID] = mapped_column(ForeignKey(TrainingJob.id, ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(String(160))
    rule: Mapped[str] = mapped_column(String(64))
    level: Mapped[str] = mapped_column(String(16))
    title: Mapped[str]
    text: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)
    # None: delivered, or given up.
    next_try_at: Mapped[datetime | None]
    tries: Mapped[int] = mapped_column(default=0)
    sent_at: Mapped[datetime | None]
    problem: Mapped[str | None]
