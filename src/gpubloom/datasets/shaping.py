"""From the values of a row to an Example, by a Mapping that says which column is what."""

import json
import math
from collections.abc import Mapping as Values
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpubloom.datasets.columns import MISSING, value_at
from gpubloom.datasets.example import Example, Message
from gpubloom.datasets.problems import RowProblem
from gpubloom.datasets.rows import type_name
from gpubloom.datasets.tool_calls import arguments_fault, parsed_tools
from gpubloom.errors import InputError

Format = Literal["text", "prompt_completion", "alpaca", "sharegpt", "messages", "oasst"]

# Every format with the fields it needs and the fields it may have.
FIELDS: dict[Format, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ()),
    "prompt_completion": (("prompt", "completion"), ("system", "label")),
    "alpaca": (("instruction", "output"), ("input", "system")),
    "sharegpt": (("messages",), ("system", "tools")),
    "messages": (("messages",), ("system", "tools", "label")),
    "oasst": (("tree",), ("system",)),
}

_ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
}
_ROLE_KEYS = ("role", "from")
_CONTENT_KEYS = ("content", "value")
_KNOWN_KEYS = {*_ROLE_KEYS, *_CONTENT_KEYS, "weight"}


@dataclass(frozen=True, slots=True)
class Mapping:
    """Which column of a row is which field of a format."""

    format: Format
    columns: dict[str, str]

    @classmethod
    def by_hand(cls, columns: Values[str, str]) -> "Mapping":
        """The format follows from the fields that a person names."""
        given = set(columns)
        for name, (needed, optional) in FIELDS.items():
            if name != "sharegpt" and set(needed) <= given <= {*needed, *optional}:
                return cls(name, dict(columns))
        known = "; ".join(
            ", ".join([*needed, *(f"[{field}]" for field in optional)])
            for name, (needed, optional) in FIELDS.items()
            if name != "sharegpt"
        )
        raise InputError(
            "incomplete_mapping",
            f"The fields {', '.join(sorted(given)) or '(none)'} do not form a known format. Map one of these "
            f"sets of fields: {known}.",
        )


def to_example(values: Values[str, Any], mapping: Mapping) -> Example:
    """What the row means; raises RowProblem with the reason when it means nothing that can be trained."""
    match mapping.format:
        case "text":
            text = _text(values, mapping, "text")
            if not text.strip():
                raise RowProblem("row_empty_field", f"has no text in {mapping.columns['text']!r}")
            return Example.plain(text)
        case "oasst":
            return _best_path(values, mapping)
        case "prompt_completion":
            _refuse_rejected(values, mapping)
            if any(_turns_in(values, mapping, field) for field in ("prompt", "completion")):
                return _turns_and_answer(values, mapping)
            return _pair(values, mapping, _needed(values, mapping, "prompt"), "completion")
        case "alpaca":
            prompt = _needed(values, mapping, "instruction")
            more = _optional(values, mapping, "input")
            return _pair(values, mapping, f"{prompt}\n\n{more}" if more else prompt, "output")
        case "sharegpt" | "messages":
            return _conversation(values, mapping)


def _pair(values: Values[str, Any], mapping: Mapping, prompt: str, answer: str) -> Example:
    system = _optional(values, mapping, "system")
    turns = [Message("user", prompt), Message("assistant", _needed(values, mapping, answer), trained=True)]
    return Example(messages=tuple([Message("system", system), *turns] if system else turns))


def _turns_and_answer(values: Values[str, Any], mapping: Mapping) -> Example:
    """A prompt or a completion that is a list of messages, as TRL has them. Answers within the prompt are
    seen, not trained."""
    turns: list[Message] = []
    for field, role in (("prompt", "user"), ("completion", "assistant")):
        given = _turns_in(values, mapping, field)
        given = given or [{"role": role, "content": _needed(values, mapping, field)}]
        for number, turn in enumerate(given, len(turns) + 1):
            message = _message(turn, number)
            turns.append(replace(message, trained=message.trained and field == "completion"))
    if not any(turn.trained for turn in turns):
        raise RowProblem("row_without_answer", "has no assistant message to train on")
    system = _optional(values, mapping, "system")
    if system and turns[0].role not in {"system", "developer"}:
        turns.insert(0, Message("system", system))
    return Example(messages=tuple(turns))


def _turns_in(values: Values[str, Any], mapping: Mapping, field: str) -> list[Any] | None:
    value = value_at(values, mapping.columns[field])
    return value if isinstance(value, list) and value and isinstance(value[0], dict) else None


def _needed(values: Values[str, Any], mapping: Mapping, field: str) -> str:
    text = _text(values, mapping, field)
    if not text.strip():
        raise RowProblem("row_empty_field", f"has an empty {mapping.columns[field]!r}")
    return text


def _optional(values: Values[str, Any], mapping: Mapping, field: str) -> str | None:
    column = mapping.columns.get(field)
    if column is None or value_at(values, column) in (None, MISSING):
        return None
    text = _text(values, mapping, field)
    return text if text.strip() else None


def _text(values: Values[str, Any], mapping: Mapping, field: str) -> str:
    column = mapping.columns[field]
    value = value_at(values, column)
    if value is MISSING:
        raise RowProblem("row_empty_field", f"has no {column!r}")
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A label is often a number; it is written as JSON writes it.
        return json.dumps(value)
    raise RowProblem("row_wrong_type", f"has {type_name(value)} in {column!r} instead of a text")


