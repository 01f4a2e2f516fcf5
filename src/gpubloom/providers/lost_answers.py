"""What became of a launch whose answer was lost on the way: it is looked for before anybody asks again."""

from collections.abc import Awaitable, Callable

from gpubloom.providers.faults import Fault
from gpubloom.providers.rented import Instance

# A service's list can be some seconds behind.
_LOOKS = 3


async def look_for(
    find: Callable[[], Awaitable[Instance | None]], pause: Callable[[], Awaitable[None]], lost: Fault
) -> Instance:
    """The machine of a launch that was not answered, or the fault that hid it."""
    for _ in range(_LOOKS):
        await pause()
        try:
            found = await find()
        except Fault as fault:
            if not fault.passes:
                raise
            continue
        if found is not None:
            return found
    raise lost
