"""ControlHandler: how an adapter applies the commands of control.json, on all ranks at the same step.

Ranks that read the file each for themselves would see a change at different steps, and one that stops or
saves alone leaves the others waiting for ever. So rank 0 reads it and tells the rest: one number of eight
bytes a step, over the host's network, so that no device has to wait.

Settings of an optimizer are changed by its shape, without torch. `learning_rate` is the rate that the
schedule scales, as in TrainConfig: the schedule goes on from the new rate. Where groups have rates of their
own, the first one gets the value and the others keep their proportion.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from gpubloom.errors import InputError
from gpubloom.traincard.control import Command
from gpubloom.traincard.reporter import Reporter

Setters = Mapping[str, Callable[[Any], None]]

_STATUS = {"run": None, "pause": "paused", "cancel": "cancelled"}

_RATES = ("initial_lr", "max_lr", "min_lr")


class ControlHandler:
    """The commands for one training. `status`: paused or cancelled once it must stop; None while it runs."""

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
                refused[name] = f"unknown setting; the known settings are {', '.join(sorted(setters))}"
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
        raise InputError(
            "invalid_setting",
            f"{value!r} is not a number above 0" + (f" and up to {most:g}" if most < 1e9 else ""),
        )
    return float(value)


def not_negative(value: Any) -> float:
    """A setting that must be a number from 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InputError("invalid_setting", f"{value!r} is not a number of at least 0")
    return float(value)


def interval(value: Any) -> int | None:
    """A setting that counts steps; None means never."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise InputError("invalid_setting", f"{value!r} is neither a whole number of at least 1 nor null")


_decaying: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()


def set_learning_rate(optimizer: Any, schedulers: Iterable[Any], value: Any) -> None:
    """Sets the scheduled learning rate; ValueError says why a value is refused."""
    wanted = positive(value, most=10.0)
    groups = optimizer.param_groups
    flat = [inner for scheduler in schedulers for inner in _unwrapped(scheduler)]
    base = next((inner.base_lrs[0] for inner in flat if getattr(inner, "base_lrs", None)), groups[0]["lr"])
    # OneCycleLR counts its rate from the top, not from where it begins.
    base = groups[0].get("max_lr", base)
    if float(base) == 0.0:
        raise InputError(
            "setting_not_changeable", "the learning rate is currently 0, so its schedule cannot be scaled"
        )
    factor = wanted / float(base)
    for group in groups:
        group["lr"] = _scaled(group["lr"], factor)
        for name in _RATES:
            if name in group:
                group[name] = _scaled(group[name], factor)
    for inner in flat:
        if getattr(inner, "base_lrs", None):
            inner.base_lrs = [_scaled(rate, factor) for rate in inner.base_lrs]


def set_weight_decay(optimizer: Any, value: Any) -> None:
    """Sets the decay of the groups that have one; norms and biases are usually in a group without."""
    wanted = not_negative(value)
    groups = optimizer.param_groups
    decaying = [number for number, group in enumerate(groups) if group.get("weight_decay")]
    # Remembered, so that a decay that was set to 0 can be raised again.
    decaying = _decaying.setdefault(optimizer, decaying) or decaying
    if not decaying:
        raise InputError(
            "setting_not_changeable",
            "the optimizer was started without weight decay, so it is unknown which weights should decay",
        )
    for number in decaying:
        groups[number]["weight_decay"] = wanted


def optimizer_setters(optimizer: Any, schedulers: Iterable[Any]) -> dict[str, Callable[[Any], None]]:
    """What control.json may set of an optimizer."""
    return {
        "learning_rate": lambda value: set_learning_rate(optimizer, schedulers, value),
        "weight_decay": lambda value: set_weight_decay(optimizer, value),
    }


def gradient_norm(optimizer: Any) -> dict[str, Any]:
    """The norm of all gradients as the optimizer is about to use them; nothing where they are sharded."""
    found = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    # The norm of a sharded gradient needs all ranks, and reading it on one of them would wait for ever.
    if not found or any(hasattr(gradient, "device_mesh") for gradient in found):
        return {}
    return {"grad_norm": sys.modules["torch"].nn.utils.get_total_norm(found)}


def learning_rate(optimizer: Any) -> float:
    """The rate of the next step, of the first group."""
    return float(optimizer.param_groups[0]["lr"])


def _scaled(rate: Any, factor: float) -> Any:
    # A rate may be a tensor that a captured graph reads: then it has to change in place.
    return rate.mul_(factor) if hasattr(rate, "mul_") else rate * factor


def _unwrapped(scheduler: Any) -> Iterator[Any]:
    if inner := getattr(scheduler, "_schedulers", None):
        for part in inner:
            yield from _unwrapped(part)
    elif (wrapped := getattr(scheduler, "scheduler", None)) is not None:
        yield from _unwrapped(wrapped)
    elif scheduler is not None:
        yield scheduler
