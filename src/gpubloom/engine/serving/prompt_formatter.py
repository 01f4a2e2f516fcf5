"""PromptFormatter: how text becomes tokens for a model, and where its answer ends.

Conversations are rendered and tokenized by the code that prepares training data (`gpubloom.datasets`), so a
prompt has the same form as the training examples.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpubloom.datasets import ChatTemplate, Rendered, RowProblem, RowTokenizer
from gpubloom.datasets.template import PLAIN
from gpubloom.engine.data import Tokenizer
from gpubloom.engine.llama_folder import TOKENIZER_FILE
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.errors import InputError
from gpubloom.json_files import read_json, read_optional_json

_WORD = f"answer{secrets.token_hex(8)}"


@dataclass(frozen=True)
class PromptFormatter:
    """The tokenizer and chat template of a model, and the tokens and texts that end an answer."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    ends: frozenset[int]
    # Where a turn ends without a token of its own.
    turn_ends: tuple[str, ...]
    # The space that a question ends with, where a token of the answer brings it along.
    lead: str
    note: str | None
    _rows: RowTokenizer
    # How many tokens the model knows; None: config.json does not say.
    _known: int | None
    _adds_special_tokens: bool

    @classmethod
    def of(cls, found: ResolvedModel) -> "PromptFormatter":
        file = found.file(TOKENIZER_FILE)
        if file is None:
            raise InputError(
                "no_tokenizer",
                f"{found.folder} has no {TOKENIZER_FILE}. A model cannot generate text without it.",
            )
        tokenizer = Tokenizer.load(file)
        template = _template(found)
        rows = RowTokenizer.load(file, template.eos)
        ends = set(_named_ends(found))
        if tokenizer.end_of_text is not None:
            ends.add(tokenizer.end_of_text)
        token, text = _turn_end(template, tokenizer, rows)
        if token is not None:
            ends.add(token)
        # Without a template of its own, a model knows the plain one only if it was trained with it.
        can_chat = template.source != PLAIN or found.trained_on_examples
        return cls(
            tokenizer=tokenizer,
            template=template if can_chat else None,
            ends=frozenset(ends),
            turn_ends=(text,) if text and token is None else (),
            lead=_lead(template, rows),
            note=template.note if can_chat else None,
            _rows=rows,
            _known=_vocab_size(found),
            _adds_special_tokens=not found.trained_on_text,
        )

    def chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The tokens of the prompt for the next answer; InputError when the model cannot chat."""
        if self.template is None:
            raise InputError(
                "no_chat_template",
                "This model has no chat template and was not trained on conversations: use text completion "
                "instead (/v1/completions).",
            )
        try:
            text = self.template.render(messages, add_generation_prompt=True)
        except RowProblem as problem:
            raise InputError("invalid_conversation", f"The conversation {problem}.") from None
        return self._must_know(_tokens(text.removesuffix(self.lead), self._rows))

    def completion(self, text: str) -> list[int]:
        """The tokens of a text to continue, with the same beginning as in training."""
        row = Rendered(text, (), is_plain=self._adds_special_tokens)
        ids = list(self._rows.encode(row).ids)
        if self._adds_special_tokens:
            ids = ids[: len(ids) - _added_behind(self._rows)]
        # A document begins after the end of the one before it.
        return self._must_know(ids) or [self.tokenizer.end_of_text or 0]

    def _must_know(self, ids: list[int]) -> list[int]:
        """A tokenizer may have added tokens that its model lacks: Gemma's, for images."""
        if self._known is not None and (unknown := [each for each in ids if each >= self._known]):
            token = next(text for text, each in self._rows.vocabulary().items() if each == unknown[0])
            raise InputError(
                "unknown_token",
                f"The prompt contains {token}, a token that the model does not know: remove it.",
            )
        return ids


def _vocab_size(found: ResolvedModel) -> int | None:
    file = found.file("config.json")
    config = {} if file is None else read_json(file)
    size = (config.get("text_config") or config).get("vocab_size")
    return size if isinstance(size, int) else None


def _tokens(text: str, rows: RowTokenizer) -> list[int]:
    return list(rows.encode(Rendered(text, (), is_plain=False)).ids)


def _lead(template: ChatTemplate, rows: RowTokenizer) -> str:
    """The space at the end of a question, unless it is a token of its own in front of an answer as well."""
    try:
        question = template.render([{"role": "user", "content": "."}], add_generation_prompt=True)
    except RowProblem:
        return ""
    alone, answered = _tokens(question, rows), _tokens(f"{question}The", rows)
    return "" if answered[: len(alone)] == alone else question[len(question.rstrip(" ")) :]


def _added_behind(rows: RowTokenizer) -> int:
    """How many tokens the tokenizer ends every text with; what is to be continued has no end yet."""
    whole, bare = (rows.encode(Rendered("a", (), is_plain=plain)).ids for plain in (True, False))
    return max(0, len(whole) - 1 - max(index for index, token in enumerate(whole) if token == bare[-1]))


def _template(found: ResolvedModel) -> ChatTemplate:
    template = ChatTemplate.from_folder(found.folder)
    if template.is_fallback and found.base is not None and found.is_adapter:
        of_base = ChatTemplate.from_folder(found.base)
        if not of_base.is_fallback or not template.eos:
            return of_base
    return template


def _named_ends(found: ResolvedModel) -> Iterator[int]:
    """The ends that generation_config.json and config.json name, of the model and of its base."""
    folders = [found.folder] if found.base is None else [found.folder, found.base]
    for folder in folders:
        for name in ("generation_config.json", "config.json"):
            ends = read_optional_json(folder / name).get("eos_token_id")
            for end in ends if isinstance(ends, list) else [ends]:
                if isinstance(end, int) and not isinstance(end, bool) and end >= 0:
                    yield end


def _turn_end(
    template: ChatTemplate, tokenizer: Tokenizer, rows: RowTokenizer
) -> tuple[int | None, str | None]:
    """What a template writes behind an answer: a token of its own, or else the text before the next turn.

    A base model's own end of text is often another than the one that its turns are trained to end with. The
    last turn counts more than those before it, which gpt-oss ends with a token that also stands in answers.
    """
    turns = [{"role": "user", "content": "."}, {"role": "assistant", "content": _WORD}]
    question = {"role": "user", "content": f"next{_WORD}"}
    try:
        last, whole = template.render(turns), template.render([*turns, question])
    except RowProblem:
        return None, None
    closing = whole.partition(_WORD)[2].partition(question["content"])[0]
    for token in _tokens(last.partition(_WORD)[2], rows) + _tokens(closing, rows):
        if tokenizer.is_special(token):
            return token, None
    return None, closing if closing.strip() else None
