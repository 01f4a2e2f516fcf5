"""Places that seemed free when they were looked up, and may be taken a second later."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gpubloom.providers.faults import Fault
from gpubloom.providers.rented import Instance

Place = TypeVar("Place")


async def first_with_room(
    places: Sequence[Place], launch: Callable[[Place], Awaitable[Instance]]
) -> Instance:
    """A machine in the first place that has one. The fault of the last: none has."""
    *others, last = places
    for place in others:
        try:
            return await launch(place)
        except Fault as fault:
            if fault.kind != "no_capacity":
                raise
    return await launch(last)
