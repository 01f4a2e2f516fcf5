"""The JSON of services, rented machines and budgets. Amounts are US dollars."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, SecretStr

from gpubloom.server.rentals.tables import Period, RentalState
from gpubloom.server.schema import Line, Number, Schema

_Amount = Annotated[Number, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
_Name = Annotated[Line, Field(min_length=1, max_length=64)]


class CapabilityOut(Schema):
    """Whether a service can do something; a "no" says why."""

    can: bool
    reason: str | None


class CapabilitiesOut(Schema):
    """What differs between services. `longest_seconds`: how long one machine may live."""

    runs_unattended: CapabilityOut
    live_prices: CapabilityOut
    several_gpus: CapabilityOut
    several_nodes: CapabilityOut
    spot: CapabilityOut
    longest_seconds: float | None


class CredentialFieldOut(Schema):
    """One thing to enter, such as an API key."""

    name: str
    title: str
    secret: bool
    required: bool
    hint: str


class ConnectionOut(Schema):
    """A service, and whether one is connected to it. What was entered is never given back."""

    name: str
    title: str
    available: bool = Field(description="Whether it can be used on this installation; reason says why not.")
    reason: str | None
    connected: bool
    account: str | None
    checked_at: datetime | None
    problem: str | None = Field(description="What the service said when it was asked last.")
    page: str = Field(description="Where a person finds the credentials.")
    fields: list[CredentialFieldOut]
    capabilities: CapabilitiesOut


class StorageReady(Schema):
    """Whether there is a bucket for jobs elsewhere; without one nothing can be sent."""

    ready: bool
    reason: str | None


class Connections(Schema):
    items: list[ConnectionOut]
    storage: StorageReady


class CredentialsIn(Schema):
    """What a person enters, by the names of the service's fields."""

    values: Annotated[dict[_Name, Annotated[SecretStr, Field(max_length=4_000)]], Field(max_length=20)]


class RentalOut(Schema):
    """A machine that was rented for an attempt of a job."""

    id: UUID
    job_id: UUID | None
    job_name: str
    attempt: int
    provider: str
    gpu: str
    gpus: int
    region: str | None
    state: RentalState
    detail: str
    hourly: float
    billed_seconds: float
    cost: float
    started_at: datetime | None
    ended_at: datetime | None
    page: str | None


class Rentals(Schema):
    items: list[RentalOut]
    total: int


class ProviderSpending(Schema):
    provider: str
    cost: float


class SpendingOut(Schema):
    """What was spent; days and months begin at midnight UTC."""

    currency: Literal["USD"] = "USD"
    today: float
    this_month: float
    total: float
    hourly_now: float
    by_provider: list[ProviderSpending]


class BudgetIn(Schema):
    """A budget for everything, for a project, or for a job; in place of an earlier one."""

    scope: Literal["user", "project", "job"]
    project_id: UUID | None = None
    job_id: UUID | None = None
    limit: _Amount
    period: Period = Field("total", description="A job's is always total.")


class BudgetOut(Schema):
    """`warned`: percentages that were told already."""

    id: UUID
    scope: Literal["user", "project", "job"]
    project_id: UUID | None
    job_id: UUID | None
    name: str
    limit: float
    period: Period
    spent: float
    warned: list[int]


class Budgets(Schema):
    items: list[BudgetOut]


class EndedMachine(Schema):
    provider: str
    key: str
    instance_id: str


class UnseenService(Schema):
    provider: str
    reason: str


class Reconciled(Schema):
    """Machines that no job owned, and that were ended; and services that could not be looked at."""

    ended: list[EndedMachine]
    unseen: list[UnseenService]
