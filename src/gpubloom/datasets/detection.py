"""Which format a file has, from its columns and a sample of its rows, with the reason and how sure it is."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gpubloom.datasets.columns import nested_paths
from gpubloom.datasets.problems import RowProblem
from gpubloom.datasets.shaping import Format, Mapping, to_example
from gpubloom.datasets.source import Source

SAMPLE_ROWS = 200
# Below it, a person is asked which column is what.
SURE = 0.6
# Less than that: a person says whether half of the data, or numbers as text, is what they want.
_PREFERENCE = _NESTED = _NUMBERS = 0.5

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
_INPUTS = ("input", "context")
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


def advice(found: Detection, rows: Iterable[dict[str, Any]]) -> str:
    """What to do about a format that is not sure; the rows show which columns there are."""
    if found.mapping is not None and found.confidence == 0.0:
        return "Correct the rows."
    if found.mapping is not None and found.mapping.format != "text":
        columns = dict(found.mapping.columns)
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = dict(zip(("prompt", "completion") if len(names) > 1 else ("text",), names, strict=False))
    options = (f"--map {shlex.quote(f'{field}={column}')}" for field, column in columns.items())
    return f"Set the columns (data.columns), in a terminal such as: {' '.join(options)}"


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
        return _preference(rows, columns)
    if {"message_id", "parent_id", "role", "text"} <= columns.keys():
        return Detection(
            None,
            0.0,
            "Each row is one message of a conversation tree, as in Open Assistant. Use the file of whole "
            "trees (oasst_ready.trees.jsonl) instead.",
        )
    best: Detection | None = None
    for mapping, prior, why in _candidates(rows, columns):
        fits, first = _fitting(rows, mapping)
        shown = (
            f"; {fits} of {len(rows)} sampled rows fit." if fits else f", but no sampled row fits: {first}."
        )
        found = Detection(mapping, round(prior * fits / len(rows), 3), why + shown)
        if best is None or found.confidence > best.confidence:
            best = found
    return best or Detection(
        None, 0.0, f"The columns {named} match no known format: choose the column of each field."
    )


def _preference(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> Detection:
    """Pairs of a better and a worse answer: the better one can be trained, when a person wants it."""
    chosen, prompt = columns["chosen"], columns.get("prompt") or columns.get("question")
    first = next((row[chosen] for row in rows if row.get(chosen)), None)
    if isinstance(first, list) and (prompt is None or not _is_answer(first[0])):
        offered = Mapping("messages", {"messages": chosen})
    elif prompt is None:
        offered = Mapping("text", {"text": chosen})
    else:
        offered = Mapping("prompt_completion", {"prompt": prompt, "completion": chosen})
    fits, _ = _fitting(rows, offered)
    return Detection(
        offered if fits else None,
        round(_PREFERENCE * fits / len(rows), 3),
        "The columns chosen and rejected are preference pairs. Preference training is not supported; you "
        f"can train on the chosen answers, and {fits} of {len(rows)} sampled rows have one.",
    )


def _is_answer(turn: object) -> bool:
    """Whether what stands before this turn must be in the prompt."""
    return isinstance(turn, dict) and turn.get("role", turn.get("from")) in ("assistant", "gpt", "model")


def _fitting(rows: Sequence[dict[str, Any]], mapping: Mapping) -> tuple[int, str]:
    """How many rows fit, and what is wrong with the first that does not."""
    count, first = 0, ""
    for number, row in enumerate(rows, 1):
        try:
            to_example(row, mapping)
        except RowProblem as problem:
            first = first or f"row {number} {problem}"
            continue
        count += 1
    return count, first


def _candidates(
    rows: Sequence[dict[str, Any]], columns: dict[str, str]
) -> Iterator[tuple[Mapping, float, str]]:
    system = next(({"system": columns[name]} for name in _SYSTEM if name in columns), {})
    label = {"label": columns["label"]} if "label" in columns and _is_verdict(rows, columns["label"]) else {}
    tools = {"tools": columns["tools"]} if "tools" in columns else {}
    for name in _CONVERSATIONS:
        if name in columns:
            format_, why = _style(rows, columns[name])
            more = system | tools | (label if format_ == "messages" else {})
            yield Mapping(format_, {"messages": columns[name], **more}), 0.98, why
    if "message_tree_id" in columns and "prompt" in columns:
        why = f"The column {columns['prompt']} contains trees of replies, as in Open Assistant"
        yield Mapping("oasst", {"tree": columns["prompt"], **system}), 0.98, why
    for first, second, prior in _ALPACA:
        if first in columns and second in columns:
            chosen = {"instruction": columns[first], "output": columns[second]} | system
            names = [columns[first], columns[second]]
            if context := next((columns[name] for name in _INPUTS if name in columns), None):
                chosen["input"] = context
                names.insert(1, context)
            yield Mapping("alpaca", chosen), prior, f"The columns {', '.join(names)} match the Alpaca format"
    for first, second, prior in _PAIRS:
        if first in columns and second in columns:
            chosen = {"prompt": columns[first], "completion": columns[second]} | system | label
            why = f"The columns {columns[first]} and {columns[second]} look like prompt and completion"
            yield Mapping("prompt_completion", chosen), prior, why
    for name, prior in _TEXTS.items():
        if name in columns:
            yield _text(rows, columns[name], prior, f"The column {columns[name]} looks like plain text")
    yield from _nested(rows, columns)
    if len(columns) == 1:
        (only,) = columns.values()
        yield _text(rows, only, SURE, f"{only} is the only column, so it is used as plain text")


def _text(rows: Sequence[dict[str, Any]], column: str, prior: float, why: str) -> tuple[Mapping, float, str]:
    """A column as plain text; whether its numbers are meant as text, a person says."""
    values = [row[column] for row in rows if row.get(column) is not None]
    if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        prior, why = min(prior, _NUMBERS), f"The column {column} contains numbers and no text"
    return Mapping("text", {"text": column}), prior, why


def _is_verdict(rows: Sequence[dict[str, Any]], column: str) -> bool:
    """Whether a label says of an answer that it is good or bad, as in KTO."""
    return all(isinstance(row.get(column), bool) for row in rows if row.get(column) is not None)


def _nested(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> Iterator[tuple[Mapping, float, str]]:
    """Questions in columns, answers inside of a list or an object; a person says whether that is meant."""
    paths = {path.rpartition(".")[2].lower(): path for path in nested_paths(rows[0]) if "." in path}
    for first, second, _ in (*_ALPACA, *_PAIRS):
        asked, answer = columns.get(first) or paths.get(first), columns.get(second) or paths.get(second)
        if asked is None or answer is None or {asked, answer} <= set(columns.values()):
            continue
        why = f"{asked} and {answer} look like question and answer"
        if first == "instruction":
            more = next(
                (columns.get(name) or paths[name] for name in _INPUTS if name in {*columns, *paths}), None
            )
            chosen = {"instruction": asked, "output": answer} | ({"input": more} if more else {})
            yield Mapping("alpaca", chosen), _NESTED, why
        else:
            yield Mapping("prompt_completion", {"prompt": asked, "completion": answer}), _NESTED, why


def _style(rows: Sequence[dict[str, Any]], column: str) -> tuple[Format, str]:
    for row in rows:
        turns = row.get(column)
        first = turns[0] if isinstance(turns, list) and turns else None
        if (isinstance(first, dict) and "from" in first) or (isinstance(turns, str) and '"from"' in turns):
            return "sharegpt", f"The column {column} contains turns with from and value, as in ShareGPT"
    return "messages", f"The column {column} contains messages with role and content"
