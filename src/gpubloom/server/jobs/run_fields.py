"""What the run list knows of a run besides its metrics: config, facts and figures, flat and small.

Computed when a job's config or summary changes, and stored in the job's row: the list reads thousands of
rows and validates none.
"""

from collections.abc import Mapping
from typing import Any

from gpubloom.plan.comparison import config_as_it_acts, flat_fields
from gpubloom.runs.table import fields_of_facts
from gpubloom.traincard.number_encoding import plain

# Limits, because a script may report any number of fields of any length.
_MOST_FIELDS = 300
_LONGEST_VALUE = 300
_FIGURES = ("step", "total_steps", "eta_seconds", "updated_at")


def run_fields(
    kind: str,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    *,
    same_config: bool = False,
) -> dict[str, Any]:
    """The document of a run. `before`: the earlier one, whose config is kept where it is the same."""
    facts = summary.get("facts")
    described, rest = fields_of_facts(facts if isinstance(facts, Mapping) else {})
    if same_config and before is not None and kind == "train":
        own = before.get("config") or {}
    else:
        own = small(_config_of(kind, config))
    cost = summary.get("cost")
    return {
        "config": {**small(described), **own},
        "facts": small(rest),
        "cost": _number(cost.get("so_far")) if isinstance(cost, Mapping) else None,
        **{name: _number(summary.get(name)) for name in _FIGURES},
    }


def _config_of(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "train":
        return flat_fields(config_as_it_acts(config))
    given = config.get("config") if kind == "run" else None
    # As for a run in a folder: a config of the trainer counts with its defaults.
    return flat_fields(config_as_it_acts(given)) if isinstance(given, Mapping) and given else {}


def small(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The first fields of many, their values short enough for a list."""
    found: dict[str, Any] = {}
    for path, value in fields.items():
        if len(found) >= _MOST_FIELDS:
            break
        if isinstance(value, list | tuple | Mapping):
            value = ", ".join(map(str, value)) if len(value) < _LONGEST_VALUE else f"{len(value):,} values"
        found[str(path)[:_LONGEST_VALUE]] = value[:_LONGEST_VALUE] if isinstance(value, str) else plain(value)
    return found


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
