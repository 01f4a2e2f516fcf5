"""Settings that may change while a run trains, and why a change is refused. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gpubloom.plan import TrainConfig

_WHOLE_NUMBERS = {"eval_every_steps", "save_every_steps"}


@dataclass(frozen=True)
class LiveSettings:
    """What `control.json` may set. An interval of None means: not by steps."""

    learning_rate: float
    weight_decay: float
    clip_norm: float
    eval_every_steps: int | None
    save_every_steps: int | None

    @classmethod
    def of(cls, config: TrainConfig) -> "LiveSettings":
        return cls(
            learning_rate=config.peak_learning_rate,
            weight_decay=config.optimizer.weight_decay,
            clip_norm=config.optimizer.clip_norm,
            eval_every_steps=config.eval.every_steps,
            save_every_steps=config.checkpoint.every_steps,
        )

    def changed(self, wanted: Mapping[str, Any]) -> tuple["LiveSettings", dict[str, str]]:
        """These settings with what can be accepted, and a reason for each that cannot."""
        accepted: dict[str, Any] = {}
        refused: dict[str, str] = {}
        for name, value in wanted.items():
            if reason := _refusal(name, value):
                refused[name] = reason
            else:
                accepted[name] = value
        return replace(self, **accepted), refused


def _refusal(name: str, value: object) -> str | None:
    known = [field.name for field in fields(LiveSettings)]
    if name not in known:
        return f"unknown setting; available settings: {', '.join(known)}"
    if name in _WHOLE_NUMBERS:
        valid = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
        return None if valid else f"{value!r} is neither a whole number of at least 1 nor null"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return f"{value!r} is not a number of at least 0"
    if name == "learning_rate" and not 0 < value <= 10:
        return f"{value!r} is not a number above 0 and up to 10"
    return None
