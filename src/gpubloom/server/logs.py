"""How the server writes its log: one line an event on standard error, for people or for machines."""

import contextlib
import logging
import sys
from typing import Literal

import structlog


def configure_logs(form: Literal["text", "json"]) -> None:
    """Set up structlog and let other libraries' warnings through."""
    renderer = (
        structlog.processors.JSONRenderer()
        if form == "json"
        # The default one prints every local variable, passwords included, and takes most of a minute.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # The console renderer draws tracebacks itself.
            structlog.processors.format_exc_info if form == "json" else _printable,
            renderer,
        ],
        logger_factory=lambda *arguments: _Lines(),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


class _Lines:
    """Writes lines to standard error as it is now. A log that cannot be written must not end a job."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(message, file=sys.stderr, flush=True)  # noqa: T201 - this is the log

    log = debug = info = warning = warn = error = critical = exception = fatal = failure = err = msg


def _printable(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Control characters as their escapes: what a request sent must not begin a line or colour a terminal."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(
                part if part.isprintable() else part.encode("unicode_escape").decode() for part in value
            )
    return event
