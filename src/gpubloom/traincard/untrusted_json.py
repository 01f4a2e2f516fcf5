"""JSON that a stranger wrote: a browser, a job, a rented machine.

Python's own parser follows any depth until its stack ends (RecursionError, which no handler of wrong input
expects), and accepts NaN, which is not JSON. Here everything that is wrong is one error with one code.
"""

import json
import math
import re
from typing import Any

from gpubloom.errors import InputError

MOST_DEPTH = 64
# Strings are taken out first: brackets in them nest nothing. One without an end goes up to the end of the
# text: otherwise each quote in it would be looked at as the beginning of another one.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[{]|[\]}]")


class UntrustedJsonError(InputError):
    """The content is not JSON, or larger or deeper than allowed."""

    def __init__(self, sentence: str) -> None:
        super().__init__("not_json", sentence)


def parse_untrusted(content: bytes | bytearray | str, *, most_bytes: int, finite: bool = True) -> Any:
    """The value. `finite`: NaN and the infinities are refused, also as 1e999."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else bytes(content)
    if len(data) > most_bytes:
        raise UntrustedJsonError(f"it is larger than {most_bytes:,} bytes")
    if _is_deeper(data, MOST_DEPTH):
        raise UntrustedJsonError(f"it is nested more than {MOST_DEPTH} levels deep")
    try:
        # Python would also guess UTF-16 and let surrogates through.
        text = data.decode()
        if finite:
            return json.loads(text, parse_constant=_refuse, parse_float=_finite)
        return json.loads(text)
    except UntrustedJsonError:
        raise
    except (ValueError, RecursionError) as problem:
        # The position and the reason; never the content.
        where = f" at character {problem.pos:,}" if isinstance(problem, json.JSONDecodeError) else ""
        raise UntrustedJsonError(f"it cannot be read as JSON{where}") from None


def _is_deeper(data: bytes, most: int) -> bool:
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", data)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > most:
            return True
    return False


def _refuse(name: str) -> None:
    raise UntrustedJsonError(f"{name} is not a number in JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise UntrustedJsonError("it has a number that is too large")
    return value
