"""How an adapter obeys control.json: what was asked is found, agreed on by all ranks, applied, and reported.

Ranks that looked at the file each for themselves would see a change at different steps, and one that stops
or saves alone leaves the others waiting for ever. So rank 0 looks and tells the rest: one number of eight
bytes a step, over the host's network, so that no device has to wait.
"""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gpubloom.traincard.control import Command
from gpubloom.traincard.reporter import Reporter

Setters = Mapping[str, Callable[[Any], None]]

_STATUS = {"run": None, "pause": "paused", "cancel": "cancelled"}


class ControlHandler:
    """What one training is told. `status`: paused or cancelled once it has to stop; None while it goes on."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._group: Any = None
        self.status: str | None = None
        self.save_wanted = False

    def apply_commands(self, setters: Setters) -> None:
        """Takes up what is new. A setter raises ValueError to refuse a value; the sentence is recorded."""
        command = self._agreed(self._reporter.control.poll if self._reporter.is_on else lambda: None)
        if command is None:
            return
        refused: dict[str, str] = {}
        for name, value in command.set.items():
            if name not in setters:
                refused[name] = f"unknown setting; here there are {', '.join(sorted(setters))}"
                continue
            try:
                setters[name](value)
            except ValueError as problem:
                refused[name] = str(problem)
        self.status = _STATUS[command.want]
        self.save_wanted |= command.save_now
        if self._reporter.rank == 0:
            self._reporter.applied(command.version, refused)

    def take_save(self) -> bool:
        """Whether a checkpoint is due: asked for, or needed before a pause. Asking answers it."""
        wanted, self.save_wanted = self.save_wanted or self.status == "paused", False
        return wanted

    def wait_for_all(self) -> None:
        """Returns when every rank has come here."""
        if (ranks := self._ranks()) is not None:
            ranks.barrier(group=self._group)

    def _ranks(self) -> Any:
        """torch.distributed when there are others to agree with; None when this process is alone."""
        ranks = getattr(sys.modules.get("torch"), "distributed", None)
        if ranks is None or not ranks.is_available() or not ranks.is_initialized():
            return None
        if ranks.get_world_size() == 1:
            return None
        if self._group is None:
            self._group = ranks.new_group(backend="gloo")
        return ranks

    def _agreed(self, poll: Callable[[], Command | None]) -> Command | None:
        ranks = self._ranks()
        if ranks is None:
            return poll()
        torch: Any = sys.modules["torch"]
        command = poll() if ranks.get_rank() == 0 else None
        version = torch.tensor([0 if command is None else command.version])
        ranks.broadcast(version, src=0, group=self._group)
        if int(version.item()) == 0:
            return None
        told = [command]
        ranks.broadcast_object_list(told, src=0, group=self._group)
        return told[0]


def positive(value: Any, most: float = math.inf) -> float:
    """A setting that must be a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ValueError(
            f"{value!r} is not a number above 0" + (f" and up to {most:g}" if most < 1e9 else "")
        )
    return float(value)


def not_negative(value: Any) -> float:
    """A setting that must be a number from 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a number from 0")
    return float(value)


def interval(value: Any) -> int | None:
    """A setting that counts steps; None means never."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError(f"{value!r} is neither a whole number from 1 nor null")
