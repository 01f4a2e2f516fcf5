"""The rules by which a run tells a person something, or stops: one list for processes, configs and servers.

A rule has a short name. Some name an event of any run (`failed`, `diverged`), the others a diagnosis: the
kind of a finding (`overfitting`) or the likely cause of a failure (`gpu_out_of_memory`). A run's config may
hold rules under `alerts`: `on` says what is told about this run, `stop_on` what stops it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpubloom.errors import InputError
from gpubloom.traincard.causes import CAUSES
from gpubloom.traincard.findings import TITLES
from gpubloom.traincard.number_encoding import NON_FINITE, encode_number

EVENT_RULES: dict[str, str] = {
    "failed": "The run failed",
    "diverged": "A loss is NaN or infinite, or diverges",
    "stalled": "No progress for 10 minutes",
    "ended": "The run ended in another way",
    "alert": "The script calls reporter.alert",
}
DEFAULT_RULES = ("failed", "diverged", "stalled", "alert")
STALL_SECONDS = 600.0
# Kinds of findings that are about a run while it happens; the rest is said before it starts.
_FINDINGS = (
    "degraded",
    "diverging",
    "no_learning",
    "overfitting",
    "straggler",
    "data_starved",
    "throttled",
    "out_of_memory_soon",
)


# Every rule by its name, with what a person reads beside the box to tick.
RULES: dict[str, str] = {
    **EVENT_RULES,
    **{kind: TITLES[kind] for kind in _FINDINGS},
    **{code: f"Failed: {cause.title}" for code, cause in CAUSES.items()},
}


@dataclass(frozen=True)
class Alert:
    """One message. `rule` is the reason, `level` info, warning or error."""

    rule: str
    title: str
    text: str = ""
    level: str = "warning"


@dataclass(frozen=True)
class ConfigRules:
    """The rules in a run's config. `on` None: the config does not say which alerts are wanted."""

    on: frozenset[str] | None = None
    stop_on: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: object) -> "ConfigRules":
        """The rules of a config that anybody may have written: what is no rule says nothing."""
        part = config.get("alerts") if isinstance(config, Mapping) else None
        if not isinstance(part, Mapping):
            return cls()
        on = _known(part.get("on"))
        return cls(on or None, _known(part.get("stop_on")))


def _known(words: object) -> frozenset[str]:
    if not isinstance(words, list | tuple):
        return frozenset()
    return frozenset(word for word in words if isinstance(word, str) and word in RULES)


def check_rules(where: str, words: Iterable[str], known: Iterable[str] = RULES) -> frozenset[str]:
    """The rules, or InputError with those that nobody knows."""
    rules = frozenset(words)
    if unknown := sorted(rules - set(known)):
        raise InputError(
            "invalid_setting",
            f"{where} names unknown rules: {', '.join(unknown)}. Known: {', '.join(known)}.",
        )
    return rules


def alerts_in(kind: str, step: object, fields: Mapping[str, Any]) -> Iterator[Alert]:
    """What one event of a run says by itself: its own alert, or a loss that is not a number."""
    if kind == "alert":
        yield Alert(
            "alert",
            str(fields.get("title", "")),
            str(fields.get("text", "")),
            str(fields.get("level", "warning")),
        )
    elif kind == "metric":
        values = fields.get("values")
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if str(name).endswith("loss") and (word := _not_finite(value)):
                yield Alert(
                    "diverged", "The loss is not a number", f"{name} is {word} at step {step}.", "error"
                )


def _not_finite(value: object) -> str | None:
    """The word for NaN or an infinity, which on file is a word already; None: another value."""
    if isinstance(value, float) and not math.isfinite(value):
        value = encode_number(value)
    return value if isinstance(value, str) and value in NON_FINITE else None
