"""A figure that is not known to the last digit: at least, likely, at most."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """`low <= likely <= high`."""

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError(f"A span goes up: {self.low}, {self.likely}, {self.high} does not.")

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
