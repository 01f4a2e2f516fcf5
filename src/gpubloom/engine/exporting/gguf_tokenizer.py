"""A tokenizer.json as llama.cpp wants it: tokens, their kinds, merges or scores, rules that split texts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

# Kinds of tokens in a GGUF file.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# llama.cpp knows the rules that split a text by name; these are the names of what it computes the same way.
_RULES = {
    _WORDS + r"\p{N}{1,3}" + _REST: "llama-bpe",
    _WORDS + r"\p{N}" + _REST: "qwen2",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+": "tekken",
}


class UnknownTokenizer(ValueError):
    """llama.cpp would split texts by other rules than this tokenizer does."""


@dataclass(frozen=True)
class GgufTokenizer:
    """`model` is gpt2 for byte-level BPE, llama for BPE as SentencePiece makes it."""

    model: Literal["gpt2", "llama"]
    rules: str
    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    scores: list[float] | None
    special: dict[str, int]
    adds: dict[str, bool]
    space_prefix: bool
    chat_template: str | None

    @classmethod
    def read(cls, file: Path, rows: int, folder_files: dict[str, Path]) -> "GgufTokenizer":
        """`rows`: how many tokens the model has embeddings for; `folder_files`: what lies beside, by name."""
        content = json.loads(file.read_text(encoding="utf-8"))
        model = content.get("model") or {}
        if model.get("type") != "BPE":
            raise UnknownTokenizer(f"{file} is a {model.get('type')} tokenizer, not BPE.")
        settings = _read(folder_files.get("tokenizer_config.json"))
        pieces = bool(model.get("byte_fallback"))
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or []]
        vocabulary: dict[str, int] = model["vocab"]
        tokens, kinds = _tokens(vocabulary, content.get("added_tokens") or [], rows, model.get("unk_token"))
        special = _special(settings, tokens)
        return cls(
            model="llama" if pieces else "gpt2",
            rules="default" if pieces else _rules(content.get("pre_tokenizer"), file),
            tokens=tokens,
            kinds=kinds,
            merges=[] if pieces else merges,
            scores=_scores(tokens, merges) if pieces else None,
            special=special,
            adds=_adds(settings, content.get("post_processor"), special, tokens),
            space_prefix=_begins_with_space(content),
            chat_template=_template(settings, folder_files.get("chat_template.jinja")),
        )


def _tokens(
    vocabulary: dict[str, int], added: list[dict[str, Any]], rows: int, unknown: str | None
) -> tuple[list[str], list[int]]:
    tokens = [f"[PAD{number}]" for number in range(rows)]
    kinds = [UNUSED] * rows
    for text, number in vocabulary.items():
        tokens[number] = text
        is_byte = len(text) == 6 and text.startswith("<0x") and text.endswith(">")
        kinds[number] = BYTE if is_byte else UNKNOWN if text == unknown else NORMAL
    for entry in added:
        number = int(entry["id"])
        tokens[number] = entry["content"]
        if kinds[number] != UNKNOWN:
            kinds[number] = CONTROL if entry.get("special") else USER_DEFINED
    return tokens, kinds


def _scores(tokens: list[str], merges: list[str]) -> list[float]:
    """SentencePiece's BPE merges what has the highest score; a merge's place says the same."""
    rank_of = {
        "".join(merge.split(" ", 1)): float(-number) for number, merge in reversed(list(enumerate(merges, 1)))
    }
    least = -float(len(merges) + 1)
    return [rank_of.get(token, least) for token in tokens]


def _rules(pre_tokenizer: Any, file: Path) -> str:
    parts = pre_tokenizer.get("pretokenizers", [pre_tokenizer]) if isinstance(pre_tokenizer, dict) else []
    kinds = [part.get("type") for part in parts]
    if kinds == ["ByteLevel"] and parts[0].get("use_regex", True):
        return "gpt-2"
    if (
        kinds == ["Digits", "ByteLevel"]
        and parts[0].get("individual_digits")
        and parts[1].get("use_regex", True)
    ):
        return "smollm"
    if kinds == ["Split", "ByteLevel"] and not parts[1].get("use_regex", True):
        pattern = (parts[0].get("pattern") or {}).get("Regex")
        if pattern in _RULES:
            return _RULES[pattern]
    raise UnknownTokenizer(f"{file} splits texts by rules that are not known by a name of llama.cpp.")


def _special(settings: dict[str, Any], tokens: list[str]) -> dict[str, int]:
    """Ids of bos, eos, unk and pad, as far as the tokenizer names them."""
    token_ids = {text: number for number, text in enumerate(tokens)}
    found = {}
    for kind in ("bos", "eos", "unk", "pad"):
        value = settings.get(f"{kind}_token")
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str) and text in token_ids:
            found[kind] = token_ids[text]
    return found


def _adds(
    settings: dict[str, Any], processor: Any, special: dict[str, int], tokens: list[str]
) -> dict[str, bool]:
    """Whether a text gets a beginning and an end: as the settings say, else as the tokenizer does it."""
    first, last = _template_ends(processor)
    found = {}
    for kind, written in (("bos", first), ("eos", last)):
        said = settings.get(f"add_{kind}_token")
        by_itself = kind in special and written == tokens[special[kind]]
        found[kind] = said if isinstance(said, bool) else by_itself
    return found


def _template_ends(processor: Any) -> tuple[str | None, str | None]:
    """What a post-processor writes before and behind a text."""
    if not isinstance(processor, dict):
        return None, None
    for part in processor.get("processors", [processor]):
        if part.get("type") == "TemplateProcessing" and (single := part.get("single")):
            ends = [(piece.get("SpecialToken") or {}).get("id") for piece in (single[0], single[-1])]
            return ends[0], ends[1]
    return None, None


def _begins_with_space(content: dict[str, Any]) -> bool:
    """Whether a text is read as if a space stood before it."""
    normalizer, pre_tokenizer = content.get("normalizer") or {}, content.get("pre_tokenizer") or {}
    prepends = any(
        part.get("type") == "Prepend"
        for part in normalizer.get("normalizers", [normalizer])
        if isinstance(part, dict)
    )
    metaspace = pre_tokenizer.get("type") == "Metaspace" and pre_tokenizer.get("prepend_scheme") != "never"
    return prepends or metaspace


def _template(settings: dict[str, Any], file: Path | None) -> str | None:
    if file is not None:
        return file.read_text(encoding="utf-8")
    said = settings.get("chat_template")
    return said if isinstance(said, str) else None


def _read(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    content = json.loads(file.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}
