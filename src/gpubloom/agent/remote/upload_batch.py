"""One upload batch: a line of JSON that describes the bytes behind it. Both sides use this file."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from gpubloom.errors import InputError

VERSION = 1
# A header of many small files is some hundred kilobytes.
_LONGEST_HEADER = 16 << 20

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
        """ValueError when it is not what was sent."""
        line, newline, body = content.partition(b"\n")
        digest, _, text = line.partition(b" ")
        if not newline or len(line) > _LONGEST_HEADER or hashlib.sha256(text).hexdigest().encode() != digest:
            raise InputError("damaged_batch", "the header is damaged")
        header = json.loads(text)
        if header["v"] > VERSION:
            raise InputError(
                "newer_version",
                f"the batch has version {header['v']}, but this program reads only up to version "
                f"{VERSION}; update gpubloom",
            )
        if hashlib.sha256(body).hexdigest() != header["sha256"]:
            raise InputError("damaged_batch", "the content is damaged")
        return cls(
            job_id=str(header["job"]),
            attempt=int(header["attempt"]),
            number=int(header["number"]),
            next_in=float(header["next_in"]),
            entries=header["entries"],
            body=body,
            ended=bool(header["ended"]),
            tree=header["tree"],
        )
