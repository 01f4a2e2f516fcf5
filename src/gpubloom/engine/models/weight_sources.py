"""Where a model's first weights come from: drawn at random, or read from a model folder.

Both write straight into the tensors they are given. Reading holds one tensor at a time besides those, never a
second copy of the model.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import safetensors
import torch
from torch import Tensor

from gpubloom.engine.models.blocks import BlockModel, BlockSpec, TensorSpec, Weights
from gpubloom.errors import InputError
from gpubloom.hub.weight_index import INDEX_FILE, SINGLE_FILE, UnsafeModelError, read_weight_index

_OTHER_FORMATS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


class DrawsItsWeights(Protocol):
    """A model that knows how its family's weights are drawn."""

    def initialize(self, block: BlockSpec, tensors: Weights, generator: torch.Generator) -> None:
        """Writes a block's first weights in place."""


class RandomWeights:
    """Weights that depend on model, seed and kind of device only, not on the order of filling."""

    def __init__(self, model: DrawsItsWeights, seed: int) -> None:
        self._model = model
        self._seed = seed

    def fill(self, block: BlockSpec, tensors: Weights) -> None:
        device = next(iter(tensors.values())).device
        self._model.initialize(block, tensors, generator_for(self._seed, block.name, device))


def generator_for(seed: int, name: str, device: torch.device) -> torch.Generator:
    """A generator of its own for every name."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)


class MakesTensors(Protocol):
    """How a tensor is made from tensors of a checkpoint."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def load(self, read: Any) -> Tensor: ...


@runtime_checkable
class KnowsCheckpoints(Protocol):
    """A model whose checkpoints may name or cut tensors differently."""

    def origins(self, names: Iterable[str]) -> Mapping[str, MakesTensors]: ...


class PretrainedWeights:
    """Weights of a model folder in Hugging Face layout: one safetensors file, or shards with an index."""

    def __init__(self, folder: Path, model: BlockModel) -> None:
        self._folder = folder
        self._model = model
        self._open_file: tuple[Path, Any] | None = None
        self._files = self._find_files()
        self._origins: Mapping[str, MakesTensors] = (
            model.origins(self._files) if isinstance(model, KnowsCheckpoints) else {}
        )
        for block in model.blocks:
            for tensor in (*block.trained, *block.frozen):
                self._names(model.parameter_name(block, tensor))

    def fill(self, block: BlockSpec, tensors: Weights) -> None:
        for spec in (*block.trained, *block.frozen):
            self._fill(self._model.parameter_name(block, spec), spec, tensors[spec.name])

    @torch.no_grad()
    def _fill(self, name: str, spec: TensorSpec, target: Tensor) -> None:
        names = self._names(name)
        origin = self._origins.get(name)
        if origin is None or len(origin.names) == 1:
            # Shapes are in the file's header: a tensor of the wrong one is never read.
            found = tuple(self._open(names[0]).get_slice(names[0]).get_shape())
            self._refuse_other_shape(names[0], found, spec)
        tensor = origin.load(self._read) if origin is not None else self._read(names[0])
        self._refuse_other_shape(names[0], tuple(tensor.shape), spec)
        target.copy_(tensor)

    def _names(self, name: str) -> tuple[str, ...]:
        """The checkpoint's own names of what a tensor is made of."""
        if name in self._origins:
            return self._origins[name].names
        if name in self._files:
            return (name,)
        raise InputError(
            "weights_mismatch", f"{self._folder}: tensor {name} is missing from the model's weights."
        )

    def _read(self, name: str) -> Tensor:
        try:
            tensor: Tensor = self._open(name).get_tensor(name)
        except (OSError, RuntimeError, safetensors.SafetensorError) as problem:
            raise InputError(
                "unreadable_file", f"{self._files[name]}: tensor {name} cannot be read: {problem}."
            ) from None
        # Of one byte, scales stand elsewhere.
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            raise InputError(
                "quantized_model",
                f"{self._files[name]}: tensor {name} has the data type {tensor.dtype}: start from "
                "unquantized weights.",
            )
        return tensor

    def _open(self, name: str) -> Any:
        path = self._files[name]
        if self._open_file is None or self._open_file[0] != path:
            self._open_file = (path, _opened(path))
        file = self._open_file[1]
        if name not in file.keys():  # noqa: SIM118 - the file is no mapping
            raise InputError(
                "weights_mismatch",
                f"{path}: tensor {name} is missing, although the index lists it.",
            )
        return file

    def _refuse_other_shape(self, name: str, found: tuple[int, ...], spec: TensorSpec) -> None:
        if found != spec.shape:
            raise InputError(
                "weights_mismatch",
                f"{self._files[name]}: tensor {name} has size {found} instead of {spec.shape}.",
            )

    def _find_files(self) -> dict[str, Path]:
        single, index = self._folder / SINGLE_FILE, self._folder / INDEX_FILE
        if index.is_file():
            return self._files_of_index(index)
        if single.is_file():
            return dict.fromkeys(_opened(single).keys(), single)
        others = [name for name in _OTHER_FORMATS if (self._folder / name).is_file()]
        if others:
            raise InputError(
                "no_safetensors",
                f"{self._folder} contains {others[0]} and no safetensors: save the model as safetensors "
                "first.",
            )
        raise InputError("no_safetensors", f"{self._folder} contains neither {SINGLE_FILE} nor {INDEX_FILE}.")

    def _files_of_index(self, index: Path) -> dict[str, Path]:
        try:
            files = {name: self._folder / file for name, file in read_weight_index(index).items()}
        except UnsafeModelError:
            raise
        except (OSError, ValueError, RecursionError) as problem:
            raise InputError(
                "unreadable_file", f"{index} cannot be read as an index of shards: {problem!r}."
            ) from None
        for path in sorted(set(files.values())):
            if not path.is_file():
                raise InputError("weights_mismatch", f"{path} is missing, although {index.name} lists it.")
        return files


def _opened(path: Path) -> Any:
    try:
        return safetensors.safe_open(path, framework="pt", device="cpu")
    except (OSError, safetensors.SafetensorError) as problem:
        raise InputError(
            "unreadable_file", f"{path} cannot be read as safetensors; the file may be incomplete: {problem}."
        ) from None
