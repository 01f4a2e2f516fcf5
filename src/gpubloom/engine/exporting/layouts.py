"""Folders that others read: merged weights in Hugging Face's layout, or an adapter in PEFT's.

What belongs to the text (tokenizer, chat template, special tokens, where an answer ends) travels along.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor

from gpubloom.engine import adapters_on_disk
from gpubloom.engine.export import CONFIG_FILE, WEIGHTS_STEM
from gpubloom.engine.exporting.weights import ExportWeights
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.engine.shards.sharding import SHARD_BYTES
from gpubloom.engine.shards.tensor_file import TensorFileWriter, entries

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_TYPE_NAMES: dict[Precision, str] = {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}
_CONFIG_NAMES: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
_EXTRA_FILES = ("generation_config.json", "LICENSE", "LICENSE.txt", "NOTICE")
# Where `gpubloom.hub` puts what it fetched: …/hub/models/ORG--NAME/COMMIT.
_HUB_FOLDER = re.compile(r".*/hub/models/(?P<owner>[^/]+?)--(?P<name>[^/]+)/(?P<commit>[0-9a-f]{40})")
Named = tuple[str, tuple[int, ...]]


def write_merged(
    folder: Path,
    found: ResolvedModel,
    precision: Precision,
    keep_going: Callable[[], None] = lambda: None,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, str]:
    """Writes a model folder; sha256 by file of weights. `keep_going` may raise between tensors."""
    weights = ExportWeights.of(found)
    checksums = _write_weights(folder, weights, precision, keep_going, shard_bytes)
    (folder / CONFIG_FILE).write_text(
        json.dumps(merged_config(found, precision), indent=2) + "\n", encoding="utf-8"
    )
    copy_text_files(folder, found, (*TEXT_FILES, *_EXTRA_FILES))
    return checksums


def write_adapter_form(folder: Path, found: ResolvedModel, precision: Precision) -> tuple[str, ...]:
    """Writes an adapter's folder as PEFT reads it; what somebody should know about it."""
    if not found.is_adapter:
        raise ValueError(f"{found.folder} holds all weights and no adapter: export it merged, or as gguf.")
    adapter = adapters_on_disk.read_adapter(found.folder)
    tensors = {
        f"{adapters_on_disk.PREFIX}{name}": tensor.to(DTYPES[precision]).contiguous()
        for name, tensor in adapter.tensors.items()
    }
    safetensors.torch.save_file(tensors, folder / adapters_on_disk.WEIGHTS_FILE, metadata={"format": "pt"})
    settings = _read(found.folder / adapters_on_disk.CONFIG_FILE)
    base, revision, note = _name_of_base(found, settings.get("base_model_name_or_path"))
    settings |= {"base_model_name_or_path": base, "revision": revision}
    (folder / adapters_on_disk.CONFIG_FILE).write_text(
        json.dumps(settings, indent=2) + "\n", encoding="utf-8"
    )
    copy_text_files(folder, found, TEXT_FILES)
    return () if note is None else (note,)


def merged_config(found: ResolvedModel, precision: Precision) -> dict[str, Any]:
    """The config.json of the whole model, in another precision and without code of its own."""
    home = found.base if found.is_adapter and found.base is not None else found.folder
    config = _read(home / CONFIG_FILE)
    config.pop("auto_map", None)
    config["dtype"] = _CONFIG_NAMES[precision]
    if "torch_dtype" in config:
        config["torch_dtype"] = _CONFIG_NAMES[precision]
    return config


def copy_text_files(folder: Path, found: ResolvedModel, names: Sequence[str]) -> None:
    for name in names:
        if (file := found.file(name)) is not None:
            shutil.copyfile(file, folder / name)


def raw_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor of any type, not a copy of them."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _write_weights(
    folder: Path,
    weights: ExportWeights,
    precision: Precision,
    keep_going: Callable[[], None],
    shard_bytes: int,
) -> dict[str, str]:
    dtype = DTYPES[precision]
    shards = list(_shards(weights.shapes, dtype.itemsize, shard_bytes))
    count = len(shards)
    checksums, weight_map = {}, {}
    stream = iter(weights)
    for number, shard in enumerate(shards, 1):
        name = f"{WEIGHTS_STEM}-{number:05d}-of-{count:05d}" if count > 1 else WEIGHTS_STEM
        file = f"{name}.safetensors"
        writer = TensorFileWriter(
            folder / file, entries(shard, dtype.itemsize), type_name=_TYPE_NAMES[precision]
        )
        try:
            for expected, _ in shard:
                keep_going()
                tensor_name, tensor = next(stream)
                assert tensor_name == expected, f"{tensor_name} came instead of {expected}"
                writer.write(raw_bytes(tensor.to(dtype).contiguous()))
                weight_map[tensor_name] = file
            checksums[file] = writer.close()
        finally:
            writer.discard()
    if count > 1:
        size = dtype.itemsize * sum(torch.Size(shape).numel() for _, shape in weights.shapes)
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        (folder / f"{WEIGHTS_STEM}.safetensors.index.json").write_text(
            json.dumps(index, indent=2) + "\n", encoding="utf-8"
        )
    return checksums


def _shards(shapes: Sequence[Named], item_bytes: int, limit: int) -> Iterator[list[Named]]:
    """Files of about `limit` bytes; a tensor lies in one file."""
    group: list[Named] = []
    filled = 0
    for name, shape in shapes:
        size = item_bytes * torch.Size(shape).numel()
        if group and filled + size > limit:
            yield group
            group, filled = [], 0
        group.append((name, shape))
        filled += size
    yield group


def _name_of_base(found: ResolvedModel, named: Any) -> tuple[str | None, str | None, str | None]:
    """The base as others can find it: its id on the hub where it came from one, else where it lies here."""
    base_model = str(found.base) if found.base is not None else named
    if base_model is None:
        return None, None, "The adapter does not say which model it belongs to."
    if match := _HUB_FOLDER.fullmatch(base_model):
        return f"{match['owner']}/{match['name']}", match["commit"], None
    return (
        base_model,
        None,
        (
            "The adapter names its base by its folder on this machine: others set base_model_name_or_path to "
            "the model's id."
        ),
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ValueError(f"{file} cannot be read: {problem}.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} is no JSON object.")  # noqa: TRY004 - a file, not an argument
    return content
