"""check_model(folder): whether a model can be trained, and what is wrong with it if not.

The check reads small files and the headers of large ones, so it takes well under a second for any size; it
runs no code of the model. It compares the weights with config.json by the headers of the safetensors files
(names, types and shapes of tensors), and checks that the tokenizer belongs to the weights and that the chat
template works. Each finding has a code for programs and a sentence for people.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpubloom.datasets import ChatTemplate, RowTokenizer
from gpubloom.datasets.template import PLAIN_NOTE
from gpubloom.hub.architecture import Severity, Tell, check_architecture
from gpubloom.hub.catalogue import memory_by_method
from gpubloom.hub.weight_index import (
    ADAPTER_CONFIG,
    INDEX_FILE,
    SINGLE_FILE,
    UnsafeModelError,
    check_model_folder,
    read_weight_index,
)
from gpubloom.json_files import read_optional_json
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import FAMILIES
from gpubloom.plan.safetensors_header import HeldTensor, Truncated, read_header

TRAINABLE_TYPES = {"F64", "F32", "F16", "BF16"}
_OTHER_TOKENIZERS = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_CONVERSATION = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"})
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
# A broken model has many errors of the same kind; the first ones are enough.
_NAMED = 5


@dataclass(frozen=True)
class Finding:
    """`error`: the model cannot be trained. `warning`: it can, with a risk. `note`: for information."""

    code: str
    severity: Severity
    sentence: str


def check_text(folder: Path, config: dict[str, Any], tell: Tell) -> bool:
    """Reports errors of tokenizer and template; returns whether there is a working chat template."""
    vocabulary = _check_tokenizer(folder, config, tell)
    template = _check_template(folder, config, vocabulary, tell)
    if vocabulary is not None:
        _check_special_tokens(folder, config, vocabulary, tell)
    return template


def _check_tokenizer(folder: Path, config: dict[str, Any], tell: Tell) -> dict[str, int] | None:
    if not (folder / "tokenizer.json").is_file():
        others = [name for name in _OTHER_TOKENIZERS if (folder / name).is_file()]
        advice = (
            f"load {others[0]} with AutoTokenizer of transformers and save it again"
            if others
            else "add the tokenizer.json that the model was trained with"
        )
        tell("tokenizer_missing", "error", f"tokenizer.json is missing: {advice}.")
        return None
    try:
        tokenizer = RowTokenizer.load(folder)
        vocabulary = tokenizer.vocabulary()
    except ValueError as problem:
        tell("tokenizer_unreadable", "error", str(problem))
        return None
    text = tokenizer.vocabulary(with_added_tokens=False)
    rows, largest = config.get("vocab_size"), max(text.values(), default=-1)
    if isinstance(rows, int) and largest >= rows:
        tell(
            "vocabulary_mismatch",
            "error",
            f"The tokenizer has ids up to {largest:,}, but the model has embeddings for {rows:,} tokens: "
            "the tokenizer belongs to another model.",
        )
    elif isinstance(rows, int) and (beyond := [name for name, each in vocabulary.items() if each >= rows]):
        # Gemma's tokenizers have one for images, which models of text do not know.
        tell(
            "added_tokens_unknown",
            "warning",
            f"The tokenizer has {beyond[0]!r}, a token that the model does not know. It cannot be trained on "
            "data that contains it.",
        )
    elif isinstance(rows, int) and len(vocabulary) < rows // 2:
        tell(
            "vocabulary_small",
            "warning",
            f"The tokenizer has {len(vocabulary):,} tokens, less than half of the model's {rows:,}: check "
            "that the tokenizer belongs to the model.",
        )
    return vocabulary


def _check_template(
    folder: Path, config: dict[str, Any], vocabulary: dict[str, int] | None, tell: Tell
) -> bool:
    try:
        template = ChatTemplate.from_folder(folder)
        text = template.render(list(_CONVERSATION))
    except (ValueError, OSError) as problem:
        sentence = str(problem).rstrip(".")
        tell("chat_template_broken", "error", f"The chat template does not work: {sentence}.")
        return False
    if template.note == PLAIN_NOTE:
        tell("chat_template_missing", "warning", PLAIN_NOTE)
        return False
    ends = _ends(folder, config, vocabulary or {})
    # Gemma closes a turn with a special token of its own, which exports name as an end of text.
    behind = text.rpartition(str(_CONVERSATION[-1]["content"]))[2]
    closed = any(mark in behind for mark in _special_tokens(folder))
    if ends and not closed and not any(end in text for end in ends):
        tell(
            "template_without_end",
            "warning",
            "The chat template closes an answer neither with an end-of-text token "
            f"({', '.join(sorted(ends))}) nor with another special token: a model trained with this template "
            "does not learn to stop.",
        )
    return True


def _check_special_tokens(
    folder: Path, config: dict[str, Any], vocabulary: dict[str, int], tell: Tell
) -> None:
    said = read_optional_json(folder / "tokenizer_config.json")
    eos, pad = _text(said.get("eos_token")), _text(said.get("pad_token"))
    ids = _ids(config.get("eos_token_id")) + _ids(
        read_optional_json(folder / "generation_config.json").get("eos_token_id")
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
            f"The tokenizer's end-of-text token is {eos!r} ({vocabulary[eos]}), but the model's config "
            f"names {', '.join(map(str, ids))}: answers may not stop where they should.",
        )
    if pad is not None and pad not in vocabulary:
        tell("pad_unknown", "warning", f"The padding token {pad!r} is not in the vocabulary.")
    rows = config.get("vocab_size")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if isinstance(rows, int) and (beyond := [each for each in _ids(config.get(name)) if each >= rows]):
            tell(
                "special_token_beyond",
                "error",
                f"{name} {beyond[0]} in config.json is not an id of the vocabulary.",
            )


def _ends(folder: Path, config: dict[str, Any], vocabulary: dict[str, int]) -> set[str]:
    """Every token that ends a text, as text."""
    ids = set(_ids(config.get("eos_token_id")))
    ids |= set(_ids(read_optional_json(folder / "generation_config.json").get("eos_token_id")))
    eos = _text(read_optional_json(folder / "tokenizer_config.json").get("eos_token"))
    return {text for text, number in vocabulary.items() if number in ids} | ({eos} if eos else set())


def _special_tokens(folder: Path) -> set[str]:
    added = read_optional_json(folder / "tokenizer.json").get("added_tokens")
    entries = [entry for entry in added if isinstance(entry, dict)] if isinstance(added, list) else []
    return {text for entry in entries if entry.get("special") and (text := _text(entry))}


def _ids(value: Any) -> list[int]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int)]


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def check_weights(folder: Path, shape: DecoderShape | None, tell: Tell) -> int:
    """Reports errors of the weights; returns their number of values."""
    try:
        check_model_folder(folder)
    except UnsafeModelError as problem:
        tell(problem.code, "error", str(problem))
        return 0
    tensors = _held(folder, tell)
    if tensors is None:
        return 0
    _check_types(tensors, tell)
    # Other families are counted by these very tensors.
    if shape is not None and shape.family in FAMILIES:
        _check_shapes(tensors, shape, tell)
    return sum(tensor.length for tensor in tensors.values())


def _held(folder: Path, tell: Tell) -> dict[str, HeldTensor] | None:
    """All tensors by name; None when they cannot be listed."""
    if (folder / INDEX_FILE).is_file():
        return _held_by_index(folder, tell)
    if (folder / SINGLE_FILE).is_file():
        return _read(folder / SINGLE_FILE, tell)
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        tell(
            "only_pickles",
            "error",
            f"The weights are in {_listed(pickles)}, a format that can run code: save the model as "
            "safetensors (with save_pretrained), or choose a revision with safetensors.",
        )
        return None
    tell(
        "weights_missing",
        "error",
        f"The weights are missing: the folder has neither {SINGLE_FILE} nor {INDEX_FILE}.",
    )
    return None


def _held_by_index(folder: Path, tell: Tell) -> dict[str, HeldTensor] | None:
    try:
        files = read_weight_index(folder / INDEX_FILE)
    except (OSError, ValueError, RecursionError) as problem:
        tell("index_unreadable", "error", f"{INDEX_FILE} cannot be read: {problem!r}.")
        return None
    whole = True
    tensors: dict[str, HeldTensor] = {}
    for file in sorted(set(files.values())):
        if not (folder / file).is_file():
            tell("shard_missing", "error", f"{file} is missing, but {INDEX_FILE} names it.")
            whole = False
            continue
        held = _read(folder / file, tell)
        whole = whole and held is not None
        tensors |= held or {}
    if not whole:
        return None
    if absent := [name for name, file in files.items() if name not in tensors or tensors[name].file != file]:
        tell(
            "tensor_missing",
            "error",
            f"{INDEX_FILE} names tensors that the files do not hold: {_listed(absent)}.",
        )
        return None
    return tensors


def _read(path: Path, tell: Tell) -> dict[str, HeldTensor] | None:
    try:
        return read_header(path)
    except Truncated as problem:
        tell("file_truncated", "error", f"{path.name} is incomplete: {problem}. Download or copy it again.")
    except (OSError, ValueError) as problem:
        tell("file_damaged", "error", f"{path.name} is not a valid safetensors file: {problem}.")
    return None


def _check_types(tensors: dict[str, HeldTensor], tell: Tell) -> None:
    others = [each for each in tensors.values() if each.dtype not in TRAINABLE_TYPES and len(each.shape) > 1]
    if others:
        kinds = _listed(sorted({each.dtype for each in others}))
        tell(
            "quantized",
            "error",
            f"{len(others)} tensors are {kinds}: these weights are quantized. Start from the unquantized "
            "model; qlora makes its own 4-bit copy.",
        )


def _check_shapes(tensors: dict[str, HeldTensor], shape: DecoderShape, tell: Tell) -> None:
    absent, misshapen = [], []
    embedding = [each for name, each in tensors.items() if name.endswith(_EMBEDDINGS)]
    if not embedding:
        absent.append("the token embedding")
    elif embedding[0].shape != (wanted := (shape.vocab_size, shape.hidden_size)):
        misshapen.append(f"{embedding[0].name} has {embedding[0].shape} instead of {wanted}")
    by_layer = _by_layer(tensors)
    for index, layer in enumerate(shape.layers):
        own = by_layer.get(index, {})
        for linear in layer.linears:
            if linear.copies > 1:
                continue
            found = [each for path, each in own.items() if _is_at(path, linear.name)]
            outputs_inputs = (linear.outputs, linear.inputs)
            # GPT-2 keeps its matrices as (in, out).
            expected = outputs_inputs[::-1] if shape.family == "gpt2" else outputs_inputs
            if not found:
                absent.append(f"{linear.name} of layer {index}")
            elif len(found) == 1 and found[0].shape != expected:
                misshapen.append(f"{found[0].name} has {found[0].shape} instead of {expected}")
    if absent:
        tell(
            "tensor_missing",
            "error",
            f"The weights lack tensors that config.json requires: {_listed(absent)}.",
        )
    if misshapen:
        tell(
            "tensor_shape",
            "error",
            f"Tensor shapes differ from config.json: {_listed(misshapen)}.",
        )
    held = sum(each.length for each in tensors.values())
    if not absent and not misshapen and held < shape.parameters:
        tell(
            "weights_incomplete",
            "error",
            f"The files hold {held:,} parameters, but config.json requires {shape.parameters:,}.",
        )


def _by_layer(tensors: dict[str, HeldTensor]) -> dict[int, dict[str, HeldTensor]]:
    """Matrices by the number of their layer, then by their path within it."""
    layers: dict[int, dict[str, HeldTensor]] = {}
    for name, tensor in tensors.items():
        if match := re.search(r"(?:^|\.)(?:layers|h)\.(\d+)\.(.+)\.weight$", name):
            layers.setdefault(int(match[1]), {})[match[2]] = tensor
    return layers


def _is_at(path: str, name: str) -> bool:
    return path == name or path.endswith(f".{name}")


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(some[:_NAMED]) + more


@dataclass(frozen=True)
class Report:
    """The facts and findings of a model folder. Sizes are None if they are unknown."""

    findings: tuple[Finding, ...]
    family: str | None
    parameters: int | None
    context_length: int | None
    vocab_size: int | None
    chat_template: bool
    bytes: int
    # The least GPU memory by method, as in the catalogue.
    memory: dict[str, int] | None

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok} | asdict(self)


def check_model(folder: Path) -> Report:
    """The report of a folder in Hugging Face's layout; no content of the folder makes it raise."""
    findings: list[Finding] = []

    def tell(code: str, severity: Severity, sentence: str) -> None:
        findings.append(Finding(code, severity, sentence))

    config = _read_config(folder, tell)
    shape = None if config is None else check_architecture(folder, config, tell)
    if config is not None:
        check_weights(folder, shape, tell)
    chat = folder.is_dir() and check_text(folder, config or {}, tell)
    return Report(
        findings=tuple(findings),
        family=None if config is None else str(config.get("model_type")),
        parameters=None if shape is None else shape.parameters,
        context_length=None if shape is None else shape.max_positions,
        vocab_size=None if shape is None else shape.vocab_size,
        chat_template=chat,
        bytes=_size(folder),
        memory=None if shape is None else _memory(shape),
    )


def _read_config(folder: Path, tell: Tell) -> dict[str, Any] | None:
    if not folder.is_dir():
        tell("folder_missing", "error", f"The folder {folder} does not exist.")
        return None
    file = folder / "config.json"
    if not file.is_file():
        if (folder / ADAPTER_CONFIG).is_file():
            tell(
                "adapter_only",
                "error",
                "This folder holds an adapter, not a complete model: choose its base model, or export both "
                "merged into one model.",
            )
        else:
            tell(
                "config_missing",
                "error",
                "config.json is missing: the folder is not a model in Hugging Face's layout.",
            )
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        tell("config_unreadable", "error", f"config.json cannot be read: {problem}.")
        return None
    if not isinstance(config, dict):
        tell("config_unreadable", "error", "config.json is not a JSON object.")
        return None
    return config


def _memory(shape: DecoderShape) -> dict[str, int] | None:
    try:
        return {str(method): need for method, need in memory_by_method(shape).items()}
    except (ValueError, KeyError, TypeError, AssertionError):
        # The planner reports this error when a training is planned.
        return None


def _size(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
