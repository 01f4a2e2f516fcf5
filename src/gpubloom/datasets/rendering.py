"""From an Example to the text that the model sees, with the spans of it that are trained.

A turn's span begins behind what the template writes to ask for an answer, and ends with what closes the
turn, so the model learns to stop. Where a template marks this itself ({% generation %}), its marks hold.
Otherwise spans are found by rendering longer and longer beginnings of the conversation; and where a template
writes earlier turns differently once others follow (removing their reasoning, say), by putting a word that
occurs nowhere else into the turn's place.

Most conversations of a file have the same roles, and their texts differ in nothing but the contents. For
these, the spans are found once, in a `Layout`, and every conversation is rendered once.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from gpubloom.datasets.example import Example, Message, Span
from gpubloom.datasets.problems import RowProblem
from gpubloom.datasets.template import ChatTemplate
from gpubloom.datasets.tool_calls import function_of

_WORD = f"content{secrets.token_hex(12)}"
_TURN = f"turn{secrets.token_hex(12)}"
# By template; a file has few sequences of roles, or so many that a layout is seldom used again.
_MOST_LAYOUTS = 256


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the rendered text."""

    text: str
    trained: bool


@dataclass(frozen=True, slots=True)
class Rendered:
    """What the model sees. Plain text still wants the special tokens that the tokenizer adds by itself."""

    text: str
    spans: tuple[Span, ...]
    is_plain: bool
    # What a person should know about this row although it can be used.
    remarks: tuple[str, ...] = ()

    def pieces(self) -> tuple[Piece, ...]:
        """The whole text in order, trained and untrained stretches in turn."""
        pieces, offset = [], 0
        for begin, end in self.spans:
            pieces += [Piece(self.text[offset:begin], False), Piece(self.text[begin:end], True)]
            offset = end
        pieces.append(Piece(self.text[offset:], False))
        return tuple(piece for piece in pieces if piece.text)


def render(example: Example, template: ChatTemplate) -> Rendered:
    """Raises RowProblem when the template refuses the row or nothing of it can be trained."""
    if example.messages is None:
        assert example.text is not None
        text = example.text + template.eos
        spans = example.spans
        if spans and spans[-1][1] == len(example.text):
            spans = (*spans[:-1], (spans[-1][0], len(text)))
        return Rendered(text, spans, is_plain=True)
    template = template.for_tools if example.tools else template
    return _Conversation(example.messages, example.tools, template).rendered()


@dataclass(frozen=True, slots=True)
class Layout:
    """What a template writes around the contents of one sequence of roles, and which spans are trained.

    A boundary of a span is the length of what the template writes before it, and the number of contents that
    stand before it.
    """

    literals: tuple[str, ...]
    boundaries: tuple[tuple[tuple[int, int], tuple[int, int]], ...]

    @classmethod
    def find(cls, messages: Sequence[Message], template: ChatTemplate) -> "Layout | None":
        """With a word for each content; None where the template does more than write contents down."""
        words = [f"{_TURN}x{index}x" for index in range(len(messages))]
        turns = tuple(
            Message(turn.role, word, turn.trained) for turn, word in zip(messages, words, strict=True)
        )
        try:
            rendered = _Conversation(turns, (), template).rendered_alone()
        except RowProblem:
            return None
        literals, rest = [], rendered.text
        for word in words:
            literal, found, rest = rest.partition(word)
            if not found:
                return None
            literals.append(literal)
        literals.append(rest)
        if rendered.remarks or any(_TURN in literal for literal in literals):
            return None
        starts, offset = [], 0
        for literal, word in zip(literals, words, strict=False):
            starts.append(offset + len(literal))
            offset = starts[-1] + len(word)
        boundaries = []
        for span in rendered.spans:
            ends = []
            for boundary in span:
                before = [len(word) for start, word in zip(starts, words, strict=True) if start < boundary]
                if before and starts[len(before) - 1] + before[-1] > boundary:
                    return None
                ends.append((boundary - sum(before), len(before)))
            boundaries.append((ends[0], ends[1]))
        return cls(tuple(literals), tuple(boundaries))

    def spans(self, text: str, messages: Sequence[Message]) -> tuple[Span, ...] | None:
        """Those of a conversation; None where its text is not its contents in this layout."""
        contents = [message.content for message in messages]
        if not self._is(text, contents):
            contents = [content.strip() for content in contents]
            if not self._is(text, contents):
                return None
        before = list(accumulate(map(len, contents), initial=0))
        return tuple((begin + before[one], end + before[two]) for (begin, one), (end, two) in self.boundaries)

    def _is(self, text: str, contents: list[str]) -> bool:
        pieces = [*self.literals, *contents]
        pieces[::2], pieces[1::2] = self.literals, contents
        return "".join(pieces) == text


