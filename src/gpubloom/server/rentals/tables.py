"""The tables of rented machines. What a job may cost is in the job's own row (`budget`, `max_hours`)."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.offers.prices import Granularity, PriceKind
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project

# submitting: the service is being asked, and may have started it. The others are the service's own
# (`providers.rented.InstanceState`).
RentalState = Literal["submitting", "starting", "running", "ended", "lost"]
BILLED: tuple[RentalState, ...] = ("submitting", "starting", "running")
Period = Literal["total", "month"]


class Installation(Identified, Table):
    """One row, made by the migration: names this installation in the keys of its machines, so that another
    one with the same account at a service leaves them alone. `lies_at`: see `installation._identity`."""

    __tablename__ = "installation"

    lies_at: Mapped[str | None]


class LivePrices(Table):
    """The last prices of a provider; one row for all users."""

    __tablename__ = "live_prices"

    provider: Mapped[str] = mapped_column(String(32), primary_key=True)
    rows: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    read_at: Mapped[datetime]


class ProviderCredential(Table):
    """What a person entered to connect a service; `sealed` opens only here and for this person."""

    __tablename__ = "provider_credentials"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    provider: Mapped[str] = mapped_column(String(32), primary_key=True)
    sealed: Mapped[str]
    account: Mapped[str | None]
    # What the service said when it was asked last; None: all is well.
    problem: Mapped[str | None]
    checked_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=now)


class ProviderCredit(Table):
    """US dollars that a person said are left at a provider, at the moment for which they said it."""

    __tablename__ = "provider_credits"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    provider: Mapped[str] = mapped_column(String(32), primary_key=True)
    amount: Mapped[float] = mapped_column(Double)
    stated_at: Mapped[datetime]


class Rental(Identified, Table):
    """One machine for one attempt. It outlives its job's row: money that was spent stays spent."""

    __tablename__ = "rentals"
    __table_args__ = (Index(None, "user_id", "created_at"), Index(None, "state"))

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"))
    project_id: Mapped[UUID | None] = mapped_column(ForeignKey(Project.id, ondelete="SET NULL"), index=True)
    job_id: Mapped[UUID | None] = mapped_column(ForeignKey(TrainingJob.id, ondelete="SET NULL"), index=True)
    job_name: Mapped[str]
    attempt: Mapped[int]
    provider: Mapped[str] = mapped_column(String(32))
    # Whose bill it is on, as named in the price table: the cloud behind SkyPilot. None: `provider` itself.
    seller: Mapped[str | None] = mapped_column(String(32))
    # The name that the machine carries at the service.
    key: Mapped[str] = mapped_column(String(64), unique=True)
    instance_id: Mapped[str | None]
    state: Mapped[RentalState] = mapped_column(String(16), default="submitting")
    detail: Mapped[str] = mapped_column(default="")
    page: Mapped[str | None]
    # What the attempt's files go through (`store_choice`); None: an attempt of an earlier version, a bucket.
    store: Mapped[str | None] = mapped_column(String(16))

    gpu: Mapped[str]
    gpus: Mapped[int]
    region: Mapped[str | None]
    kind: Mapped[PriceKind] = mapped_column(String(16))
    hourly: Mapped[float] = mapped_column(Double)
    billing: Mapped[Granularity] = mapped_column(String(8), default="second")
    minimum_seconds: Mapped[float] = mapped_column(Double, default=0.0)

    billed_from: Mapped[datetime | None]
    billed_to: Mapped[datetime | None]
    # Up to `metered_at`, or to `billed_to` once it is known.
    billed_seconds: Mapped[float] = mapped_column(Double, default=0.0)
    cost: Mapped[float] = mapped_column(Double, default=0.0)
    metered_at: Mapped[datetime | None]
    # What the machine may cost in all by the time limit that it was given: no other job may spend it.
    reserved: Mapped[float | None] = mapped_column(Double)
    # What the provider's own bill says, where its API has one.
    bill: Mapped[float | None] = mapped_column(Double)
    # When the reconciler first saw that no living job owns it.
    unowned_since: Mapped[datetime | None]
    # When its owner was last written to because it could not be terminated.
    alarmed_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=now)


class StoredArtifact(Identified, Table):
    """A file that a job on a rented machine made, as it is kept in the bucket until its time is over."""

    __tablename__ = "stored_artifacts"
    __table_args__ = (UniqueConstraint("job_id", "path"),)

    job_id: Mapped[UUID] = mapped_column(ForeignKey(TrainingJob.id, ondelete="CASCADE"))
    path: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    stored_at: Mapped[datetime] = mapped_column(index=True)


class Budget(Identified, Table):
    """What a person may spend, in all or on one project; US dollars. `warned`: percentages that were told,
    of a monthly budget those of the month `warned_in`."""

    __tablename__ = "budgets"
    # NULL is not equal to itself: the service keeps a person's own budget single.
    __table_args__ = (UniqueConstraint("user_id", "project_id"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"))
    project_id: Mapped[UUID | None] = mapped_column(ForeignKey(Project.id, ondelete="CASCADE"), index=True)
    amount: Mapped[float] = mapped_column(Double)
    period: Mapped[Period] = mapped_column(String(8), default="total")
    warned: Mapped[list[int]] = mapped_column(JSON, default=list)
    warned_in: Mapped[str | None] = mapped_column(String(7))
    created_at: Mapped[datetime] = mapped_column(default=now)
