"""The GGUF writer: a model with its tokenizer as the one file that llama.cpp reads.

Written here for the families whose conversion is known: the names of tensors, the order of rows in the
matrices that rotary positions touch, the metadata, and the tokenizer's tokens, kinds, merges or scores. Other
families need llama.cpp's own converter (`engine/tasks/export.py`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gpubloom.engine.exporting.layouts import DTYPES, ExportWeights, Precision, merged_config
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.errors import CodedError, InputError
from gpubloom.json_files import read_json
from gpubloom.plan.data_files import TOKENIZER_FILES
from gpubloom.plan.gguf_support import ARCHITECTURES, rope_of, scaling_of, why_not_written

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

_FILE_TYPES: dict[Precision, int] = {"fp32": 0, "fp16": 1, "bf16": 32}
_DIVISORS = "rope_freqs.weight"


class UnknownTokenizer(CodedError, ValueError):
    """llama.cpp would split texts by other rules than this tokenizer does."""

    code = "unknown_tokenizer"


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
        content = read_json(file)
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
        if number >= rows:
            # Gemma's tokenizers have a token for images, which models of text do not know.
            continue
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
    raise UnknownTokenizer(f"{file} uses a pre-tokenizer that GPU Bloom's GGUF export does not support.")


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
    return {} if file is None else read_json(file)


@dataclass(frozen=True)
class GgufTensor:
    """A tensor here and there. `heads`: its rows are reordered head by head."""

    name: str
    there: str
    shape: tuple[int, ...]
    heads: int | None


def can_write(found: ResolvedModel) -> bool:
    return why_not_written(merged_config(found, "fp32")) is None


def what_differs(found: ResolvedModel) -> list[str]:
    """What llama.cpp computes otherwise than transformers does, for models that are written here."""
    config = merged_config(found, "fp32")
    window = config.get("sliding_window")
    if not window or config.get("use_sliding_window", config["model_type"] == "mistral") is False:
        return []
    return [
        f"The model uses a sliding window of {window:,} tokens; llama.cpp attends to the whole text. Results "
        "are the same for texts up to this length."
    ]


def write_gguf(
    path: Path,
    found: ResolvedModel,
    precision: Precision,
    keep_going: Callable[[], None] = lambda: None,
    name: str | None = None,
) -> None:
    """Writes the file tensor by tensor; UnknownTokenizer when llama.cpp would read texts differently.

    `name`: what programs show the model as; else the name of its folder.
    """
    import gguf

    config = merged_config(found, precision)
    weights = ExportWeights.of(found)
    weights.must_fit_on_disk(path, precision)
    tokenizer = _tokenizer(found, int(config["vocab_size"]))
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config["model_type"]])
    try:
        _add_metadata(writer, config, precision, name or (found.run_dir or found.folder).resolve().name)
        _add_tokenizer(writer, tokenizer)
        divisors = _divisors(config)
        if divisors is not None:
            writer.add_tensor_info(_DIVISORS, divisors.shape, divisors.dtype, divisors.nbytes)
        planned = gguf_tensors(weights, config)
        for tensor in planned:
            kind, size = _kind(tensor, precision)
            count = math.prod(tensor.shape)
            writer.add_tensor_info(
                tensor.there, tensor.shape, np.dtype(np.float32), count * size, raw_dtype=kind
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if divisors is not None:
            writer.write_tensor_data(divisors)
        for tensor, (name, values) in zip(planned, weights, strict=True):
            keep_going()
            assert tensor.name == name, f"{name} came instead of {tensor.name}"
            writer.write_tensor_data(_stored(values, tensor, precision))
    finally:
        writer.close()


def gguf_tensors(weights: ExportWeights, config: dict[str, Any]) -> list[GgufTensor]:
    """Every tensor of a model with its name in the file."""
    import gguf

    architecture = ARCHITECTURES[config["model_type"]]
    kind = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, int(config["num_hidden_layers"]))
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    found = []
    for name, shape in weights.shapes:
        there = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if there is None:
            raise InputError(
                "unsupported_by_gguf",
                f"llama.cpp has no tensor {name} for models of type {config['model_type']}.",
            )
        # llama.cpp turns pairs of neighbours in llama's heads, halves in the others'.
        turned = {"q_proj": heads, "k_proj": kv_heads} if architecture == "llama" else {}
        found.append(GgufTensor(name, there, shape, turned.get(name.split(".")[-2])))
    return found


def read_back(path: Path, planned: list[GgufTensor]) -> Iterator[tuple[str, Tensor]]:
    """The file's tensors by their names here, as FP32, rows in their order here."""
    import gguf

    held = {str(tensor.name): tensor for tensor in gguf.GGUFReader(path).tensors}
    for tensor in planned:
        there = held[tensor.there]
        values = torch.from_numpy(np.array(gguf.quants.dequantize(there.data, there.tensor_type)))
        yield tensor.name, _put_back(values.reshape(tensor.shape), tensor)


