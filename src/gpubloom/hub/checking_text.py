"""The tokenizer of a model folder: does it belong to the weights, and does its chat template work."""

import json
from pathlib import Path
from typing import Any

from gpubloom.datasets import ChatTemplate, RowProblem, RowTokenizer
from gpubloom.datasets.template import PLAIN_NOTE
from gpubloom.hub.findings import Tell

_OTHER_TOKENIZERS = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_CONVERSATION = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"})


def check_text(folder: Path, config: dict[str, Any], tell: Tell) -> bool:
    """Says what is wrong with tokenizer and template; whether there is a chat template that works."""
    vocabulary = _check_tokenizer(folder, config, tell)
    template = _check_template(folder, config, vocabulary, tell)
    if vocabulary is not None:
        _check_special_tokens(folder, config, vocabulary, tell)
    return template


def _check_tokenizer(folder: Path, config: dict[str, Any], tell: Tell) -> dict[str, int] | None:
    if not (folder / "tokenizer.json").is_file():
        others = [name for name in _OTHER_TOKENIZERS if (folder / name).is_file()]
        advice = (
            f"; there is only {others[0]}: load it with AutoTokenizer of transformers and save it again"
            if others
            else ": take the one that the model was trained with"
        )
        tell("tokenizer_missing", "error", f"There is no tokenizer.json{advice}.")
        return None
    try:
        vocabulary = RowTokenizer.load(folder).vocabulary()
    except ValueError as problem:
        tell("tokenizer_unreadable", "error", str(problem))
        return None
    rows, largest = config.get("vocab_size"), max(vocabulary.values(), default=-1)
    if isinstance(rows, int) and largest >= rows:
        tell(
            "vocabulary_mismatch",
            "error",
            f"The tokenizer has ids up to {largest:,}, but the model has embeddings for {rows:,} tokens: "
            "it is the tokenizer of another model.",
        )
    elif isinstance(rows, int) and len(vocabulary) < rows // 2:
        tell(
            "vocabulary_small",
            "warning",
            f"The tokenizer has {len(vocabulary):,} tokens, less than half of the {rows:,} of the model: "
            "make sure that it is the model's own.",
        )
    return vocabulary


def _check_template(
    folder: Path, config: dict[str, Any], vocabulary: dict[str, int] | None, tell: Tell
) -> bool:
    try:
        template = ChatTemplate.from_folder(folder)
        text = template.render(list(_CONVERSATION))
    except (ValueError, RowProblem, OSError) as problem:
        sentence = str(problem).rstrip(".")
        tell("chat_template_broken", "error", f"The chat template does not work: {sentence}.")
        return False
    if template.note == PLAIN_NOTE:
        tell("chat_template_missing", "warning", PLAIN_NOTE)
        return False
    ends = _ends(folder, config, vocabulary or {})
    if ends and not any(end in text for end in ends):
        tell(
            "template_without_end",
            "warning",
            "The chat template never writes an end-of-text token "
            f"({', '.join(sorted(ends))}): a model trained with it does not learn to stop.",
        )
    return True


def _check_special_tokens(
    folder: Path, config: dict[str, Any], vocabulary: dict[str, int], tell: Tell
) -> None:
    said = _object(folder / "tokenizer_config.json")
    eos, pad = _text(said.get("eos_token")), _text(said.get("pad_token"))
    ids = _ids(config.get("eos_token_id")) + _ids(
        _object(folder / "generation_config.json").get("eos_token_id")
    )
    if eos is None and not ids:
        tell(
            "eos_missing",
            "warning",
            "Neither tokenizer_config.json nor config.json names an end-of-text token.",
        )
    elif eos is not None and eos not in vocabulary:
        tell("eos_unknown", "error", f"The end-of-text token {eos!r} is not in the vocabulary.")
    elif eos is not None and ids and vocabulary[eos] not in ids:
        tell(
            "eos_differs",
            "warning",
            f"The tokenizer ends a text with {eos!r} ({vocabulary[eos]}), the model's configuration with "
            f"{', '.join(map(str, ids))}: answers may not end where they should.",
        )
    if pad is not None and pad not in vocabulary:
        tell("pad_unknown", "warning", f"The padding token {pad!r} is not in the vocabulary.")
    rows = config.get("vocab_size")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if isinstance(rows, int) and (beyond := [each for each in _ids(config.get(name)) if each >= rows]):
            tell(
                "special_token_beyond", "error", f"config.json's {name} {beyond[0]} is beyond its vocabulary."
            )


def _ends(folder: Path, config: dict[str, Any], vocabulary: dict[str, int]) -> set[str]:
    """Every token that ends a text, as text."""
    ids = set(_ids(config.get("eos_token_id")))
    ids |= set(_ids(_object(folder / "generation_config.json").get("eos_token_id")))
    eos = _text(_object(folder / "tokenizer_config.json").get("eos_token"))
    return {text for text, number in vocabulary.items() if number in ids} | ({eos} if eos else set())


def _ids(value: Any) -> list[int]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int)]


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _object(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
