"""ChatTemplate: the Jinja template of a model, compiled in a sandbox, as the libraries that run it do.

A template is a program from somebody else. It gets values and gives text: no attribute that begins with an
underscore, no changing of what it is given, no more than a second and a few megabytes of text.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gpubloom.datasets.example import Span
from gpubloom.datasets.problems import RowProblem, TemplateLimit
from gpubloom.datasets.tool_calls import parsed_message
from gpubloom.errors import InputError
from gpubloom.json_files import read_json

PLAIN = """\
{%- for message in messages -%}
{{ message.role }}: {{ message.content }}{{ eos_token if message.role == "assistant" }}{{ "\\n" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "assistant: " }}{% endif -%}
"""
CHATML = """\
{%- for message in messages -%}
{{ "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif -%}
"""
ALPACA = """\
{%- for message in messages -%}
{%- if message.role == "assistant" -%}
{{ "### Response:\\n" + message.content + eos_token + "\\n\\n" }}
{%- elif message.role == "user" -%}
{{ "### Instruction:\\n" + message.content + "\\n\\n" }}
{%- else -%}
{{ message.content + "\\n\\n" }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "### Response:\\n" }}{% endif -%}
"""
# Templates that a person can choose for a model that has none, or in place of its own.
TEMPLATES = {"chatml": CHATML, "alpaca": ALPACA, "plain": PLAIN}
PLAIN_NOTE = "The model has no chat template, so a plain template is used: 'user: …', 'assistant: …'."
# What transformers calls the template of conversations with tools, where a model has several.
_TOOL_USE = "tool_use"
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_KNOWS_NULL = re.compile(r"content['\")\]]* +is +(not +)?none", re.IGNORECASE)
# Around what the model itself writes, while a text is being rendered; nobody can write it into their data.
_MARK = secrets.token_hex(12)
_OPEN, _CLOSE = f"<{_MARK}>", f"</{_MARK}>"


@dataclass(frozen=True)
class ChatTemplate:
    """A template with the special tokens it may name."""

    source: str
    tokens: dict[str, str] = field(default_factory=dict)
    note: str | None = None
    # Some models have another one for conversations with tools.
    tool_source: str | None = None
    # What `rendering` has found out about it, by the roles of a conversation.
    layouts: dict[tuple[tuple[str, bool], ...], Any] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @classmethod
    def plain(cls, eos: str = "") -> "ChatTemplate":
        return cls(PLAIN, {"eos_token": eos}, PLAIN_NOTE)

    @classmethod
    def from_folder(cls, folder: Path, chosen: str | None = None) -> "ChatTemplate":
        """The template of a model folder, or the plain one, announced as such; or the one of TEMPLATES that
        was chosen, with the special tokens of the folder."""
        config = _read_object(folder / "tokenizer_config.json")
        tokens = _special_tokens(_read_object(folder / "special_tokens_map.json")) | _special_tokens(config)
        if "eos_token" not in tokens and (end := _end_by_id(folder)) is not None:
            tokens["eos_token"] = end
        if chosen is not None:
            return cls(TEMPLATES[chosen], {"eos_token": "", **tokens})
        source, note, tool_source = config.get("chat_template"), None, None
        if isinstance(source, list):
            source, note, tool_source = _choose(source)
        file = folder / "chat_template.jinja"
        if file.is_file():
            source, tool_source = file.read_text(encoding="utf-8"), None
        elif source is None:
            source = _read_object(folder / "chat_template.json").get("chat_template")
        if not isinstance(source, str) or not source.strip():
            return cls.plain(tokens.get("eos_token", ""))
        template = cls(source, tokens, note, tool_source)
        _compile(source)
        return template

    @cached_property
    def for_tools(self) -> "ChatTemplate":
        """The template of conversations with tools, as transformers chooses it."""
        return self if self.tool_source is None else replace(self, source=self.tool_source, tool_source=None)

    @property
    def is_fallback(self) -> bool:
        """Whether nobody said which template to use."""
        return self.note == PLAIN_NOTE

    @cached_property
    def marks_generation(self) -> bool:
        return _GENERATION.search(self.source) is not None

    @property
    def eos(self) -> str:
        return self.tokens.get("eos_token", "")

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] = (),
        add_generation_prompt: bool = False,
    ) -> str:
        """The text of a conversation; raises RowProblem when the template refuses it."""
        return _without_marks(self._run(messages, tools, add_generation_prompt))[0]

    def render_marked(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
    ) -> tuple[str, tuple[Span, ...]]:
        """The text and the spans that the template itself marks with {% generation %}."""
        return _without_marks(self._run(messages, tools, False))

    def _run(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], add_generation_prompt: bool
    ) -> str:
        if all(message.get("content") is not None for message in messages):
            return self._rendered(messages, tools, add_generation_prompt)
        filled = [{**message, "content": message.get("content") or ""} for message in messages]
        if _KNOWS_NULL.search(self.source) is None:
            # It would write the word None, and a model would learn it.
            return self._rendered(filled, tools, add_generation_prompt)
        try:
            return self._rendered(messages, tools, add_generation_prompt)
        except RowProblem:
            return self._rendered(filled, tools, add_generation_prompt)

    def _rendered(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], add_generation_prompt: bool
    ) -> str:
        render = _compile(self.source)
        from jinja2 import TemplateError

        try:
            return render(
                messages=[parsed_message(message) for message in messages],
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self.tokens,
            )
        except TemplateLimit:
            # The other rows would exceed the limit too.
            raise
        except TemplateError as problem:
            raise RowProblem(
                "row_refused_by_template", f"is rejected by the chat template: {problem.message}"
            ) from None
        except (TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as problem:
            raise RowProblem(
                "row_refused_by_template", f"does not work with the chat template: {problem}"
            ) from None


@cache
def _compile(source: str) -> Callable[..., str]:
    try:
        from gpubloom.datasets.template_sandbox import compile_template
    except ModuleNotFoundError:
        raise InputError(
            "not_installed",
            "Chat templates need Jinja2, which is not installed. Run: pip install 'gpubloom[data]'",
        ) from None
    return compile_template(source, _OPEN, _CLOSE)


def _without_marks(marked: str) -> tuple[str, tuple[Span, ...]]:
    if _OPEN not in marked:
        return marked, ()
    text, *pieces = marked.split(_OPEN)
    spans = []
    for piece in pieces:
        inside, _, outside = piece.partition(_CLOSE)
        spans.append((len(text), len(text) + len(inside)))
        text += inside + outside
    return text, tuple(spans)


def _choose(named: list[Any]) -> tuple[str | None, str | None, str | None]:
    """The template, a note, and the template of conversations with tools."""
    templates = {str(entry.get("name")): entry.get("template") for entry in named if isinstance(entry, dict)}
    if not templates:
        return None, None, None
    name = "default" if "default" in templates else next(iter(templates))
    with_tools = templates.get(_TOOL_USE)
    also = f", and {_TOOL_USE!r} for conversations with tools" if isinstance(with_tools, str) else ""
    return (
        templates[name],
        f"The model has {len(templates)} chat templates; {name!r} is used{also}.",
        with_tools if also else None,
    )


def _special_tokens(said: dict[str, Any]) -> dict[str, str]:
    return {
        name: text
        for name, value in said.items()
        if name.endswith("_token") and (text := _token_text(value)) is not None
    }


def _end_by_id(folder: Path) -> str | None:
    """The end of a text where only config.json names one, by its id, as GPT-2's does."""
    try:
        end = _read_object(folder / "config.json").get("eos_token_id")
        if isinstance(end, list):
            end = end[0] if end else None
        added = None if end is None else _read_object(folder / "tokenizer.json").get("added_tokens")
    except InputError:
        # What is wrong with these files is said by whoever needs them.
        return None
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and token.get("id") == end:
            return _token_text(token)
    return None


def _token_text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _read_object(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}
