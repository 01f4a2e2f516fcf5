"""What a form needs to know about a setting besides its JSON schema."""

from collections.abc import Mapping
from typing import Any, Literal

# What a run starts from decides some defaults; of the situations that apply, the first in this order.
Situation = Literal["adapters", "pretrained", "new_model"]


def shown(
    *,
    choices: Mapping[str, str | tuple[str, str]] | None = None,
    defaults: Mapping[Situation, float] | None = None,
    empty: str | None = None,
    lines: bool = False,
) -> dict[str, Any]:
    """What a form needs besides JSON schema, to be put into it.

    `choices`: label, or label and note, of each value, in their order. `defaults`: by situation, where the
    default depends on it. `empty`: what no value means. `lines`: a list of texts, one on each line.
    """
    extra: dict[str, Any] = {}
    if choices is not None:
        named = {value: (text, None) if isinstance(text, str) else text for value, text in choices.items()}
        # A list: the keys of a schema are sorted.
        extra["choices"] = [
            {"value": value, "label": label} | ({} if note is None else {"note": note})
            for value, (label, note) in named.items()
        ]
    if defaults is not None:
        extra["defaults"] = dict(defaults)
    if empty is not None:
        extra["empty"] = empty
    if lines:
        extra["lines"] = True
    return extra