def _stored(values: Tensor, tensor: GgufTensor, precision: Precision) -> np.ndarray[Any, Any]:
    if tensor.heads is not None:
        # Halves of a head become pairs of neighbours.
        rows = values.shape[0] // tensor.heads
        values = (
            values.reshape(tensor.heads, 2, rows // 2, *values.shape[1:])
            .transpose(1, 2)
            .reshape(values.shape)
        )
    if len(tensor.shape) == 1:
        return values.float().contiguous().numpy()
    values = values.to(DTYPES[precision]).contiguous()
    return values.view(torch.int16).numpy() if precision == "bf16" else values.numpy()


def _put_back(values: Tensor, tensor: GgufTensor) -> Tensor:
    if tensor.heads is None:
        return values
    rows = values.shape[0] // tensor.heads
    return values.reshape(tensor.heads, rows // 2, 2, *values.shape[1:]).transpose(1, 2).reshape(values.shape)


def _kind(tensor: GgufTensor, precision: Precision) -> tuple[Any, int]:
    """A tensor's type in the file and the bytes of one value. Norms and biases stay exact."""
    import gguf

    types = gguf.GGMLQuantizationType
    if len(tensor.shape) == 1 or precision == "fp32":
        return types.F32, 4
    return (types.BF16 if precision == "bf16" else types.F16), 2


def _tokenizer(found: ResolvedModel, rows: int) -> GgufTokenizer:
    files = {name: file for name in TOKENIZER_FILES if (file := found.file(name)) is not None}
    if "tokenizer.json" not in files:
        raise InputError("no_tokenizer", f"{found.folder} has no tokenizer.json, which a GGUF file requires.")
    return GgufTokenizer.read(files["tokenizer.json"], rows, files)


def _add_metadata(writer: Any, config: dict[str, Any], precision: Precision, name: str) -> None:
    import gguf

    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    head = int(config.get("head_dim") or hidden // heads)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_file_type(_FILE_TYPES[precision])
    writer.add_vocab_size(int(config["vocab_size"]))
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(hidden)
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(
        float(rope_of(config).get("rope_theta") or config.get("rope_theta") or 10_000.0)
    )
    writer.add_layer_norm_rms_eps(float(config.get("rms_norm_eps") or 1e-6))
    kind, scaling = scaling_of(config), rope_of(config)
    if kind in {"linear", "yarn"}:
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(float(scaling["factor"]))
    if kind == "yarn" and scaling.get("original_max_position_embeddings"):
        writer.add_rope_scaling_orig_ctx_len(int(scaling["original_max_position_embeddings"]))


def _add_tokenizer(writer: Any, tokenizer: GgufTokenizer) -> None:
    writer.add_tokenizer_model(tokenizer.model)
    writer.add_tokenizer_pre(tokenizer.rules)
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.kinds)
    if tokenizer.scores is not None:
        writer.add_token_scores(tokenizer.scores)
        writer.add_add_space_prefix(tokenizer.space_prefix)
    if tokenizer.merges:
        writer.add_token_merges(tokenizer.merges)
    for kind, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("unk", writer.add_unk_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        if kind in tokenizer.special:
            add(tokenizer.special[kind])
    writer.add_add_bos_token(tokenizer.adds["bos"])
    writer.add_add_eos_token(tokenizer.adds["eos"])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _divisors(config: dict[str, Any]) -> np.ndarray[Any, Any] | None:
    """What Llama 3.1 divides its frequencies by: one for short waves, all for long ones, a blend between."""
    rope = rope_of(config)
    if scaling_of(config) != "llama3":
        return None
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    head = int(config.get("head_dim") or hidden // heads)
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    factor, trained = float(rope["factor"]), float(rope["original_max_position_embeddings"])
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    waves = 2 * math.pi * theta ** (np.arange(0, head, 2) / head)
    blend = np.clip((trained / waves - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1 - blend) / factor + blend)).astype(np.float32)
