"""What a GPU costs where: rows with a date and a source, and what is known of each service.

`prices.json` is shipped; a file of one's own (BLOOM_PRICES) and what live APIs said are merged over it. The
newest date wins, so an old file cannot hide a newer price. A figure that is not known to the last digit is a
Span: at least, likely, at most.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.errors import InputError

# A price that was read longer ago than this is shown, but marked.
STALE_AFTER = timedelta(days=30)
PriceKind = Literal["on_demand", "spot", "per_second", "monthly_units", "free"]
Availability = Literal["immediate", "queued", "unknown", "unavailable"]
Granularity = Literal["second", "minute", "hour"]
Amount: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]


@dataclass(frozen=True)
class Span:
    """`low <= likely <= high`."""

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise InputError(
                "invalid_price_span",
                "The low, likely and high value of a range must be in ascending order, not "
                f"{self.low}, {self.likely}, {self.high}.",
            )

    @classmethod
    def of(cls, value: float) -> "Span":
        """A figure that is known."""
        return cls(value, value, value)

    @classmethod
    def around(cls, value: float, low: float, high: float) -> "Span":
        """A figure, and the factors by which it may be less or more."""
        return cls(value * low, value, value * high)

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __mul__(self, other: "Span | float") -> "Span":
        """Of figures that are not negative."""
        by = other if isinstance(other, Span) else Span.of(other)
        return Span(self.low * by.low, self.likely * by.likely, self.high * by.high)

    def each(self, change: Callable[[float], float]) -> "Span":
        """Changed by a function that never falls."""
        return Span(change(self.low), change(self.likely), change(self.high))


class PricesProblem(InputError):
    """A price table that cannot be used; the message is a sentence."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Three(_Entry):
    """At least, likely, at most."""

    low: Amount
    likely: Amount
    high: Amount

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        if isinstance(value, list) and len(value) == 3:
            return dict(zip(("low", "likely", "high"), value, strict=True))
        return value

    @model_validator(mode="after")
    def _goes_up(self) -> "Three":
        if not self.low <= self.likely <= self.high:
            raise PydanticCustomError("invalid_price_span", "low, likely and high must be in ascending order")
        return self

    @property
    def span(self) -> Span:
        return Span(self.low, self.likely, self.high)


class PriceRow(_Entry):
    """One machine for an hour, in US dollars. `hourly` is for all its `gpus` together."""

    provider: Name
    gpu: Name
    gpus: int = Field(1, ge=1, le=1_024)
    most_gpus: int | None = Field(
        None,
        ge=1,
        le=1_024,
        description="Maximum number in one machine, if it differs from the provider's other GPUs.",
    )
    memory_gb: float = Field(gt=0, le=10_000, description="Nominal memory of one GPU.")
    region: Name | None = Field(
        None, description="Region of the price; none: the same in all regions, or not known."
    )
    kind: PriceKind
    hourly: Amount
    hourly_high: Amount | None = Field(None, description="Highest price, if the price is a range.")
    source: str = Field(min_length=1, max_length=500)
    read_on: date
    effective_from: date | None = None
    confidence: Literal["read", "unread"] = "read"
    availability: Availability | None = Field(
        None, description="Availability according to the provider's API; none: not queried."
    )

    @model_validator(mode="after")
    def _range_goes_up(self) -> "PriceRow":
        if self.hourly_high is not None and self.hourly_high < self.hourly:
            raise PydanticCustomError("invalid_price_span", "hourly_high is lower than hourly")
        return self

    @property
    def key(self) -> tuple[str, str, int, str, str | None]:
        """What makes two rows the same thing to buy."""
        return self.provider, self.gpu, self.gpus, self.kind, self.region

    def is_better_than(self, other: "PriceRow") -> bool:
        """Of two rows with one key: a machine that is free before others, then the cheaper one."""
        if self.availability != other.availability:
            return self.availability == "immediate"
        return self.hourly < other.hourly

    @property
    def assumed(self) -> bool:
        """The price is a guess: no source states it."""
        return self.confidence == "unread"

    def stale(self, now: datetime) -> bool:
        return now.astimezone(UTC).date() - self.read_on > STALE_AFTER

    @property
    def hourly_span(self) -> Span:
        high = self.hourly if self.hourly_high is None else self.hourly_high
        return Span(self.hourly, (self.hourly + high) / 2, high)


