"""The upload queue of one attempt: the addresses in the mailbox, and upload batches that are sent in order.

A slot is only ever written with the same bytes: a batch lies on disk, with the state that holds once it is
sent, before it is sent. An agent that was killed in between sends that batch again first.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.agent.remote.link import Link, Rejected, Unavailable
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.sync.upload_batch import UploadBatch

_LOOK_SECONDS = 60.0
# Newer addresses live longer: whenever the receiver goes away, those of this hour are here.
_REREAD_SECONDS = 3600.0


class NoSlot(Exception):
    """There is no address for the next batch, until the mailbox is rewritten."""


class Outbox:
    """`folder` keeps what must survive this process: the mailbox, the state, the batch to be sent."""

    def __init__(
        self,
        folder: Path,
        link: Link,
        mailbox_address: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._link, self._clock = folder, link, clock
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._mailbox = read_json_object(folder / "mailbox.json") or {}
        self._bootstrap = mailbox_address
        self._read_at: float | None = None
        self._short_since: float | None = None
        kept = read_json_object(folder / "state.json") or {"next": 1, "state": {}, "ended": False}
        self._next, self.state, self.is_over = int(kept["next"]), kept["state"], bool(kept["ended"])
        # Sent by an uploader that was killed before it could delete the file.
        (folder / f"batch-{self._next - 1:08d}").unlink(missing_ok=True)

    @property
    def next_number(self) -> int:
        return self._next

    @property
    def size(self) -> int:
        return len(self._mailbox.get("slots", ()))

    @property
    def slots_left(self) -> int:
        """How many addresses for batches are left; some may have expired."""
        return max(0, int(self._mailbox.get("first", 1)) + self.size - self._next)

    @property
    def is_short(self) -> bool:
        """Less than half of the slots are left: the receiver has been away for a while."""
        return self.slots_left * 2 < self.size

    @property
    def takes_large(self) -> bool:
        """Whether large files may use slots: the last quarter is kept for the end of the run."""
        return self.slots_left * 4 > self.size

    @property
    def away_seconds(self) -> float:
        """How long the slots have been short: while the receiver renews them, some seconds at most."""
        if not self.is_short:
            self._short_since = None
            return 0.0
        if self._short_since is None:
            self._short_since = self._clock()
        return self._clock() - self._short_since

    def wants_mail(self) -> bool:
        """Whether it is time to look for a newer mailbox."""
        if self._read_at is None:
            return True
        since = self._clock() - self._read_at
        if self.is_short:
            # Soon after it became short, and every minute when the receiver sleeps for days.
            return since >= min(self.away_seconds, _LOOK_SECONDS)
        return since > min(float(self._mailbox.get("life_seconds", 0)) / 3, _REREAD_SECONDS)

    def read_mailbox(self) -> None:
        """Unavailable or Rejected when it cannot be read; the old one stays then."""
        addresses = [*([self._mailbox["mailbox"]] if self._mailbox else []), self._bootstrap]
        for last, address in enumerate(addresses, start=1):
            try:
                found = json.loads(self._link.get(address))
                break
            except Rejected:
                if last == len(addresses):
                    raise
            except ValueError:
                raise Unavailable("the list of upload URLs is damaged") from None
        self._read_at = self._clock()
        if found["serial"] != self._mailbox.get("serial"):
            self._mailbox = found
            replace_file(self._folder / "mailbox.json", json.dumps(found))
            (self._folder / "mailbox.json").chmod(0o600)

    def read_control(self) -> Mapping[str, Any] | None:
        """What the run is told; None when the mailbox was never read."""
        if not self._mailbox:
            return None
        try:
            content = json.loads(self._link.get(self._mailbox["control"]))
        except ValueError:
            return None
        return content if isinstance(content, dict) else None

    def begin(self, state: Mapping[str, Any]) -> None:
        """The state before the first batch."""
        replace_file(self._folder / "state.json", json.dumps({"next": 1, "state": state, "ended": False}))
        self.state = dict(state)

    def has_batch(self) -> bool:
        return self._outgoing().exists()

    def pack(self, batch: UploadBatch, state: Mapping[str, Any]) -> None:
        """Store a batch to be sent. `state`: what `self.state` is once it is sent."""
        assert batch.number == self._next
        after = json.dumps({"next": self._next + 1, "state": state, "ended": batch.ended})
        replace_file(self._folder / "state-after.json", after)
        temporary = self._folder / ".outgoing.tmp"
        temporary.write_bytes(batch.to_bytes())
        temporary.replace(self._outgoing())

    def send(self) -> None:
        """Send the batch that is stored. NoSlot, Unavailable: it stays there."""
        outgoing, after = self._outgoing(), read_json_object(self._folder / "state-after.json")
        assert after is not None
        self._deliver(outgoing.read_bytes())
        replace_file(self._folder / "state.json", json.dumps(after))
        self._next, self.state, self.is_over = after["next"], after["state"], after["ended"]
        outgoing.unlink()

    def _deliver(self, body: bytes) -> None:
        try:
            self._link.put(self._slot(), body)
        except Rejected:
            # Expired, most likely. A newer mailbox has newer addresses; without one, wait.
            serial = self._mailbox.get("serial")
            self.read_mailbox()
            if self._mailbox.get("serial") == serial:
                raise NoSlot("the bucket no longer accepts the presigned upload URLs") from None
            try:
                self._link.put(self._slot(), body)
            except Rejected:
                raise NoSlot("the bucket does not accept the presigned upload URLs") from None

    def _slot(self) -> str:
        index = self._next - int(self._mailbox.get("first", 1))
        slots = self._mailbox.get("slots", ())
        if not 0 <= index < len(slots):
            raise NoSlot("all presigned upload URLs are used")
        return str(slots[index])

    def _outgoing(self) -> Path:
        return self._folder / f"batch-{self._next:08d}"
