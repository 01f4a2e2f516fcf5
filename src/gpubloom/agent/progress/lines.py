"""Bytes of output to lines that can be read.

Bars rewrite theirs with \\r, terminals are sent colours, launchers put the rank in front.
"""

import re

LONGEST_LINE = 2_000
# What is kept of a line that has not ended yet.
_LONGEST_REST = 8_192
_ENDS = re.compile(r"[\r\n\x08]+")
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,16}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][AB0]|[=>78])")
# torchrun, torchtune, torchtitan, mpirun, Ray.
_RANK = re.compile(
    r"^\s*(?:\[(?:rank|trainer|default)?\s?(?P<a>\d{1,5})(?:\|\d{1,5})?\]:\s?"
    r"|\[\d{1,5},(?P<b>\d{1,5})\]<std(?:out|err)>:\s?"
    r"|\((?:[A-Za-z]\w{0,40} )?(?:pid|rank)=(?P<c>\d{1,9})[^)]{0,60}\)\s?)"
)


class Lines:
    """Takes output in pieces of any size; what is cut in the middle waits for its rest."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> list[str]:
        whole = self._rest + data
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r"), whole.rfind(b"\x08")) + 1
        self._rest = whole[end:][-_LONGEST_REST:]
        return _lines(whole[:end])

    def last(self) -> list[str]:
        """What came after the last line end, when nothing more will come."""
        rest, self._rest = self._rest, b""
        return _lines(rest)


def _lines(data: bytes) -> list[str]:
    parts = _ENDS.split(data.decode("utf-8", "replace"))
    return [line for part in parts if part and (line := clean(part[:LONGEST_LINE])) is not None]


def clean(line: str) -> str | None:
    """A line without colours and rank; None for ranks above 0: they say the same again."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    for _ in range(2):
        # [rank0]:[titan] …
        match = _RANK.match(line)
        if match is None:
            break
        rank = match["a"] or match["b"] or "0"
        if int(rank) > 0:
            return None
        line = line[match.end() :]
    return line.strip() or None