class ProviderFacts(_Entry):
    """A service: how it bills, how long it takes to start, what it can and cannot do."""

    title: Name
    source: str = Field(min_length=1, max_length=1_000)
    read_on: date
    through: Name | None = Field(
        None,
        description="Name of the tool that rents from this provider, if GPU Bloom does not do so directly.",
    )
    billing: Granularity
    start_up_seconds: Three
    queue_seconds: Three = Field(description="Waiting time for a machine, if availability is not known.")
    storage_gb_month: Three
    egress_gb: Three
    cpu_and_memory_hourly: Three = Field(
        Three(low=0, likely=0, high=0),
        description="Hourly price of CPU cores and memory beside each GPU, if they are billed separately.",
    )
    longest_hours: Amount | None = Field(None, description="Time limit of one run, in hours.")
    most_gpus: int | None = Field(
        None, ge=1, le=1_024, description="Maximum number of GPUs in one machine at the price per GPU."
    )
    pause: bool = False
    unattended: bool = Field(True, description="Whether jobs run without a person at a browser.")
    interactive: bool = False
    runs_scripts: bool = True
    multi_node: bool = False
    reliability: float = Field(
        gt=0, le=1, description="Estimated fraction of runs that end without a failure."
    )
    availability: Availability = "unknown"
    regions: tuple[Name, ...] = Field((), description="Parts of the world with machines; empty: not known.")
    region_factor: Three = Field(
        Three(low=1, likely=1, high=1), description="Price factor for choosing a region."
    )
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = Field((), description="Names of the fields whose values are assumptions.")

    @model_validator(mode="after")
    def _assumed_fields_exist(self) -> "ProviderFacts":
        unknown = set(self.assumed) - set(type(self).model_fields)
        if unknown:
            raise PydanticCustomError(
                "unknown_assumed_field", f"assumed contains unknown fields: {', '.join(sorted(unknown))}"
            )
        return self


class PriceTable(_Entry):
    """All that offers are made from."""

    providers: dict[Name, ProviderFacts]
    rows: tuple[PriceRow, ...]

    @model_validator(mode="after")
    def _providers_are_known(self) -> "PriceTable":
        unknown = sorted({row.provider for row in self.rows} - self.providers.keys())
        if unknown:
            raise PydanticCustomError(
                "unknown_provider",
                f"there are prices of {', '.join(unknown)}, but these providers are not described",
            )
        return self

    def with_rows(self, fresh: Iterable[PriceRow]) -> "PriceTable":
        """The same, with newer prices merged in. PricesProblem: one of a service that is not known."""
        try:
            return PriceTable(providers=self.providers, rows=merge(self.rows, fresh))
        except ValidationError as problem:
            raise PricesProblem(
                "prices_invalid", f"These prices cannot be used: {_sentence(problem)}."
            ) from None


class _OwnPrices(_Entry):
    """A file of one's own: prices that were agreed on, services that are not in ours."""

    providers: dict[Name, ProviderFacts] = {}
    rows: tuple[PriceRow, ...] = ()


def merge(rows: Iterable[PriceRow], fresh: Iterable[PriceRow]) -> tuple[PriceRow, ...]:
    """Both together. Of two about the same thing and the same time, the one read last stays; if they were
    read on one day, the fresh one."""
    kept: dict[object, PriceRow] = {}
    for row in (*rows, *fresh):
        key = row.key, row.effective_from
        if key not in kept or row.read_on >= kept[key].read_on:
            kept[key] = row
    return tuple(kept.values())


def in_force(rows: Iterable[PriceRow], now: datetime) -> tuple[PriceRow, ...]:
    """One row for each thing to buy: the last that has come into force. Announced ones wait."""
    today = now.astimezone(UTC).date()
    current: dict[object, PriceRow] = {}
    for row in rows:
        if row.effective_from is not None and row.effective_from > today:
            continue
        if row.key not in current or _since(row) >= _since(current[row.key]):
            current[row.key] = row
    return tuple(current.values())


def _since(row: PriceRow) -> date:
    return max(row.read_on, row.effective_from or row.read_on)


@cache
def shipped_prices() -> PriceTable:
    """The table that comes with the package."""
    text = (files("gpubloom.offers") / "prices.json").read_text(encoding="utf-8")
    return PriceTable.model_validate_json(text)


def load_prices(own: Path | None = None) -> PriceTable:
    """The shipped table with a file of one's own merged over it. PricesProblem: that file cannot be used."""
    table = shipped_prices()
    if own is None:
        return table
    try:
        found = _OwnPrices.model_validate(json.loads(own.read_text(encoding="utf-8")))
        return PriceTable(
            providers={**table.providers, **found.providers}, rows=merge(table.rows, found.rows)
        )
    except OSError as problem:
        raise PricesProblem(
            "unreadable_file", f"The price file {own} cannot be read: {problem.strerror}."
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise PricesProblem("not_json", f"The price file {own} is not valid JSON: {problem}.") from None
    except ValidationError as problem:
        raise PricesProblem(
            "prices_invalid", f"The price file {own} cannot be used: {_sentence(problem)}."
        ) from None


def _sentence(problem: ValidationError) -> str:
    first = problem.errors()[0]
    field_path = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    return f"{field_path}: {said}" if field_path else said
