"""What the agent says of the start of its job, until its first batch: downloads, then the training process.

The lines are those of the script that prepared the machine, in the same file where there was one
(BLOOM_REPORT), so that whoever reads sees the whole start (`gpubloom.providers.start_report`). Each line is
sent at once, and only to the address of this report; that it cannot be sent never holds up a job.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from gpubloom.agent.remote.link import Link, Rejected, StoreLink, Unavailable

VARIABLE = "BLOOM_REPORT"
_SECONDS = 10.0
_MOST_BYTES = 60_000


class StartReport:
    """`address`: where it is sent to; empty: nobody reads it."""

    def __init__(self, path: Path, address: str, link: Link, clock: Callable[[], float] = time.time) -> None:
        self._path, self._address, self._link, self._clock = path, address, link, clock

    @classmethod
    def of_machine(cls, folder: Path, address: str) -> "StartReport":
        """The report of this machine's start, or a new one in `folder`."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path) if path else folder / "report", address, StoreLink(_SECONDS))

    def begin(self, stage: str, text: str) -> None:
        self._write(stage, "+", text)

    def tell(self, stage: str, text: str) -> None:
        self._write(stage, ".", text)

    def done(self, stage: str, text: str) -> None:
        self._write(stage, "-", text)

    def failed(self, stage: str, code: str, sentence: str) -> None:
        self._write(stage, "!", f"{code} {sentence}")

    def _write(self, stage: str, mark: str, text: str) -> None:
        if not self._address:
            return
        line = f"{int(self._clock())} {stage} {mark} {' '.join(text.split())}\n"
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        try:
            content = self._path.read_bytes()
        except OSError:
            # A disk that is full: the last line at least.
            content = line.encode()
        if not content.endswith(line.encode()):
            content += line.encode()
        with contextlib.suppress(Unavailable, Rejected):
            self._link.put(self._address, content[-_MOST_BYTES:])
