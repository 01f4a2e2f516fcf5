"""Tokenizers: plain bytes, a BPE trained on the run's own text, or a tokenizer.json that a file names.

All three are one `tokenizers.Tokenizer` underneath, so that what a run exports is what it trained with.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpubloom.engine.data.rows import Tokens
from gpubloom.errors import InputError
from gpubloom.plan import TokenizerConfig
from gpubloom.plan.data_files import TOKENIZER_FILES

END_OF_TEXT = "<|endoftext|>"

_CONFIG_FILE, _TOKENS_FILE = "tokenizer_config.json", "special_tokens_map.json"


class Tokenizer:
    """Text to token ids and back."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        is_bytes: bool,
        auxiliary_files: Mapping[str, bytes] | None = None,
    ) -> None:
        """`auxiliary_files`: the files of a tokenizer that was not made here, by name."""
        self._backend = backend
        self._is_bytes = is_bytes
        self._auxiliary_files = dict(auxiliary_files or {})
        # Ids may have gaps: the largest one counts, not the number of tokens.
        self.vocab_size: int = _past_last(backend.get_vocab())
        said = (_named_end(self._auxiliary_files.get(name)) for name in (_CONFIG_FILE, _TOKENS_FILE))
        self.end_of_text: int | None = backend.token_to_id(next(filter(None, said), END_OF_TEXT))

    @classmethod
    def create(cls, config: TokenizerConfig, documents: Iterable[str]) -> "Tokenizer":
        """The tokenizer that a config asks for; documents are only looked at when it must be trained."""
        match config.kind:
            case "bytes":
                return cls(_byte_backend(), is_bytes=True)
            case "bpe":
                return cls(_trained_backend(documents, config.vocab_size), is_bytes=False)
            case "file":
                assert config.path is not None
                return cls.load(Path(config.path))

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        if not path.is_file():
            raise InputError("tokenizer_not_found", f"The tokenizer file {path} does not exist.")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as problem:  # noqa: BLE001 - the library raises bare Exception for a bad file
            raise InputError(
                "tokenizer_invalid", f"{path} is not a valid tokenizer.json: {problem}."
            ) from None
        auxiliary_files = {
            name: file.read_bytes() for name in TOKENIZER_FILES if (file := path.with_name(name)).is_file()
        } | {"tokenizer.json": path.read_bytes()}
        # A file may bring truncation and padding along; a text has the length it has.
        backend.no_truncation()
        backend.no_padding()
        is_bytes = backend.to_str() == _byte_backend().to_str()
        return cls(backend, is_bytes=is_bytes, auxiliary_files=auxiliary_files)

    def encode(self, text: str) -> Tokens:
        dtype = np.uint16 if self.vocab_size <= 2**16 else np.uint32
        if self._is_bytes:
            # The backend gives the same ids, a thousand times slower.
            return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(dtype)
        return np.asarray(self._backend.encode(text, add_special_tokens=False).ids, dtype=dtype)

    def must_suit(self, known: int, tokens: Iterable[Tokens]) -> None:
        """InputError when a model that knows `known` tokens lacks one of the text's, or one of `tokens`.

        A tokenizer may have added tokens that its model lacks: Gemma's have one for images, which models that
        read only text do not know. Such a token harms nobody who does not use it.
        """
        if self.vocab_size <= known:
            return
        if _past_last(self._backend.get_vocab(with_added_tokens=False)) > known:
            raise InputError(
                "tokenizer_mismatch",
                f"The tokenizer has {self.vocab_size:,} tokens, but the vocabulary of the model has only "
                f"{known:,}: use the tokenizer that belongs to the model (data.tokenizer.path).",
            )
        largest = max((int(each.max(initial=0)) for each in tokens), default=0)
        if largest >= known:
            raise InputError(
                "tokenizer_mismatch",
                f"The data contains {self._backend.id_to_token(largest)}, a token that the model does not "
                "know: remove it from the data.",
            )

    def is_special(self, token: int) -> bool:
        """Whether a token stands for itself and never for a piece of text."""
        added = self._backend.get_added_tokens_decoder().get(token)
        return added is not None and bool(added.special)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=True)
        return text

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Text as it becomes certain: a character cut in the middle waits for its last byte."""
        # Some tokenizers drop a space before the first word: a piece is decoded with the one before it.
        before: list[int] = []
        pending: list[int] = []
        for token in ids:
            pending.append(token)
            text = self.decode([*before, *pending])[len(self.decode(before)) :]
            if not text.endswith("\N{REPLACEMENT CHARACTER}") or len(pending) >= 4:
                yield text
                before, pending = pending, []
        if pending:
            yield self.decode([*before, *pending])[len(self.decode(before)) :]

    def with_template(self, source: str) -> "Tokenizer":
        """The same tokenizer, saved with this chat template."""
        files = {**self._auxiliary_files, "chat_template.jinja": source.encode()}
        return Tokenizer(self._backend, is_bytes=self._is_bytes, auxiliary_files=files)

    def save(self, folder: Path, context_length: int) -> None:
        """tokenizer.json and what transformers' AutoTokenizer wants beside it."""
        self._backend.save(str(folder / "tokenizer.json"))
        for name, content in self._auxiliary_files.items():
            (folder / name).write_bytes(content)
        if _CONFIG_FILE in self._auxiliary_files:
            return
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": context_length,
            "clean_up_tokenization_spaces": False,
        }
        if self.end_of_text is not None:
            config |= {"eos_token": END_OF_TEXT}
        (folder / _CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _past_last(vocabulary: Mapping[str, int]) -> int:
    return max(vocabulary.values(), default=-1) + 1


def _named_end(config: bytes | None) -> str | None:
    """The end of a text as a file beside tokenizer.json names it: a token, or an object describing one."""
    try:
        settings = json.loads(config or b"{}")
    except ValueError:
        return None
    end = settings.get("eos_token") if isinstance(settings, dict) else None
    end = end.get("content") if isinstance(end, dict) else end
    return end if isinstance(end, str) else None


def _byte_backend() -> tokenizers.Tokenizer:
    """256 tokens whose id is the byte's value, and end-of-text: a BPE without merges."""
    vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    return _byte_level(backend)


def _trained_backend(documents: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    backend = _byte_level(tokenizers.Tokenizer(models.BPE()), special=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=_byte_characters(),
        show_progress=False,
    )
    backend.train_from_iterator(documents, trainer)
    return backend


def _byte_level(backend: tokenizers.Tokenizer, *, special: bool = True) -> tokenizers.Tokenizer:
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if special:
        backend.add_special_tokens([END_OF_TEXT])
    return backend


def _byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies, by byte value."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    characters, spare = [], 0x100
    for byte in range(256):
        if byte in printable:
            characters.append(chr(byte))
        else:
            characters.append(chr(spare))
            spare += 1
    return characters
