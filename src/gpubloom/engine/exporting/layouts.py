"""Model folders for other tools: merged weights in Hugging Face's layout, or an adapter in PEFT's.

`ExportWeights` yields every tensor of a model by its name in the folder, with an adapter's changes added,
block by block in FP32; an export rounds once, when it writes. Tokenizer, chat template, special tokens and
end-of-text ids are copied with the weights.
"""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor

from gpubloom.engine import adapter_folder
from gpubloom.engine.adapter_folder import read_adapter
from gpubloom.engine.llama_folder import CONFIG_FILE, WEIGHTS_STEM
from gpubloom.engine.model import open_blocks
from gpubloom.engine.models.blocks import BlockModel, BlockSpec, TensorSpec, WeightSource
from gpubloom.engine.models.lora import LoraBlocks, LoraWeights, is_transposed, with_lora
from gpubloom.engine.models.weight_sources import PretrainedWeights
from gpubloom.engine.pretrained_text import attach
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.engine.shards.atomic_folder import must_have_room
from gpubloom.engine.shards.safetensors_file import TensorFileWriter, entries
from gpubloom.engine.shards.shard_files import SHARD_BYTES
from gpubloom.engine.transformers_loading import load_causal_model
from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan.data_files import TOKENIZER_FILES
from gpubloom.plan.rope import scaling_beside

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_TYPE_NAMES: dict[Precision, str] = {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}
_CONFIG_NAMES: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_EXTRA_FILES = ("generation_config.json", "LICENSE", "LICENSE.txt", "NOTICE")
# Where `gpubloom.hub` puts what it fetched: …/hub/models/ORG--NAME/COMMIT.
_HUB_FOLDER = re.compile(r".*/hub/models/(?P<owner>[^/]+?)--(?P<name>[^/]+)/(?P<commit>[0-9a-f]{40})")
Named = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class ExportWeights:
    """A model and where its weights come from."""

    model: BlockModel
    _source: WeightSource

    @classmethod
    def of(cls, found: ResolvedModel) -> "ExportWeights":
        """The merged weights of an adapter and its base, or those of a model folder."""
        if not found.is_adapter:
            blocks = open_blocks(found.folder, found.folder)
            return cls(blocks, PretrainedWeights(found.folder, blocks))
        assert found.base is not None, "an adapter has a base"
        adapter = read_adapter(found.folder)
        blocks = open_blocks(found.base, found.base)
        adapted = with_lora(blocks, adapter.settings)
        source = LoraWeights(adapted, PretrainedWeights(found.base, blocks), 0, adapter.tensors)
        return cls(adapted, source)

    @property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the order in which they come."""
        return [
            (self.model.parameter_name(block, spec), spec.shape)
            for block in self.model.blocks
            for spec in self._written(block)
        ]

    def must_fit_on_disk(self, folder: Path, precision: Precision) -> None:
        """InputError when the disk has no room for the exported weights."""
        values = sum(math.prod(shape) for _, shape in self.shapes)
        must_have_room(folder, values * DTYPES[precision].itemsize, "The export")

    @torch.no_grad()
    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for block in self.model.blocks:
            tensors = {spec.name: torch.empty(spec.shape) for spec in (*block.trained, *block.frozen)}
            self._source.fill(block, tensors)
            if isinstance(self.model, LoraBlocks):
                yield from self.model.merged(block, tensors)
                continue
            for spec in self._written(block):
                yield self.model.parameter_name(block, spec), tensors.pop(spec.name)

    def _written(self, block: BlockSpec) -> tuple[TensorSpec, ...]:
        return block.frozen if isinstance(self.model, LoraBlocks) else (*block.trained, *block.frozen)


def write_merged(
    folder: Path,
    found: ResolvedModel,
    precision: Precision,
    keep_going: Callable[[], None] = lambda: None,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, str]:
    """Writes a model folder; sha256 by file where known. `keep_going` may raise between tensors."""
    try:
        weights = ExportWeights.of(found)
    except InputError as refused:
        if refused.code != "unsupported_architecture":
            raise
        _write_by_transformers(folder, found, precision, shard_bytes)
        checksums = {}
    else:
        weights.must_fit_on_disk(folder, precision)
        checksums = _write_weights(folder, weights, precision, keep_going, shard_bytes)
    (folder / CONFIG_FILE).write_text(
        json.dumps(merged_config(found, precision), indent=2) + "\n", encoding="utf-8"
    )
    copy_text_files(folder, found, (*TOKENIZER_FILES, *_EXTRA_FILES))
    return checksums


def write_adapter_form(folder: Path, found: ResolvedModel, precision: Precision) -> tuple[str, ...]:
    """Writes an adapter's folder as PEFT reads it; what somebody should know about it."""
    if not found.is_adapter:
        raise InputError(
            "no_adapter",
            f"{found.folder} contains a whole model and no adapter: choose the form merged or gguf.",
        )
    adapter = adapter_folder.read_adapter(found.folder)
    tensors = {
        f"{adapter_folder.PREFIX}{name}": tensor.to(DTYPES[precision]).contiguous()
        for name, tensor in adapter.tensors.items()
    }
    safetensors.torch.save_file(tensors, folder / adapter_folder.WEIGHTS_FILE, metadata={"format": "pt"})
    settings = read_json(found.folder / adapter_folder.CONFIG_FILE)
    base, revision, note = _name_of_base(found, settings.get("base_model_name_or_path"))
    settings |= {"base_model_name_or_path": base, "revision": revision}
    (folder / adapter_folder.CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    copy_text_files(folder, found, TOKENIZER_FILES)
    notes = [] if note is None else [note]
    if scaling_beside(found.folder):
        shutil.copyfile(found.folder / CONFIG_FILE, folder / CONFIG_FILE)
        notes.append(
            "The adapter was trained with RoPE scaling: load its base model with rope_parameters and "
            "max_position_embeddings of the config.json beside the adapter."
        )
    return tuple(notes)


def merged_config(found: ResolvedModel, precision: Precision) -> dict[str, Any]:
    """The config.json of the whole model, in another precision and without code of its own."""
    home = found.base if found.is_adapter and found.base is not None else found.folder
    config = read_json(home / CONFIG_FILE)
    if found.is_adapter:
        config |= scaling_beside(found.folder)
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


@torch.no_grad()
def _write_by_transformers(
    folder: Path, found: ResolvedModel, precision: Precision, shard_bytes: int
) -> None:
    """The weights of a model that the engine cannot split, which another backend trained: in memory as a
    whole."""
    from transformers import GenerationConfig

    home = found.base if found.is_adapter and found.base is not None else found.folder
    changes = scaling_beside(found.folder) if found.is_adapter else {}
    model = load_causal_model(home, dtype=torch.float32, **changes)
    if found.is_adapter:
        for path, term in attach(model, adapter_folder.read_adapter(found.folder), torch.float32).items():
            module = model.get_submodule(path)
            change = term.scale * term.b @ term.a
            module.weight += change.T if is_transposed(module) else change
    dtype = DTYPES[precision]
    values = sum(parameter.numel() for parameter in model.parameters())
    must_have_room(folder, values * dtype.itemsize, "The export")
    # The folder's own is copied; here it would be refused where sampling is off and has a temperature.
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    model.to(dtype).save_pretrained(folder, max_shard_size=shard_bytes)
    (folder / "generation_config.json").unlink(missing_ok=True)


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
    """The base as others can find it: its id on the hub where it came from one, else the folder's name."""
    base_model = str(found.base) if found.base is not None else named
    if base_model is None:
        return None, None, "The base model of the adapter is unknown."
    if match := _HUB_FOLDER.fullmatch(base_model):
        return f"{match['owner']}/{match['name']}", match["commit"], None
    return (
        Path(base_model).name,
        None,
        (
            "The base model came from a folder on this machine, so the adapter has the name of that folder "
            "only: set base_model_name_or_path to the id or the folder of the base model."
        ),
    )
