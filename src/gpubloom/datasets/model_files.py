"""ModelFiles: what a model folder says about text, its chat template and its tokenizer.

The tokenizer turns rendered text into token ids and a mask, with tokenizer.json and the `tokenizers` library.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubloom.datasets.example import Span
from gpubloom.datasets.rendering import Rendered
from gpubloom.datasets.template import ChatTemplate
from gpubloom.errors import InputError


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids, and the spans of them that are trained, in order."""

    ids: list[int]
    spans: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def trained(self) -> tuple[bool, ...]:
        """For each token whether it is trained."""
        flags = [False] * len(self.ids)
        for begin, end in self.spans:
            flags[begin:end] = [True] * (end - begin)
        return tuple(flags)

    @property
    def trained_count(self) -> int:
        return sum(end - begin for begin, end in self.spans)

    @property
    def predicted_count(self) -> int:
        """The trained tokens without the first token, which has nothing before it to be predicted from."""
        return self.trained_count - (bool(self.spans) and self.spans[0][0] == 0)

    def cut(self, length: int) -> "Tokens":
        """The first tokens."""
        spans = tuple((begin, min(end, length)) for begin, end in self.spans if begin < length)
        return Tokens(self.ids[:length], spans)


class RowTokenizer:
    """A tokenizer.json that also knows which characters a token came from."""

    def __init__(self, backend: Any, eos: str = "") -> None:
        self._backend = backend
        # A file may bring truncation and padding along; a row has the length it has.
        backend.no_truncation()
        backend.no_padding()
        self._eos: int | None = backend.token_to_id(eos) if eos else None

    @classmethod
    def load(cls, path: Path, eos: str = "") -> "RowTokenizer":
        """From a tokenizer.json or the folder that holds one."""
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise InputError("tokenizer_not_found", f"The tokenizer file {file} does not exist.")
        try:
            import tokenizers
        except ModuleNotFoundError:
            raise InputError(
                "not_installed",
                "Counting tokens needs the library tokenizers, which is not installed. "
                "Run: pip install 'gpubloom[data]'",
            ) from None
        try:
            backend = tokenizers.Tokenizer.from_file(str(file))
        except Exception as problem:  # noqa: BLE001 - the library raises bare Exception for a bad file
            raise InputError(
                "tokenizer_invalid", f"{file} is not a valid tokenizer.json: {problem}."
            ) from None
        return cls(backend, eos)

    def vocabulary(self, *, with_added_tokens: bool = True) -> dict[str, int]:
        """Every token and its id."""
        found: dict[str, int] = self._backend.get_vocab(with_added_tokens=with_added_tokens)
        return found

    def encode(self, rendered: Rendered) -> Tokens:
        return self.encode_many([rendered])[0]

    def encode_many(self, rows: Sequence[Rendered]) -> list[Tokens]:
        """Several rows at once, which the library does on all cores."""
        found: list[Tokens | None] = [None] * len(rows)
        for plain in (True, False):
            indices = [index for index, row in enumerate(rows) if row.is_plain is plain]
            # A template writes the special tokens itself; plain text gets those of the tokenizer.
            encodings = self._backend.encode_batch(
                [rows[index].text for index in indices], add_special_tokens=plain
            )
            for index, encoding in zip(indices, encodings, strict=True):
                found[index] = self._masked(rows[index], encoding)
        return [tokens for tokens in found if tokens is not None]

    def _masked(self, row: Rendered, encoding: Any) -> Tokens:
        if not row.is_plain and (found := _token_spans(row, encoding)) is not None:
            return Tokens(encoding.ids, found)
        ids, added = encoding.ids, encoding.special_tokens_mask
        offsets = encoding.offsets
        if row.is_plain and self._eos is not None and ids[-2:] == [self._eos, self._eos]:
            # The tokenizer ends a text by itself, and so did we.
            ids, added, offsets = ids[:-1], added[:-1], offsets[:-1]
        trained: list[Span] = []
        spans, index = row.spans, 0
        for token, ((begin, end), special) in enumerate(zip(offsets, added, strict=True)):
            while index < len(spans) and spans[index][1] <= begin:
                index += 1
            first = spans[index][0] if index < len(spans) else len(row.text)
            if begin < first < end and not row.text[begin:first].strip(" "):
                # The space before a word belongs to its token: with it, the word itself would be lost.
                begin = first
            if first <= begin < len(row.text) and not (special and begin == end):
                _append(trained, token, token + 1)
        return Tokens(ids, tuple(trained))


def _token_spans(row: Rendered, encoding: Any) -> tuple[Span, ...] | None:
    """What `_masked` finds token by token, asked for the ends of the spans only: lists of all offsets cost
    more than tokenizing. None where a tokenizer drops characters at an end."""
    trained: list[Span] = []
    count = len(encoding)
    for begin, end in row.spans:
        if begin == end:
            continue
        first, last = encoding.char_to_token(begin), encoding.char_to_token(end - 1)
        if first is None or last is None:
            return None
        starts = encoding.token_to_chars(first)[0]
        if starts < begin and row.text[starts:begin].strip(" "):
            # Its end alone belongs to the span; the next token that begins there counts.
            while first < count and encoding.token_to_chars(first)[0] < begin:
                first += 1
        # A character may be several tokens.
        while last + 1 < count and encoding.token_to_chars(last + 1)[0] < end:
            last += 1
        if trained and first < trained[-1][1]:
            return None
        if first <= last:
            _append(trained, first, last + 1)
    return tuple(trained)


def _append(spans: list[Span], begin: int, end: int) -> None:
    if spans and spans[-1][1] == begin:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((begin, end))


@dataclass(frozen=True)
class ModelFiles:
    """How rows become text and tokens for one model."""

    template: ChatTemplate
    tokenizer: RowTokenizer
    # Positions that the model was trained with, where its config.json says so.
    positions: int | None = None
    # Whether the template is none of the folder's own.
    has_other_template: bool = False

    @classmethod
    def load(cls, path: Path, template_name: str | None = None) -> "ModelFiles":
        """From a model folder, or a tokenizer.json (what lies beside it counts as well). `template_name`: one
        of TEMPLATES in place of the folder's own."""
        folder = path if path.is_dir() else path.parent
        template = ChatTemplate.from_folder(folder, template_name)
        tokenizer = RowTokenizer.load(path, template.eos)
        is_other = template_name is not None or template.is_fallback
        return cls(template, tokenizer, _positions(folder / "config.json"), is_other)


def _positions(file: Path) -> int | None:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        # What is wrong with it is said by whoever needs it.
        return None
    count = said.get("max_position_embeddings") if isinstance(said, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None
