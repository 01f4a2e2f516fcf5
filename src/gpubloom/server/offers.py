"""The HTTP routes of prices and offers, and their JSON. Amounts are in US dollars."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from gpubloom.errors import code_of
from gpubloom.offers import Constraints, Need, Offer, PriceTable, default_limits, offers
from gpubloom.offers.offer import Priority
from gpubloom.offers.prices import STALE_AFTER, Availability, Granularity, PriceKind
from gpubloom.scripts import Requirements
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.clock import now
from gpubloom.server.db.database import ReadSession
from gpubloom.server.problems import InvalidInput
from gpubloom.server.rentals.price_book import CurrentPrices
from gpubloom.server.rentals.provider_credits import remaining_credits
from gpubloom.server.rentals.schemas import LimitsOut
from gpubloom.server.rentals.store_choice import Stores, read_stores
from gpubloom.server.schema import Flag, Line, Number, Schema, Span, Whole
from gpubloom.server.storage.schemas import StoreOut

_Name = Annotated[Line, Field(min_length=1, max_length=100)]
_Names = Annotated[list[_Name], Field(max_length=100)]
_Amount = Annotated[Number, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class NeedIn(Schema):
    """The requirements of a job, entered by a user."""

    memory_gb: Annotated[
        Number, Field(gt=0, le=100_000, allow_inf_nan=False, description="Required memory of one GPU, in GB.")
    ]
    hours: Annotated[Number, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None, description="Run time in hours on GPUs of type reference_gpu."
    )
    operations: Annotated[Number, Field(gt=0, le=1e30, allow_inf_nan=False)] | None = Field(
        None, description="Floating-point operations of the whole run, instead of hours."
    )
    reference_gpu: _Name | None = Field(
        None,
        description="The GPU type that `hours` refers to. If empty: the smallest common GPU with enough "
        "memory.",
    )
    gpus: Annotated[Whole, Field(ge=1, le=1_024)] = 1
    multi_node: Flag = False
    interactive: Flag = False
    bf16: Flag = False
    resumes: Flag = Field(
        True, description="Whether the job resumes from a checkpoint after an interruption."
    )
    disk_gb: _Amount = 50.0
    data_gb: _Amount = 1.0

    def need(self) -> Need:
        return Need.of(**self.model_dump())


class Preferences(Schema):
    """Conditions that an offer must meet, and the priority for ranking offers."""

    gpus: _Names = Field([], description="GPU types. Empty: any type.")
    region: Literal["us", "eu", "asia"] | None = None
    max_cost: _Amount | None = None
    max_hourly: _Amount | None = None
    max_hours: Annotated[Number, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = None
    spot: Flag = True
    credits: Annotated[dict[_Name, _Amount], Field(max_length=100)] = Field(
        {},
        description="Remaining credits in US dollars, by provider name. Providers that are not named here "
        "count with the credit that you stated at /api/credits.",
    )
    priority: Priority = "balanced"

    def constraints(
        self, providers: Iterable[str], engines: Iterable[str], stated_credits: Mapping[str, float]
    ) -> Constraints:
        return Constraints(
            providers=frozenset(providers),
            engines=frozenset(engines),
            gpus=frozenset(self.gpus),
            region=self.region,
            max_cost=self.max_cost,
            max_hourly=self.max_hourly,
            max_hours=self.max_hours,
            spot=self.spot,
            credits={**stated_credits, **self.credits},
            priority=self.priority,
        )


class ConstraintsIn(Preferences):
    """Preferences, and the providers that may make offers."""

    providers: _Names = Field([], description="Provider names. Empty: any provider.")
    engines: _Names = Field([], description="Orchestrators that are set up, such as skypilot.")


class AskForOffers(Schema):
    """Send either `requirements` (as returned by the inspection of a script) or `needs`."""

    requirements: Requirements | None = None
    needs: NeedIn | None = None
    constraints: ConstraintsIn = ConstraintsIn()


class CostOut(Schema):
    """The cost of an offer by category."""

    compute: Span
    storage: Span
    network: Span
    start_up: Span
    total: Span


class NeedOut(Schema):
    """The requirements that the offers are based on."""

    memory_gb: Span
    hours: Span
    reference_gpu: str
    hours_of_any_gpu: bool = Field(
        description="The script states its hours without a GPU type: they are used for every GPU."
    )
    gpus: int
    multi_node: bool
    interactive: bool
    bf16: bool
    resumes: bool
    assumed: list[str]


class CreditUseOut(Schema):
    """What your remaining credit at the provider pays of the cost, and what you pay yourself."""

    remaining: float
    covered: Span
    to_pay: Span


class OfferOut(Schema):
    """One way to run the job. `assumed` names values that are assumptions, not published figures."""

    provider: str
    title: str
    gpu: str
    gpus: int
    memory_gb: float
    kind: PriceKind
    region: str | None
    hourly: Span
    cost: CostOut
    credit: CreditUseOut | None = Field(description="None: no credit is left at this provider.")
    hours: Span
    wait_hours: Span
    relaunches: int
    availability: Availability
    unattended: bool
    interactive: bool
    features: list[str]
    cautions: list[str]
    assumed: list[str]
    stale: bool
    source: str
    read_on: date
    recommended: bool
    reasons: list[str]
    store: StoreOut | None = Field(
        None, description="What the files of the job would go through. None: nothing is set up for it yet."
    )
    limits: LimitsOut = Field(description="The limits of a job that takes this offer and sets none itself.")

    @classmethod
    def of(cls, offer: Offer) -> "OfferOut":
        shown = {name: getattr(offer, name) for name in cls.model_fields if name not in ("limits", "store")}
        limits = default_limits(offer.hourly.likely, offer.cost.total.likely)
        return cls.model_validate({**shown, "limits": limits})


class ExcludedOut(Schema):
    """An option that is not offered, and why."""

    provider: str
    title: str
    gpu: str
    gpus: int
    kind: PriceKind
    reason: str


class OffersOut(Schema):
    """The offers, recommended offer first. `usual`: usual provider for this kind of work (`archetype`)."""

    need: NeedOut
    offers: list[OfferOut]
    excluded: list[ExcludedOut]
    archetype: str | None
    usual: str | None


class PriceOut(Schema):
    provider: str
    gpu: str
    gpus: int
    memory_gb: float
    region: str | None
    kind: PriceKind
    hourly: float
    hourly_high: float | None
    source: str
    read_on: date
    effective_from: date | None
    assumed: bool
    stale: bool


class ProviderOut(Schema):
    """Facts about a provider. `assumed` names values that are assumptions, not published figures."""

    name: str
    title: str
    source: str
    read_on: date
    through: str | None
    billing: Granularity
    start_up_seconds: Span
    queue_seconds: Span
    storage_gb_month: Span
    egress_gb: Span
    cpu_and_memory_hourly: Span
    longest_hours: float | None
    pause: bool
    unattended: bool
    interactive: bool
    runs_scripts: bool
    multi_node: bool
    regions: list[str]
    features: list[str]
    notes: list[str]
    assumed: list[str]


class PricesOut(Schema):
    prices: list[PriceOut]
    providers: list[ProviderOut]
    stale_after_days: int


router = APIRouter(tags=["offers"])


_SHOWN = ProviderOut.model_fields.keys() - {"name"}


@router.get("/prices")
async def list_prices(prices: CurrentPrices) -> PricesOut:
    """List all prices behind the offers, with their source and date."""
    at = now()
    return PricesOut(
        prices=[
            PriceOut(
                **row.model_dump(include=set(PriceOut.model_fields)),
                assumed=row.assumed,
                stale=row.stale(at),
            )
            for row in prices.rows
        ],
        providers=[
            ProviderOut.model_validate({**facts.model_dump(include=_SHOWN), "name": name})
            for name, facts in prices.providers.items()
        ],
        stale_after_days=STALE_AFTER.days,
    )


@router.post("/offers")
async def make_offers(
    body: AskForOffers,
    principal: CurrentPrincipal,
    session: ReadSession,
    prices: CurrentPrices,
    settings: CurrentSettings,
) -> OffersOut:
    """List where a job could run and how much it would cost. Nothing is started or stored."""
    need = _need(body)
    given = body.constraints
    stated = await remaining_credits(session, principal.id)
    asked = given.constraints(given.providers, given.engines, stated)
    found = offers(need, prices=prices, now=now(), constraints=asked)
    stores = await read_stores(session, settings)
    return OffersOut(
        need=NeedOut.model_validate(need),
        offers=[_offer_out(offer, prices, stores) for offer in found.offers],
        excluded=[ExcludedOut.model_validate(each) for each in found.excluded],
        archetype=found.choice.archetype if found.choice else None,
        usual=found.choice.usual if found.choice else None,
    )


def _offer_out(offer: Offer, prices: PriceTable, stores: Stores) -> OfferOut:
    shown = OfferOut.of(offer)
    if offer.provider == "local":
        return shown
    target = prices.providers[offer.provider].through or offer.provider
    return shown.model_copy(update={"store": stores.best(target)})


def _need(body: AskForOffers) -> Need:
    field = "needs" if body.requirements is None else "requirements"
    try:
        if body.needs is not None and body.requirements is None:
            return body.needs.need()
        if body.requirements is not None and body.needs is None:
            return Need.from_requirements(body.requirements)
    except ValueError as problem:
        raise InvalidInput.for_field(field, str(problem), code=code_of(problem)) from None
    raise InvalidInput.for_field(
        "needs", "Send exactly one of requirements and needs.", code="contradictory_fields"
    )
