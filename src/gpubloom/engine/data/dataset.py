"""Dataset: the tokens of a run, split into training and evaluation, and the tokenizer that made them.

A dataset is a value: opening the same files with the same config gives the same dataset. A path that is not
text raises ValueError with one sentence that says why.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpubloom.datasets.downloading import Tell, tell_on_stderr
from gpubloom.datasets.remote_data import fetch_data, is_remote
from gpubloom.engine.data.rows import Rows, Tokens, Windows
from gpubloom.engine.data.tokenizer import Tokenizer
from gpubloom.errors import InputError
from gpubloom.plan import DataConfig
from gpubloom.plan.data_files import find_token_files, read_text_files, text_of
from gpubloom.plan.run_files import DATA_FOLDER
from gpubloom.traincard import Reporter
from gpubloom.traincard.findings import Finding

_FINGERPRINT_TOKENS = 1 << 20


@dataclass(frozen=True)
class Dataset:
    """The training data and the evaluation data of a run."""

    train: Rows
    eval: Rows | None
    tokenizer: Tokenizer
    findings: tuple[Finding, ...] = ()
    # The token that closes what the model writes in a conversation, where it is a special one.
    turn_end: int | None = None
    # Of a file of examples: rows that became examples, to train or to evaluate on, and rows that there are.
    rows_used: int | None = None
    rows_total: int | None = None

    @classmethod
    def open(
        cls,
        config: DataConfig,
        context_length: int,
        cache: Path | None = None,
        tell: Tell = tell_on_stderr,
    ) -> "Dataset":
        """Reads and tokenizes; trains the tokenizer when it has to be trained.

        Tokenized examples are kept in `cache`, a folder of their own, so that a resume finds them there.
        `tell` gets a sentence when data at an address has to be waited for.
        """
        if config.train_path is None:
            raise InputError(
                "no_data", "No training data is given: set data.train_path to a file, a folder or a glob."
            )
        config = _with_files(config, cache, tell)
        assert config.train_path is not None
        if config.kind == "examples":
            return cls._of_examples(config, context_length, cache)
        train, tokenizer, notes = _tokens(config.train_path, config, None)
        if config.eval_path is not None:
            evaluation, _, more = _tokens(config.eval_path, config, tokenizer)
            _must_hold(evaluation, context_length, config.eval_path)
            notes += more
        else:
            train, evaluation = _split(train, config, context_length)
        _must_hold(train, context_length, config.train_path)
        return cls(
            train=Windows(train, context_length),
            eval=Windows(evaluation, context_length) if len(evaluation) else None,
            tokenizer=tokenizer,
            findings=tuple(Finding("run_warning", "warning", note) for note in notes),
        )

    @classmethod
    def _of_examples(cls, config: DataConfig, context_length: int, cache: Path | None) -> "Dataset":
        # Brings what reads tables and templates, which running text does not need.
        from gpubloom.engine.data.examples import open_examples

        tokenizer = Tokenizer.create(config.tokenizer, ())
        found = open_examples(config, context_length, cache)
        if found.facts.template is not None:
            tokenizer = tokenizer.with_template(found.facts.template)
        end = found.facts.turn_end
        return cls(
            train=found.train,
            eval=found.eval,
            tokenizer=tokenizer,
            findings=found.facts.findings,
            turn_end=end if end is not None and tokenizer.is_special(end) else None,
            rows_used=found.facts.rows_used,
            rows_total=found.facts.rows_total,
        )

    def report(self, reporter: Reporter) -> None:
        """Tells what was read and what a person should know about it, before a model is loaded for it."""
        if self.rows_total is not None:
            reporter.describe({"rows_used": self.rows_used, "rows_total": self.rows_total})
        for finding in self.findings:
            reporter.finding(finding)

    @property
    def notes(self) -> tuple[str, ...]:
        """The findings as sentences."""
        return tuple(finding.sentence for finding in self.findings)

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def must_suit(self, known: int) -> None:
        """InputError when a model that knows `known` tokens cannot be trained on these."""
        self.tokenizer.must_suit(known, (rows.tokens for rows in (self.train, self.eval) if rows is not None))

    def fingerprint(self) -> str:
        """Changes when the data does; looks at the ends and the middle, so that huge files stay cheap."""
        digest = hashlib.sha256()
        for rows in (self.train, self.eval):
            if rows is not None:
                tokens, middle = rows.tokens, len(rows.tokens) // 2
                digest.update(f"{len(tokens)} {rows.length} {tokens.dtype};".encode())
                for part in (tokens[:_FINGERPRINT_TOKENS], tokens[middle:][:_FINGERPRINT_TOKENS]):
                    digest.update(np.ascontiguousarray(part).tobytes())
                digest.update(np.ascontiguousarray(tokens[-_FINGERPRINT_TOKENS:]).tobytes())
        return digest.hexdigest()


def _with_files(config: DataConfig, cache: Path | None, tell: Tell) -> DataConfig:
    """The config with files in place of addresses, which are fetched beside the run, or for this user."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpubloom"
    folder = own / "data" if cache is None else cache.parent / DATA_FOLDER
    found = {
        name: str(fetch_data(path, folder, tell=tell))
        for name in ("train_path", "eval_path")
        if is_remote(path := getattr(config, name))
    }
    return config.model_copy(update=found)


