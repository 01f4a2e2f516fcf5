"""The mailbox: how an agent without an address and without a key gets fresh addresses."""

import json
import time
from collections.abc import Callable

from gpubloom.storage.layout import JobLayout
from gpubloom.storage.run_store import LONGEST_LIFE_SECONDS, RunStore

# Enough for a week without a receiver (`agent.remote.outbox`).
SLOTS = 1024
# How long the receiver may be away. These addresses allow writing batches of one attempt, and no more.
SLOT_LIFE_SECONDS = LONGEST_LIFE_SECONDS
REACH_LIFE_SECONDS = LONGEST_LIFE_SECONDS
# Whenever the receiver goes away, the addresses that are out there are at most so old.
_RENEW_SECONDS = 6 * 3600.0


class Mailbox:
    """Offers upload addresses for the next numbers; renewed before they are used up or too old.

    A renewal after a restart continues the serial, so that the agent sees that it is new.
    """

    def __init__(
        self,
        store: RunStore,
        layout: JobLayout,
        *,
        slots: int = SLOTS,
        slot_life_seconds: float = SLOT_LIFE_SECONDS,
        reach_life_seconds: float = REACH_LIFE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._layout, self._clock = store, layout, clock
        self._slots, self._slot_life, self._reach_life = slots, slot_life_seconds, reach_life_seconds
        self._first = 0
        self._written_at = -1e9
        self._serial: int | None = None

    def address(self) -> str:
        """Where an agent reads it."""
        return self._store.addresses("GET", [self._layout.mailbox], self._reach_life)[0]

    def renew(self, next_number: int) -> bool:
        """Rewrites the mailbox if half of its slots are used or it has aged; True when it did."""
        is_used = next_number - self._first >= self._slots // 2
        is_old = self._clock() - self._written_at >= min(self._slot_life / 2, _RENEW_SECONDS)
        if self._first and not is_used and not is_old:
            return False
        self.write(next_number)
        return True

    def write(self, next_number: int) -> None:
        """Offers slots from this number on."""
        if self._serial is None:
            before = self._store.get(self._layout.mailbox)
            self._serial = 0 if before is None else int(json.loads(before)["serial"])
        names = [self._layout.slot(next_number + index) for index in range(self._slots)]
        mailbox, control = self._store.addresses(
            "GET", [self._layout.mailbox, self._layout.control], self._reach_life
        )
        content = {
            "v": 1,
            "serial": self._serial + 1,
            "attempt": self._layout.attempt,
            "first": next_number,
            "slots": self._store.addresses("PUT", names, self._slot_life),
            "mailbox": mailbox,
            "control": control,
            "life_seconds": self._slot_life,
        }
        written_at = self._clock()
        self._store.put(self._layout.mailbox, json.dumps(content).encode())
        self._serial += 1
        self._first, self._written_at = next_number, written_at
