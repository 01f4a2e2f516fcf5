"""Which format a file has, from its columns and a sample of its rows, with the reason and how sure it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gpubloom.datasets.problems import RowProblem
from gpubloom.datasets.shaping import Format, Mapping, to_example
from gpubloom.datasets.source import Source

SAMPLE_ROWS = 200
# Below it, a person is asked which column is what.
SURE = 0.6

_CONVERSATIONS = ("messages", "conversations", "conversation", "dialog", "dialogue", "chat")
_PAIRS: tuple[tuple[str, str, float], ...] = (
    ("prompt", "completion", 0.98),
    ("prompt", "response", 0.95),
    ("question", "answer", 0.9),
    ("query", "response", 0.9),
    ("prompt", "output", 0.85),
    ("question", "response", 0.85),
    ("input", "output", 0.8),
    ("prompt", "answer", 0.8),
    ("source", "target", 0.65),
)
_ALPACA: tuple[tuple[str, str, float], ...] = (
    ("instruction", "output", 0.97),
    ("instruction", "response", 0.9),
    ("instruction", "completion", 0.85),
)
_TEXTS = {"text": 0.95, "content": 0.75, "document": 0.75, "body": 0.65}
_SYSTEM = ("system", "system_prompt")


@dataclass(frozen=True, slots=True)
class Detection:
    """The best guess. Without a mapping, or when it is not sure, a person names the columns."""

    mapping: Mapping | None
    confidence: float
    reason: str

    @property
    def is_sure(self) -> bool:
        return self.mapping is not None and self.confidence >= SURE


def sample(source: Source, count: int = SAMPLE_ROWS) -> list[dict[str, Any]]:
    """The values of the first rows that can be read."""
    return [row.values for row in islice(source.rows(), count) if row.values is not None]


def detect(rows: Sequence[dict[str, Any]]) -> Detection:
    """Tries every format that the columns allow on the sampled rows."""
    if not rows:
        return Detection(None, 0.0, "No row could be read.")
    columns: dict[str, str] = {}
    for row in rows:
        for name in row:
            columns.setdefault(str(name).strip().lower(), name)
    named = ", ".join(list(columns.values())[:8]) + (" …" if len(columns) > 8 else "")
    if {"chosen", "rejected"} <= columns.keys():
        return Detection(
            None, 0.0, "The columns chosen and rejected are preference data, which GPU Bloom cannot train on."
        )
    best: Detection | None = None
    for mapping, prior, why in _candidates(rows, columns):
        fits = _fitting(rows, mapping)
        found = Detection(
            mapping, round(prior * fits / len(rows), 3), f"{why}; {fits} of {len(rows)} sampled rows fit."
        )
        if best is None or found.confidence > best.confidence:
            best = found
    return best or Detection(
        None, 0.0, f"The columns {named} match no known format: choose the column of each field."
    )


def _fitting(rows: Sequence[dict[str, Any]], mapping: Mapping) -> int:
    count = 0
    for row in rows:
        try:
            to_example(row, mapping)
        except RowProblem:
            continue
        count += 1
    return count


def _candidates(
    rows: Sequence[dict[str, Any]], columns: dict[str, str]
) -> Iterator[tuple[Mapping, float, str]]:
    system = next(({"system": columns[name]} for name in _SYSTEM if name in columns), {})
    tools = {"tools": columns["tools"]} if "tools" in columns else {}
    for name in _CONVERSATIONS:
        if name in columns:
            format_, why = _style(rows, columns[name])
            yield Mapping(format_, {"messages": columns[name], **system, **tools}), 0.98, why
    for first, second, prior in _ALPACA:
        if first in columns and second in columns:
            chosen = {"instruction": columns[first], "output": columns[second]} | system
            names = [columns[first], columns[second]]
            if "input" in columns:
                chosen["input"] = columns["input"]
                names.insert(1, columns["input"])
            yield Mapping("alpaca", chosen), prior, f"The columns {', '.join(names)} match the Alpaca format"
    for first, second, prior in _PAIRS:
        if first in columns and second in columns:
            chosen = {"prompt": columns[first], "completion": columns[second]} | system
            why = f"The columns {columns[first]} and {columns[second]} look like prompt and completion"
            yield Mapping("prompt_completion", chosen), prior, why
    for name, prior in _TEXTS.items():
        if name in columns:
            why = f"The column {columns[name]} looks like plain text"
            yield Mapping("text", {"text": columns[name]}), prior, why
    if len(columns) == 1:
        (only,) = columns.values()
        yield Mapping("text", {"text": only}), 0.6, f"{only} is the only column, so it is used as plain text"


def _style(rows: Sequence[dict[str, Any]], column: str) -> tuple[Format, str]:
    for row in rows:
        turns = row.get(column)
        first = turns[0] if isinstance(turns, list) and turns else None
        if (isinstance(first, dict) and "from" in first) or (isinstance(turns, str) and '"from"' in turns):
            return "sharegpt", f"The column {column} contains turns with from and value, as in ShareGPT"
    return "messages", f"The column {column} contains messages with role and content"
