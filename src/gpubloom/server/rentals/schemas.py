"""The JSON of providers, rented machines and budgets. Amounts are in US dollars."""

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, SecretStr

from gpubloom.offers.budget import Scope
from gpubloom.server.rentals.tables import Period, RentalState
from gpubloom.server.schema import Line, Number, Schema, StorableSecret
from gpubloom.server.storage.schemas import StoreOut

_Amount = Annotated[Number, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
_Name = Annotated[Line, Field(min_length=1, max_length=64)]


class CapabilityOut(Schema):
    """Whether a provider supports something. If not, `reason` says why."""

    can: bool
    reason: str | None


class LimitsOut(Schema):
    """What a rented machine may cost and take, unless its owner sets other limits."""

    budget: float | None = Field(description="US dollars. None: the machine costs nothing.")
    max_hours: float


class CapabilitiesOut(Schema):
    """Features that only some providers have. `longest_seconds`: maximum lifetime of a machine."""

    runs_unattended: CapabilityOut
    live_prices: CapabilityOut
    several_gpus: CapabilityOut
    several_nodes: CapabilityOut
    spot: CapabilityOut
    longest_seconds: float | None
    switch_off: CapabilityOut = Field(
        description="Whether a machine ends its own bill at its time limit, also without the server."
    )


class CredentialFieldOut(Schema):
    """A credential field, such as an API key."""

    name: str
    title: str
    secret: bool
    required: bool
    hint: str


class ConnectionOut(Schema):
    """A provider, and whether you are connected. Credentials are never returned."""

    name: str
    title: str
    available: bool = Field(
        description="Whether the provider can be used on this server. If not, `reason` says why."
    )
    reason: str | None
    connected: bool
    account: str | None
    checked_at: datetime | None
    problem: str | None = Field(description="The result of the last check, if it failed.")
    page: str = Field(description="The page where you create the credentials.")
    fields: list[CredentialFieldOut]
    capabilities: CapabilitiesOut
    store: StoreOut | None = Field(
        description="What the files of jobs at this provider go through. None: jobs cannot start yet."
    )


class StorageReady(Schema):
    """Whether jobs can run at every provider that you are connected to. If not, `reason` says what to do."""

    ready: bool
    reason: str | None


class Connections(Schema):
    items: list[ConnectionOut]
    storage: StorageReady


class CredentialsIn(Schema):
    """The credentials, by the names of the provider's fields."""

    values: Annotated[
        dict[_Name, Annotated[SecretStr, Field(max_length=4_000), StorableSecret]], Field(max_length=20)
    ]


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
    cost: float = Field(description="Billed time times the hourly rate.")
    bill: float | None = Field(
        description="The cost by the provider's own bill. None: its API has no bill, or not yet."
    )
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
    """The amounts spent. Days and months begin at midnight UTC."""

    currency: Literal["USD"] = "USD"
    today: float
    this_month: float
    total: float
    hourly_now: float
    by_provider: list[ProviderSpending]


class CreditIn(Schema):
    """The credit that is left at a provider, as the provider shows it. Replaces what was stated earlier."""

    amount: _Amount
    as_of: date | None = Field(
        None,
        description="The day for which the amount holds (UTC); the cost of that day is subtracted. "
        "Empty or today: now.",
    )


class CreditOut(Schema):
    """A stated credit, and what GPU Bloom has spent at the provider since."""

    provider: str
    title: str
    currency: Literal["USD"] = "USD"
    amount: float
    stated_at: datetime
    spent: float
    remaining: float


class SellerOut(Schema):
    name: str
    title: str


class Credits(Schema):
    """The stated credits. `providers`: where a credit can be stated."""

    items: list[CreditOut]
    providers: list[SellerOut]


class BudgetIn(Schema):
    """A budget for the whole account, a project, or a job. Replaces its earlier budget."""

    scope: Scope
    project_id: UUID | None = None
    job_id: UUID | None = None
    limit: _Amount
    period: Period = Field("total", description="The budget of a job always has the period `total`.")


class BudgetOut(Schema):
    """A budget and how much of it is spent. `warned`: percentages for which a warning was given."""

    id: UUID
    scope: Scope
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
    """The terminated machines that no job owned, and the providers that could not be checked."""

    ended: list[EndedMachine]
    unseen: list[UnseenService]
