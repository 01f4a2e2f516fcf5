"""Changes an optimizer's settings while it works. Knows torch's shapes, not torch.

`learning_rate` is the rate that the schedule scales, as in TrainConfig: the schedule goes on, from the new
rate. Where groups have rates of their own, the first one gets the value and the others keep their proportion.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from gpubloom.traincard.adapters.control_handler import not_negative, positive

_decaying: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()
_RATES = ("initial_lr", "max_lr", "min_lr")


def set_learning_rate(optimizer: Any, schedulers: Iterable[Any], value: Any) -> None:
    """Sets the scheduled learning rate; ValueError says why a value is refused."""
    wanted = positive(value, most=10.0)
    groups = optimizer.param_groups
    flat = [inner for scheduler in schedulers for inner in _unwrapped(scheduler)]
    base = next((inner.base_lrs[0] for inner in flat if getattr(inner, "base_lrs", None)), groups[0]["lr"])
    # OneCycleLR counts its rate from the top, not from where it begins.
    base = groups[0].get("max_lr", base)
    if float(base) == 0.0:
        raise ValueError("the learning rate is 0 now, so its schedule cannot be scaled")
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
        raise ValueError("the optimizer began without weight decay, so which weights decay is not known")
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