def _conversation(values: Values[str, Any], mapping: Mapping) -> Example:
    _refuse_rejected(values, mapping)
    column = mapping.columns["messages"]
    value = value_at(values, column)
    if value is MISSING:
        raise RowProblem("row_empty_field", f"has no {column!r}")
    turns = _list(value, column)
    if not turns:
        raise RowProblem("row_empty_field", f"has no messages in {column!r}")
    messages = [_message(turn, number) for number, turn in enumerate(turns, 1)]
    system = _optional(values, mapping, "system")
    if system and messages[0].role not in {"system", "developer"}:
        messages.insert(0, Message("system", system))
    if not any(message.trained for message in messages):
        raise RowProblem("row_without_answer", "has no assistant message to train on")
    return Example(messages=tuple(messages), tools=_tools(values, mapping.columns.get("tools")))


# What a label of preference data says of an answer that should not be learned.
_REJECTED = (False, 0, -1, "false", "0", "-1", "rejected", "undesirable", "bad")


def _refuse_rejected(values: Values[str, Any], mapping: Mapping) -> None:
    column = mapping.columns.get("label")
    if column is None:
        return
    label = value_at(values, column)
    if (label.strip().lower() if isinstance(label, str) else label) in _REJECTED:
        raise RowProblem("row_rejected_answer", f"has the label {label!r}: rejected answers are not trained")


def _best_path(values: Values[str, Any], mapping: Mapping) -> Example:
    """Of a tree of replies, as Open Assistant has them, the conversation with the best-ranked replies."""
    node: Any = value_at(values, mapping.columns["tree"])
    turns: list[Message] = []
    while isinstance(node, dict):
        turns.append(_message({"role": node.get("role"), "content": node.get("text")}, len(turns) + 1))
        replies = node.get("replies")
        kept = [
            each
            for each in (replies if isinstance(replies, list) else ())
            if isinstance(each, dict) and not each.get("deleted")
        ]
        node = min(kept, key=_preference, default=None)
    while turns and not turns[-1].trained:
        turns.pop()
    if not turns:
        raise RowProblem("row_without_answer", "has no assistant message to train on")
    system = _optional(values, mapping, "system")
    return Example(messages=tuple([Message("system", system), *turns] if system else turns))


def _preference(reply: dict[str, Any]) -> tuple[bool, float]:
    """Questions that somebody answered come first, then the better rank."""
    rank = reply.get("rank")
    is_dead_end = reply.get("role") == "prompter" and not reply.get("replies")
    return is_dead_end, rank if isinstance(rank, int | float) and not isinstance(rank, bool) else math.inf


def _tools(values: Values[str, Any], column: str | None) -> tuple[dict[str, Any], ...]:
    given = value_at(values, column) if column else None
    if not column or not given or given is MISSING or (isinstance(given, str) and not given.strip()):
        return ()
    if isinstance(given, dict) or (isinstance(given, str) and given.lstrip()[:1] == "{"):
        given = [given]
    try:
        return tuple(parsed_tools(_list(given, column, "tools")))
    except RowProblem:
        raise
    except ValueError as problem:
        raise RowProblem("row_invalid_tool_call", f"has {problem} in {column!r}") from None


def _list(value: object, column: str, of: str = "messages") -> list[Any]:
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        # A table has no lists; they stand there as JSON.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RowProblem("row_not_json", f"has invalid JSON in {column!r}") from None
    if not isinstance(value, list):
        raise RowProblem("row_wrong_type", f"has {type_name(value)} in {column!r} instead of a list of {of}")
    return value


def _message(turn: object, number: int) -> Message:
    if not isinstance(turn, dict):
        raise RowProblem("row_wrong_type", f"has {type_name(turn)} as message {number} instead of an object")
    named = next((turn[key] for key in _ROLE_KEYS if turn.get(key) is not None), None)
    if not isinstance(named, str):
        raise RowProblem("row_unknown_role", f"has no role (or from) in message {number}")
    role = _ROLES.get(named.lower())
    if role is None:
        raise RowProblem("row_unknown_role", f"has the unknown role {named[:40]!r} in message {number}")
    extra = {key: value for key, value in turn.items() if key not in _KNOWN_KEYS and value is not None}
    content = _content(next((turn[key] for key in _CONTENT_KEYS if turn.get(key) is not None), None), number)
    calls = extra.get("tool_calls")
    if isinstance(calls, str):
        calls = extra["tool_calls"] = _list(calls, f"tool_calls of message {number}", "tool calls")
    if calls and (fault := arguments_fault(calls)):
        raise RowProblem("row_invalid_tool_call", f"has {fault} of message {number}")
    if role == "assistant" and not content.strip() and not calls:
        raise RowProblem("row_empty_field", f"has an empty answer in message {number}")
    trained = role == "assistant" and turn.get("weight") not in (0, "0")
    return Message(role, content, trained, extra)


def _content(value: object, number: int) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = []
        for part in value:
            if not isinstance(part, dict) or not isinstance(part.get("text"), str):
                kind = part.get("type") if isinstance(part, dict) else None
                raise RowProblem(
                    "row_wrong_type",
                    f"has a part that is not text ({kind or type_name(part)}) in message {number}",
                )
            parts.append(part["text"])
        return "".join(parts)
    raise RowProblem(
        "row_wrong_type", f"has {type_name(value)} as the content of message {number} instead of a text"
    )
