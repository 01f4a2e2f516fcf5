"""What Modal prints while it builds an image, given to the one who asked for the image.

The SDK hands build output to one object for the whole process. That object is replaced by one that prints
nothing and passes each line to the listener of the call that builds: a worker builds for many people at once,
and a context variable goes with each call, into the SDK's own thread as well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

Listener = Callable[[str], None]
_listener: ContextVar[Listener | None] = ContextVar("modal_build_listener", default=None)


@contextmanager
def listening_to_build(listener: Listener) -> Iterator[None]:
    """Calls `listener` with each line that builds print which are started within."""
    _pass_on_output()
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@cache
def _pass_on_output() -> None:
    """Once per process. A version of the SDK without these names builds all the same, without a log."""
    try:
        from modal._output.manager import DisabledOutputManager
        from modal.output import OutputManager
    except ImportError:
        return

    class PassedOn(DisabledOutputManager):
        async def put_streaming_log(self, log: Any, prefix: str = "") -> None:
            listener = _listener.get()
            if listener is not None:
                for line in str(log.data).splitlines():
                    if line.strip():
                        listener(line)

    OutputManager._set(PassedOn())
