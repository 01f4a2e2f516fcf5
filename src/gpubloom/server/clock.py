"""The one place that reads the wall clock, so that every stored time is UTC."""

from datetime import UTC, datetime


def now() -> datetime:
    """The current time, aware and in UTC."""
    return datetime.now(UTC)
