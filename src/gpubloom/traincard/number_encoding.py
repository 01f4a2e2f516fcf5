"""From what a training loop hands over to JSON, and back.

The training thread never waits here: a value that lives on a device is only *kept* by the caller (`keep`),
and read by the writer thread (`number`).
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

Number = int | float

PLAIN_TYPES = frozenset({float, int, bool})
_LARGEST = int(sys.float_info.max)

# The names that stand for these numbers in JSON, wherever they are stored or shown.
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# The handle by which CUDA knows the stream that everybody uses who does not choose one.
_DEFAULT_STREAM = 0


class NotANumberError(ValueError):
    """A reported value that cannot be recorded; the message says why."""


class OnDevice:
    """A tensor on an accelerator, whose value the writer thread fetches once it is there.

    CUDA works behind the caller's back: when `metric` is called, the kernels that compute the value are
    only queued, and `.item()` on the training thread would wait for all of them. So the caller only keeps
    the tensor. The writer records an event behind everything queued so far on the default stream and looks
    again until the event is done; for a value computed on another stream the caller has to record the event
    itself, for only it knows the stream (recording queues, it does not wait). Only then is the value
    copied, on a stream of our own: on the default stream the copy would line up behind the next step's
    kernels, and behind a hung collective it would never return, just when a last record is needed most.

    One limit: while the training thread captures a CUDA graph in the (default) global mode, a copy by any
    thread breaks the capture; report after it, or capture with `capture_error_mode="thread_local"`.
    """

    __slots__ = ("_event", "_tensor", "_version")

    def __init__(self, tensor: Any) -> None:
        # detach: keeping a loss must not keep its graph, and with it a step's activations, alive.
        self._tensor = tensor.detach()
        # detach() shares the version counter, so a change in place after the call can be noticed.
        self._version = getattr(tensor, "_version", 0)
        self._event: Any = None
        if getattr(tensor, "is_cuda", False):
            cuda = sys.modules["torch"].cuda
            stream = cuda.current_stream(tensor.device)
            if stream.cuda_stream != _DEFAULT_STREAM:
                self._event = cuda.Event()
                self._event.record(stream)

    def ready(self, events: dict[Any, Any]) -> bool:
        """Whether `read` returns at once. `events`: one per device, shared by all values of a writer's turn.

        Without events (mps, xpu) the answer is yes, and `read` waits.
        """
        if not getattr(self._tensor, "is_cuda", False):
            return True
        if self._event is None:
            device = self._tensor.device
            if device not in events:
                cuda = sys.modules["torch"].cuda
                events[device] = cuda.Event()
                events[device].record(cuda.default_stream(device))
            self._event = events[device]
        return bool(self._event.query())

    def read(self) -> Number:
        if self._event is None:
            value: Number = self._tensor.item()
        else:
            cuda = sys.modules["torch"].cuda
            with cuda.stream(_own_stream(cuda, self._tensor.device)):
                value = self._tensor.item()
        if getattr(self._tensor, "_version", 0) != self._version:
            raise NotANumberError(
                "the tensor was changed in place after it was reported; report tensor.clone() instead"
            )
        return value


_streams: dict[Any, Any] = {}


def _own_stream(cuda: Any, device: Any) -> Any:
    if device not in _streams:
        _streams[device] = cuda.Stream(device)
    return _streams[device]


class Unreadable:
    """Takes the place of a value that cannot become a number, with the reason for the log."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def keep(value: Any) -> Any:
    """What the calling thread does with a value: cheap, never waits for a device, never raises."""
    if type(value) in PLAIN_TYPES:
        return value
    try:
        if hasattr(value, "detach"):
            # On the host there is nothing to wait for, and reading now is exact whatever happens to it later.
            return value.item() if value.device.type == "cpu" else OnDevice(value)
        if hasattr(value, "item"):
            return value.item()
        return float(value)
    except Exception as problem:  # noqa: BLE001 - any library's number type may fail in any way; the loop goes on
        return Unreadable(f"{type(problem).__name__}: {problem}")


def number(kept: Any) -> Number:
    """The number of a kept value, on the writer thread; NotANumberError says why there is none."""
    if type(kept) is int and abs(kept) > _LARGEST:
        raise NotANumberError("the number is too large for a chart")
    if type(kept) in PLAIN_TYPES:
        return kept  # type: ignore[no-any-return]
    if isinstance(kept, Unreadable):
        raise NotANumberError(kept.reason)
    if isinstance(kept, OnDevice):
        try:
            kept = kept.read()
        except RuntimeError as problem:
            raise NotANumberError(str(problem)) from problem
    if isinstance(kept, (int, float)):
        return kept
    raise NotANumberError(f"a {type(kept).__name__} is not a number")


def encode_number(value: Number) -> Number | str:
    """A number as JSON may hold it: NaN and the infinities become the strings of the protocol."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decode_number(value: Any) -> Any:
    """The number that a JSON value stands for; anything else unchanged."""
    if type(value) is int and not -_LARGEST <= value <= _LARGEST:
        # JSON knows whole numbers of any length.
        return math.inf if value > 0 else -math.inf
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


def finite_or_none(value: Number) -> Number | None:
    """A number as JSON may hold it where NaN and the infinities are null."""
    return value if isinstance(value, int) or math.isfinite(value) else None


def plain(
    value: Any, *, number: Callable[[Number], Any] = encode_number, text: Callable[[str], str] = str
) -> Any:
    """Any value as JSON can hold it. What JSON has no word for becomes its text, never an error.

    `number` says what numbers become, `text` what texts and keys become.
    """
    if isinstance(value, int) and abs(value) > _LARGEST:
        return number(math.inf if value > 0 else -math.inf)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return {text(str(key)): plain(inner, number=number, text=text) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner, number=number, text=text) for inner in value]
    kept = keep(value)
    return plain(kept, number=number, text=text) if type(kept) in PLAIN_TYPES else text(str(value))


def _make_encoder() -> Callable[[Any], str]:
    """One encoder for all lines: `JSONEncoder.encode` makes a new one each time, as long work as a line."""
    standard = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return standard.encode
    pieces = make(
        None, standard.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
    )

    def encode(value: Any) -> str:
        # Of a text alone it makes no pieces.
        return "".join(pieces(value, 0)) if isinstance(value, (dict, list)) else standard.encode(value)

    return encode


_encode = _make_encoder()


def to_json(value: Any) -> str:
    """Compact JSON in one line. Escapes all but ASCII, so that even a lone surrogate makes a valid line."""
    return _encode(value)
