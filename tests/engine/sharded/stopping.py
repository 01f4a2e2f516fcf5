"""Ends a run at the step that STOP_AT names, as if a signal had come."""

import os
from collections.abc import Callable

from gpubloom.engine.session import Session


def stop_at(session: Session) -> Callable[[], str | None]:
    asked = 0

    def stop() -> str | None:
        nonlocal asked
        asked += 1
        # Asked once before the first step, then after each; a resumed run has five behind it.
        steps = asked - 1 + (int(os.environ["STOP_AT"]) - 5 if session.resuming else 0)
        return "paused" if steps == int(os.environ["STOP_AT"]) else session.stop()

    return stop
