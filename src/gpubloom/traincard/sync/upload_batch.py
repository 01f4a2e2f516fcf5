"""One upload batch: a line of JSON that describes the bytes behind it. Both sides use this file."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from gpubloom.errors import InputError
from gpubloom.traincard.untrusted_json import UntrustedJsonError, parse_untrusted

VERSION = 1
# A header of many small files is some hundred kilobytes.
_LONGEST_HEADER = 16 << 20
_LONGEST_PROMISE_SECONDS = 24 * 3600.0

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class UploadBatch:
    """`next_in`: seconds after which, at most, the next one comes. `ended`: there is none after this one.

    An entry with a `size` has that many bytes of the body, in the order of the entries, unless its kind has
    no content (`done`).
    """

    job_id: str
    attempt: int
    number: int
    next_in: float
    entries: Sequence[Entry] = ()
    body: bytes = b""
    ended: bool = False
    # Only of the last one: size and hash of every file of the run.
    tree: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        header = {
            "v": VERSION,
            "job": self.job_id,
            "attempt": self.attempt,
            "number": self.number,
            "next_in": self.next_in,
            "ended": self.ended,
            "sha256": hashlib.sha256(self.body).hexdigest(),
            "entries": list(self.entries),
            "tree": dict(self.tree),
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        # The header's own hash: a damaged name or offset must not be taken for a true one.
        return hashlib.sha256(text).hexdigest().encode() + b" " + text + b"\n" + self.body

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """ValueError when it is not what an agent sends. The form of the entries is not looked at."""
        line, newline, body = content[: _LONGEST_HEADER + 1].partition(b"\n")
        digest, _, text = line.partition(b" ")
        if not newline or hashlib.sha256(text).hexdigest().encode() != digest:
            raise InputError("damaged_batch", "the header is damaged")
        body = content[len(line) + 1 :]
        header = _parse(text)
        if hashlib.sha256(body).hexdigest() != header["sha256"]:
            raise InputError("damaged_batch", "the content is damaged")
        return cls(
            job_id=header["job"],
            attempt=header["attempt"],
            number=header["number"],
            next_in=float(header["next_in"]),
            entries=header["entries"],
            body=body,
            ended=header["ended"],
            tree=header["tree"],
        )


_FIELDS: dict[str, tuple[type, ...]] = {
    "v": (int,),
    "job": (str,),
    "attempt": (int,),
    "number": (int,),
    "next_in": (int, float),
    "ended": (bool,),
    "sha256": (str,),
    "entries": (list,),
    "tree": (dict,),
}


def _parse(text: bytes) -> dict[str, Any]:
    try:
        header = parse_untrusted(text, most_bytes=_LONGEST_HEADER, finite=False)
    except UntrustedJsonError as problem:
        raise InputError("damaged_batch", f"the header is damaged: {problem}") from None
    if not isinstance(header, dict):
        raise InputError("damaged_batch", "the header is not a JSON object")
    if isinstance(version := header.get("v"), int) and version > VERSION:
        raise InputError(
            "newer_version",
            f"the batch has version {version}, but this program reads only up to version {VERSION}; "
            "update gpubloom",
        )
    # A boolean is an int in Python, not in a batch.
    wrong = [name for name, kinds in _FIELDS.items() if type(header.get(name)) not in kinds]
    if wrong:
        raise InputError("damaged_batch", f"the header has no valid {wrong[0]}")
    if not 0 <= header["next_in"] <= _LONGEST_PROMISE_SECONDS:
        raise InputError("damaged_batch", "the next batch is announced for a time that no agent announces")
    for facts in header["tree"].values():
        if type(facts) is not list or [type(fact) for fact in facts] != [int, str]:
            raise InputError("damaged_batch", "the list of files has no valid size and hash of a file")
    return header