def _tokens(
    path: str, config: DataConfig, tokenizer: Tokenizer | None
) -> tuple[Tokens, Tokenizer, tuple[str, ...]]:
    if (files := find_token_files(path)) is not None:
        tokenizer = tokenizer or _tokenizer_of_token_files(config)
        return _read_token_files(files, config.token_dtype, tokenizer.vocab_size), tokenizer, ()
    documents, skipped = read_text_files(path, lambda file: "".join(text_of(file)))
    tokenizer = tokenizer or Tokenizer.create(config.tokenizer, documents)
    return _join(documents, tokenizer), tokenizer, _notes(path, skipped)


def _tokenizer_of_token_files(config: DataConfig) -> Tokenizer:
    if config.tokenizer.kind == "bpe":
        raise InputError(
            "tokenizer_needed",
            "A BPE tokenizer cannot be trained on .bin token files: set data.tokenizer.kind to file and "
            "data.tokenizer.path to the tokenizer.json that was used to create the files.",
        )
    return Tokenizer.create(config.tokenizer, ())


def _read_token_files(files: Sequence[Path], dtype: str, vocab_size: int) -> Tokens:
    arrays = []
    for file in files:
        size, width = file.stat().st_size, np.dtype(dtype).itemsize
        if size == 0:
            raise InputError("data_empty", f"{file} is empty: there is nothing to train on.")
        if size % width:
            raise InputError(
                "invalid_token_file",
                f"{file} has {size:,} bytes, which is not a whole number of {dtype} tokens: check "
                "data.token_dtype.",
            )
        array = np.memmap(file, dtype=np.dtype(dtype).newbyteorder("<"), mode="r")
        if (largest := int(array.max())) >= vocab_size:
            raise InputError(
                "token_out_of_range",
                f"{file} contains token {largest}, but the tokenizer has only {vocab_size} tokens: "
                "set data.tokenizer.kind=file and data.tokenizer.path, or check data.token_dtype.",
            )
        arrays.append(array)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _join(documents: Sequence[str], tokenizer: Tokenizer) -> Tokens:
    """One array, documents closed by end-of-text where the tokenizer has such a token."""
    parts: list[Tokens] = []
    for document in documents:
        encoded = tokenizer.encode(document)
        parts.append(encoded)
        if tokenizer.end_of_text is not None:
            parts.append(np.array([tokenizer.end_of_text], dtype=encoded.dtype))
    return np.concatenate(parts)


def _split(tokens: Tokens, config: DataConfig, context_length: int) -> tuple[Tokens, Tokens]:
    """Training tokens and the tail kept for evaluation: at least one window, however short the text."""
    if config.eval_fraction == 0:
        return tokens, tokens[:0]
    kept = max(int(len(tokens) * config.eval_fraction), context_length + 1)
    if len(tokens) < kept + context_length + 1:
        raise InputError(
            "data_too_short",
            f"{config.train_path} is too short: {len(tokens):,} tokens, but training and evaluation need "
            f"{context_length + 1:,} each; use more text or a smaller model.context_length.",
        )
    return tokens[:-kept], tokens[-kept:]


def _must_hold(tokens: Tokens, context_length: int, path: str) -> None:
    if len(tokens) < context_length + 1:
        raise InputError(
            "data_too_short",
            f"{path} is too short: {len(tokens):,} tokens, but one sequence needs {context_length + 1:,}; "
            "use more text or a smaller model.context_length.",
        )


def _notes(path: str, skipped: Sequence[Path]) -> tuple[str, ...]:
    if not skipped:
        return ()
    names = ", ".join(file.name for file in skipped[:3])
    more = ", …" if len(skipped) > 3 else ""
    count = len(skipped)
    what = "1 file is not UTF-8 text and was" if count == 1 else f"{count} files are not UTF-8 text and were"
    return (f"{path}: {what} skipped ({names}{more})",)
