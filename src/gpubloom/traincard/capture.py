"""What a process prints and logs, as lines for its Reporters; the terminal gets everything as before.

The streams stay the objects that they are, so `isatty`, progress bars and handlers that were made before see
no difference: only their `write` is replaced. `logging` is watched where a record meets its handlers, not by
a handler: one on the root logger would keep `logging.basicConfig` from working. What a handler prints while
a record is handled is that record, and is taken once.

The calling thread only appends to a queue. `OutputLines` makes lines of it on the writer thread: the last
state of a progress bar, no colours, no secrets, and no more than a run directory should hold.
"""

import contextlib
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.redaction import redact

Listener = Callable[[str, str, str], None]
"""Called with the source (stdout, stderr, logging), the text, and the level."""

_inside_logging = threading.local()
_lock = threading.RLock()
_listeners: tuple[Listener, ...] = ()
_patched: list[tuple[Any, Any]] = []
_call_handlers = logging.Logger.callHandlers

# A run that prints more than this keeps what it printed first, and of the rest a little at a time.
_BURST_BYTES = 8 << 20
_BYTES_PER_SECOND = 2048
_LONGEST_PART = 16_384
# As tqdm draws it: name, percent, bar, done/total and times.
_BAR = re.compile(r"(?P<name>.*?)\s*\d{1,3}%\|[^|]*\|\s*(?P<done>[\d.]+\w?)/(?P<total>[\d.]+\w?)\s*\[")
_MOST_BARS = 1_000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def is_wanted(run_dir: Path, environment: Mapping[str, str]) -> bool:
    """Whether a Reporter has to capture: nobody else keeps the output of this process, or turned it off."""
    if environment.get("BLOOM_CAPTURE", "").lower() in {"off", "0"} or environment.get("BLOOM_JOB_ID"):
        return False
    with contextlib.suppress(OSError, ValueError, AttributeError):
        # `bloom train` writes the output of its child to this file already.
        kept = (run_dir / "logs" / "output.log").stat()
        printed = os.fstat(sys.stdout.fileno())
        return (kept.st_dev, kept.st_ino) != (printed.st_dev, printed.st_ino)
    return True


def start(listener: Listener) -> None:
    """Lets a Reporter hear what this process prints and logs."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)
        if len(_listeners) > 1:
            return
        for source, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            _patch(source, stream)
        logging.Logger.callHandlers = _heard_call_handlers  # type: ignore[assignment,method-assign]


def stop(listener: Listener) -> None:
    """The last one restores everything; a `write` that somebody replaced after us stays."""
    global _listeners
    with _lock:
        _listeners = tuple(one for one in _listeners if one != listener)
        if _listeners:
            return
        while _patched:
            stream, write = _patched.pop()
            if vars(stream).get("write") is write:
                del stream.write
        if logging.Logger.callHandlers is _heard_call_handlers:
            logging.Logger.callHandlers = _call_handlers  # type: ignore[method-assign]


def forget_after_fork() -> None:
    """In a forked child nobody listens. Takes no lock: a thread that is not here may have held it."""
    global _listeners
    _listeners = ()


def _patch(source: str, stream: Any) -> None:
    # A stream without attributes of its own cannot be heard; a process without a terminal has none at all.
    if not hasattr(stream, "__dict__") or "write" in vars(stream):
        return
    original = stream.write

    def write(text: str, /) -> Any:
        written = original(text)
        if _listeners and not getattr(_inside_logging, "depth", 0) and type(text) is str:
            for listener in _listeners:
                listener(source, text, "info")
        return written

    with contextlib.suppress(AttributeError, TypeError):
        stream.write = write
        _patched.append((stream, write))


def _heard_call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
    depth = getattr(_inside_logging, "depth", 0)
    _inside_logging.depth = depth + 1
    try:
        _call_handlers(logger, record)
    finally:
        _inside_logging.depth = depth
    if depth == 0 and _listeners:
        level = "error" if record.levelno >= logging.ERROR else "info"
        text = _text_of(record)
        for listener in _listeners:
            listener("logging", text, "warning" if record.levelno == logging.WARNING else level)


def _text_of(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    except Exception:  # noqa: BLE001 - a wrong format string; logging itself has complained about it
        text = str(record.msg)
    return text if record.name == "root" else f"{record.name}: {text}"


class OutputLines:
    """Makes lines of what was written, in pieces of any size; runs on the writer thread."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._bars: dict[tuple[str, str], str] = {}
        self._finished_bars: set[tuple[str, str]] = set()
        self._allowed = float(_BURST_BYTES)
        self._counted_at = time.monotonic()
        self._left_out = 0

    def add(self, source: str, text: str, level: str) -> list[dict[str, Any]]:
        """The fields of the log events that are complete now."""
        if source == "logging":
            return self._fields(source, [text], level)
        *whole, rest = (self._parts.get(source, "") + text).split("\n")
        # A progress bar returns to the start of its line again and again: the last state counts.
        body = rest.rstrip("\r")
        returned = "\r" if len(body) < len(rest) else ""
        self._parts[source] = body.rpartition("\r")[2][-_LONGEST_PART:] + returned
        return self._fields(source, whole, level)

    def rest(self) -> list[dict[str, Any]]:
        """What was printed without an end of line, and how much was left out."""
        found = []
        for source, part in self._parts.items():
            found += self._fields(source, [part], "info")
        self._parts.clear()
        for (source, _), line in self._bars.items():
            found.append({"line": redact(line), "level": "info", "source": source})
        self._bars.clear()
        return found + self._said_left_out()

    def _fields(self, source: str, lines: list[str], level: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for line in lines:
            shown = _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip()
            if not shown or (source != "logging" and self._is_passing(source, shown)):
                continue
            if not self._has_room(len(shown)):
                self._left_out += 1
                continue
            found += self._said_left_out()
            found.append({"line": redact(shown), "level": level, "source": source})
        return found

    def _is_passing(self, source: str, line: str) -> bool:
        """Whether this is a state of a progress bar that later ones replace.

        Bars below each other end a line to move between them: each state is then a line of its own.
        """
        if "%|" not in line or (bar := _BAR.match(line)) is None:
            return False
        known = (source, f"{bar['name']}/{bar['total']}")
        self._bars.pop(known, None)
        if bar["done"] == bar["total"]:
            is_repeated = known in self._finished_bars
            self._finished_bars.add(known)
            return is_repeated
        self._finished_bars.discard(known)
        self._bars[known] = line
        if len(self._bars) + len(self._finished_bars) > _MOST_BARS:
            self._bars.clear()
            self._finished_bars.clear()
        return True

    def _has_room(self, size: int) -> bool:
        now = time.monotonic()
        self._allowed = min(_BURST_BYTES, self._allowed + (now - self._counted_at) * _BYTES_PER_SECOND)
        self._counted_at = now
        if size > self._allowed:
            return False
        self._allowed -= size
        return True

    def _said_left_out(self) -> list[dict[str, Any]]:
        count, self._left_out = self._left_out, 0
        if not count:
            return []
        sentence = f"{count:,} lines of output were left out here: the process printed too much to keep"
        return [{"line": sentence, "level": "warning", "source": "capture"}]