class _Conversation:
    def __init__(
        self, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...], template: ChatTemplate
    ) -> None:
        self._messages = messages
        self._fields = [message.fields() for message in messages]
        self._tools = tools
        self._template = template
        self._remarks: list[str] = []

    def rendered(self) -> Rendered:
        if self._template.marks_generation or self._tools or any(message.extra for message in self._messages):
            return self.rendered_alone()
        text = self._template.render(self._fields)
        layout = self._layout()
        spans = layout.spans(text, self._messages) if layout is not None else None
        return Rendered(text, spans, is_plain=False) if spans else self.rendered_alone()

    def _layout(self) -> Layout | None:
        known = self._template.layouts
        shape = tuple((message.role, message.trained) for message in self._messages)
        if shape not in known:
            if len(known) >= _MOST_LAYOUTS:
                return None
            known[shape] = Layout.find(self._messages, self._template)
        layout: Layout | None = known[shape]
        return layout

    def rendered_alone(self) -> Rendered:
        """Without a layout."""
        text, marked = self._template.render_marked(self._fields, self._tools)
        spans = self._marked(marked) if self._template.marks_generation else self._found(text)
        if not spans:
            raise RowProblem(
                "row_nothing_to_train", "has no tokens to train on after the chat template is applied"
            )
        self._look_for_dropped(text)
        self._look_for_tools()
        return Rendered(text, spans, is_plain=False, remarks=tuple(self._remarks))

    def _marked(self, marked: tuple[Span, ...]) -> tuple[Span, ...]:
        answers = [index for index, message in enumerate(self._messages) if message.role == "assistant"]
        if len(marked) == len(answers):
            kept = [span for span, index in zip(marked, answers, strict=True) if self._is_learned(index)]
        else:
            kept = list(marked)
            if not all(self._messages[index].trained for index in answers):
                self._remarks.append(
                    "has turns of weight 0 that the template does not mark separately, so they are trained "
                    "as well"
                )
        return tuple(span for span in kept if span[0] < span[1])

    def _found(self, text: str) -> tuple[Span, ...]:
        spans: list[Span] = []
        for index in range(len(self._messages)):
            if not self._is_learned(index):
                continue
            found = self._of_turn(text, index, spans[-1][1] if spans else 0)
            if not found:
                self._remarks.append(
                    f"has message {index + 1} rewritten by the chat template; this message is not trained"
                )
            spans += found
        return tuple(spans)

    def _of_turn(self, text: str, index: int, after: int) -> list[Span]:
        """A turn's spans: some templates write its calls and its content in different places."""
        message = self._messages[index]
        parts = [self._by_beginnings(text, index)]
        if parts == [None]:
            parts = [self._by_call(text, index, after)]
            # In a turn that is nothing but calls, a word as content would stand where none belongs.
            if message.content or not message.extra.get("tool_calls"):
                parts.append(self._by_word(text, index, after))
        spans: list[Span] = []
        for begin, end in sorted(part for part in parts if part is not None):
            if spans and begin <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            elif after <= begin < end:
                spans.append((begin, end))
        return spans

    def _is_learned(self, index: int) -> bool:
        """Whether a turn is trained; not one whose calls are missing, which would teach to say nothing."""
        message = self._messages[index]
        calling = self._with_word_as_call(index) if message.trained else None
        whole = self._try([*self._fields[:index], calling, *self._fields[index + 1 :]]) if calling else None
        if whole is None or _WORD in whole:
            return message.trained
        is_empty = not message.content.strip()
        self._remarks.append(
            f"has tool calls in message {index + 1} that the chat template does not write"
            + ("; this message is not trained" if is_empty else "")
        )
        return not is_empty

    def _by_beginnings(self, text: str, index: int) -> Span | None:
        before = self._try(self._fields[:index], asking=True)
        if before is None or not text.startswith(before):
            return None
        is_last = index + 1 == len(self._fields)
        until = text if is_last else self._try(self._fields[: index + 1])
        if until is None or len(until) < len(before) or not text.startswith(until):
            return None
        return len(before), self._end(text, len(before), len(until), index)

    def _by_call(self, text: str, index: int, after: int) -> Span | None:
        """A turn that ends with tool calls: the word stands for the last one's name."""
        calling = self._with_word_as_call(index)
        if calling is None:
            return None
        span = self._by_word(text, index, after, calling, _name_of_last_call(self._fields[index]))
        if span is None:
            return None
        question = self._question(index)
        if question and text[: span[0]].endswith(question):
            return span
        # The span begins inside of the last call.
        begin = self._begin_of_turn(text, index)
        return None if begin is None or begin > span[0] else (begin, span[1])

    def _begin_of_turn(self, text: str, index: int) -> int | None:
        """Where a turn of tool calls begins: a content in their place would begin there."""
        behind = range(index + 1, len(self._messages))
        following = next((at for at in behind if self._messages[at].role == "user"), len(self._messages))
        turn = {"role": self._messages[index].role, "content": _WORD}
        around = _around_word(self._try([*self._fields[:index], turn, *self._fields[following:]]))
        return len(around[0]) if around is not None and text.startswith(around[0]) else None

    def _with_word_as_call(self, index: int) -> dict[str, Any] | None:
        """A turn with the word for the name of its last call."""
        calls = self._fields[index].get("tool_calls")
        if not calls:
            return None
        return {**self._fields[index], "tool_calls": [*calls[:-1], _with_word(calls[-1])]}

    def _by_word(
        self, text: str, index: int, after: int, instead: dict[str, Any] | None = None, word_for: str = ""
    ) -> Span | None:
        """`instead`: the turn with the word in place of `word_for`, which may stand behind it once more."""
        replaced = instead or {**self._fields[index], "content": _WORD}
        whole = self._try([*self._fields[:index], replaced, *self._fields[index + 1 :]])
        around = _around_word(whole, word_for)
        if around is None:
            return None
        before, behind = around
        if not text.startswith(before) or not text.endswith(behind) or len(before + behind) > len(text):
            return None
        begin, end = len(before), len(text) - len(behind)
        alone = _around_word(self._try([*self._fields[:index], replaced]), word_for)
        if alone is None and self._messages[-1].role == self._messages[index].role:
            # Some templates refuse a conversation without a question.
            alone = _around_word(self._try([*self._fields[:-1], {**self._fields[-1], "content": _WORD}]))
        if alone is not None:
            end += _closing(alone[1], behind)
        question = self._question(index)
        if question and (found := before.rfind(question, after)) >= 0:
            begin = found + len(question)
        return begin, self._end(text, begin, end, index)

    def _question(self, index: int) -> str:
        """What the template writes to ask for an answer."""
        asked, plain = self._try(self._fields[:index], asking=True), self._try(self._fields[:index])
        if asked is None or plain is None or not asked.startswith(plain):
            return ""
        return asked[len(plain) :]

    def _end(self, text: str, begin: int, end: int, index: int) -> int:
        """Space behind the mark that closes a turn is never generated; where space is the mark, it stays."""
        span = text[begin:end].rstrip()
        # A turn that is nothing but calls ends with their JSON where nothing else closes it.
        if span.endswith(self._messages[index].content.rstrip() or ("}", "]")):
            return end
        return begin + len(span)

    def _try(
        self,
        fields: list[dict[str, Any]],
        *,
        asking: bool = False,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> str | None:
        tools = self._tools if tools is None else tools
        try:
            return self._template.render(fields, tools=tools, add_generation_prompt=asking)
        except RowProblem:
            return None

    def _look_for_tools(self) -> None:
        if not self._tools:
            return
        whole = self._try(self._fields, tools=[_with_word(tool) for tool in self._tools])
        if whole is not None and _WORD not in whole:
            self._remarks.append("has tools that the chat template does not write")

    def _look_for_dropped(self, text: str) -> None:
        offset = 0
        for number, message in enumerate(self._messages, 1):
            content = message.content.strip()
            found = text.find(content, offset)
            if found >= 0:
                offset = found + len(content)
            elif content not in text:
                self._remarks.append(
                    f"has message {number} ({message.role}) removed or rewritten by the chat template"
                )
        # Of earlier turns, templates of reasoning models remove them on purpose.
        for name, thought in _thoughts(self._messages[-1]):
            if thought not in text:
                self._remarks.append(
                    f"has {name} in message {len(self._messages)} that the chat template does not write"
                )


def _thoughts(message: Message) -> list[tuple[str, str]]:
    """What a model thought before an answer, by the names of its field in use."""
    fields = ((name, message.extra.get(name)) for name in ("reasoning_content", "reasoning", "thinking"))
    return [(name, value.strip()) for name, value in fields if isinstance(value, str)]


def _with_word(call_or_tool: dict[str, Any]) -> dict[str, Any]:
    """With the word for its name."""
    function = function_of(call_or_tool)
    renamed = {**function, "name": _WORD}
    return renamed if function is call_or_tool else {**call_or_tool, "function": renamed}


def _around_word(whole: str | None, again: str = "") -> tuple[str, str] | None:
    """What stands before the word and behind it. It stands there once, or behind it for `again`."""
    before, found, behind = (whole or "").partition(_WORD)
    if not found or (_WORD in behind and not again):
        return None
    return before, behind.replace(_WORD, again)


def _name_of_last_call(fields: dict[str, Any]) -> str:
    return str(function_of(fields["tool_calls"][-1]).get("name", ""))


def _closing(alone: str, followed: str) -> int:
    """How many characters close a turn: those that stand behind it whether or not other turns follow.

    Two marks can begin alike, as <|user|> and <|endoftext|> do: no part of a mark closes a turn. Where
    nothing stands before the mark, the whole mark closes it.
    """
    count = 0
    for one, other in zip(alone, followed, strict=False):
        if one != other:
            break
        count += 1
    begun = followed.rfind("<", 0, count)
    if begun < 0 or ">" in followed[begun:count]:
        return count
    if followed[:begun].strip():
        return begun
    return max(count, followed.find(">", count) + 1)
