"""Example: what a row means, whatever format it came in; what a model is shown and which of it is trained."""

import hashlib
import json
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from gpubloom.datasets.problems import RowProblem

# Characters from (inclusive) to (exclusive).
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `extra` holds what else a template may look at: tool_calls, name, reasoning_content …"""

    role: str
    content: str
    trained: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """The message as templates and messages-JSONL know it.

        A turn that is nothing but tool calls has null for its content, as OpenAI writes it: some templates
        write an empty text down as a second, empty answer.
        """
        content = None if self.extra.get("tool_calls") and not self.content else self.content
        return {"role": self.role, "content": content, **self.extra}


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation, or a plain text with the spans of it that are trained. Exactly one of them is there."""

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    spans: tuple[Span, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()

    @classmethod
    def plain(cls, text: str) -> "Example":
        return cls(text=text, spans=((0, len(text)),))

    def record(self) -> dict[str, Any]:
        """The example as a line of messages-JSONL."""
        if self.messages is None:
            return {"text": self.text}
        messages = []
        for message in self.messages:
            fields = message.fields()
            if message.role == "assistant" and not message.trained:
                fields["weight"] = 0
            messages.append(fields)
        return {"messages": messages} | ({"tools": list(self.tools)} if self.tools else {})

    def digest(self) -> bytes:
        """Eight bytes that are the same for the same example: line ends, outer space and composition of
        letters do not count, everything else does."""
        if self.messages is None:
            content = ["", _normal(self.text or "")]
        else:
            content = [part for turn in self.messages for part in (turn.role, _normal(turn.content))]
            if self.tools or any(
                turn.extra or turn.trained != _usually_trained(turn) for turn in self.messages
            ):
                content.append(json.dumps(self.record(), sort_keys=True, default=str))
        try:
            joined = "\x1f".join(content).encode()
        except UnicodeEncodeError:
            raise RowProblem(
                "row_invalid_text", "contains an incomplete surrogate pair, which is not a valid character"
            ) from None
        return hashlib.blake2b(joined, digest_size=8).digest()


def _usually_trained(turn: Message) -> bool:
    return turn.role == "assistant"


def _normal(text: str) -> str:
    text = text.replace("\r\n", "\n").strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)
