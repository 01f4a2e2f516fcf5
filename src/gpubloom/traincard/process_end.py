"""How a process ends, seen by its Reporters: SIGTERM, an uncaught exception, the interpreter's exit, a fork.

Each is noticed, recorded, and then goes on as if nobody had looked: handlers that were there before are
called.
"""

import atexit
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol


class ProcessEndListener(Protocol):
    """What a Reporter does when its process comes to an end."""

    def on_sigterm(self) -> None: ...
    def on_exception(self, problem: BaseException) -> None: ...
    def on_exit(self) -> None: ...
    def on_fork_in_child(self) -> None: ...


class ProcessEnd:
    """Watches the process on behalf of one Reporter."""

    def __init__(self, owner: ProcessEndListener) -> None:
        self._owner: ProcessEndListener | None = owner
        self.previous_sigterm: Callable[[int, FrameType | None], Any] | int | None = None
        self._watches_sigterm = False
        self._previous_excepthook = sys.excepthook

    @property
    def owner(self) -> ProcessEndListener | None:
        """The Reporter that this watches for; None after it stopped."""
        return self._owner

    def watch(self) -> None:
        assert self._owner is not None
        _watched.add(self)
        atexit.register(self._on_exit)
        self._previous_excepthook = sys.excepthook
        sys.excepthook = self._on_exception
        # Python allows signal handlers only in the main thread; elsewhere the other three ways still work.
        if threading.current_thread() is threading.main_thread():
            previous = signal.getsignal(signal.SIGTERM)
            # A handler that is not Python's (None) could not be called afterwards, and a process that ignores
            # SIGTERM is not preempted by it: neither is touched.
            if previous is not None and previous != signal.SIG_IGN:
                self.previous_sigterm = previous
                self._watches_sigterm = True
                signal.signal(signal.SIGTERM, self._on_sigterm)

    def stop(self) -> None:
        """Stops watching. Where somebody chained behind us, our link stays and only passes on."""
        self._owner = None
        _watched.discard(self)
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_excepthook
        if (
            self._watches_sigterm
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == self._on_sigterm
        ):
            signal.signal(signal.SIGTERM, self.previous_sigterm)
            self._watches_sigterm = False

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._owner is not None:
            self._owner.on_sigterm()
        previous = self.previous_sigterm
        if callable(previous):
            previous(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _on_exception(
        self, kind: type[BaseException], problem: BaseException, trace: TracebackType | None
    ) -> None:
        if self._owner is not None:
            self._owner.on_exception(problem)
        self._previous_excepthook(kind, problem, trace)

    def _on_exit(self) -> None:
        if self._owner is not None:
            self._owner.on_exit()

    def in_forked_child(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.on_fork_in_child()


_watched: weakref.WeakSet[ProcessEnd] = weakref.WeakSet()
_forking = threading.local()


def watching() -> list[ProcessEndListener]:
    """All in this process that still wait for its end: every Reporter that is not closed."""
    return [watcher.owner for watcher in list(_watched) if watcher.owner is not None]


def _hold_sigterm() -> None:
    # A child that is terminated right after the fork would lose the signal: Python forgets signals that
    # arrived for its own handlers before the child's interpreter was set up. Held back by the kernel, it
    # waits until the child has the handler again that it would have had without us.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if _watched else None


def _release_sigterm() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _silence_forked_child() -> None:
    try:
        handler = signal.getsignal(signal.SIGTERM)
        while isinstance(watcher := getattr(handler, "__self__", None), ProcessEnd):
            handler = watcher.previous_sigterm
            signal.signal(signal.SIGTERM, handler)
        for watcher in list(_watched):
            watcher.in_forked_child()
        _watched.clear()
    finally:
        _release_sigterm()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_silence_forked_child
    )
