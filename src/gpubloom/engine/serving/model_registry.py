"""ModelRegistry: the models by name, each loaded once.

An adapter's base and tuned model share one set of weights. A full fine-tune and its base model are two sets:
the base model is loaded at the first request for it, if it fits into memory. So is another checkpoint of the
same run, which brings its own set of weights.
"""

import threading
from pathlib import Path

import torch

from gpubloom.engine.decoding.batcher import Batcher
from gpubloom.engine.generate import TextModel
from gpubloom.engine.hardware import Compute
from gpubloom.engine.host_memory import free_host_bytes
from gpubloom.engine.llama_folder import load_model
from gpubloom.engine.pretrained_text import PretrainedText, load_pretrained_text
from gpubloom.engine.serving.batched_answers import batch_answers
from gpubloom.engine.serving.resolved_model import ResolvedModel, find_model
from gpubloom.errors import CodedError
from gpubloom.plan.safetensors_header import read_header

BASE, TUNED, ONLY, OTHER = "base", "tuned", "model", "other"

# Memory besides the weights: activations, the KV cache, kernels.
BESIDES_BYTES = 300_000_000
_NF4_BYTES = 0.57


class NotEnoughMemory(CodedError):
    """A model does not fit into the free memory."""

    code = "not_enough_memory"


class ModelRegistry:
    """Models by name: `base` and `tuned` if the base model is known, otherwise `model`; and `other`."""

    def __init__(self, found: ResolvedModel, compute: Compute, other: ResolvedModel | None = None) -> None:
        self.found = found
        self.compute = compute
        self._other = other
        self.default = ONLY if found.base is None else TUNED
        """The model for requests that name none."""
        self.names = (
            *(() if found.base is None else (BASE,)),
            self.default,
            *(() if other is None else (OTHER,)),
        )
        self._loading = threading.Lock()
        self._batchers: list[Batcher] = []
        _must_fit(found.base if found.is_adapter and found.base else found.folder, compute, found.four_bit)
        model = load_text(found, compute)
        self._models: dict[str, TextModel] = {self.default: model}
        if found.is_adapter and isinstance(model, PretrainedText):
            self._models[BASE] = model.without_adapter()
        self._batch(*self._models.values())
        self.context_length = model.context_length

    def get(self, name: str) -> TextModel:
        """KeyError: unknown name. NotEnoughMemory: the model does not fit beside the others."""
        if name not in self.names:
            raise KeyError(name)
        with self._loading:
            if name not in self._models:
                found = self.found
                if name == BASE:
                    assert found.base is not None
                    found = find_model(found.base)
                elif name == OTHER:
                    assert self._other is not None
                    found = self._other
                heavy = found.base if found.is_adapter and found.base else found.folder
                _must_fit(heavy, self.compute, found.four_bit)
                self._models[name] = load_text(found, self.compute)
                self._batch(self._models[name])
            return self._models[name]

    def get_alone(self, name: str) -> TextModel:
        """Like `get`, but unloads other weights first, so that only one set is in memory."""
        with self._loading:
            if name not in self._models and name in self.names:
                self._models.clear()
                self.close()
                if self.compute.device.type == "cuda":
                    torch.cuda.empty_cache()
        return self.get(name)

    def close(self) -> None:
        """Ends the answers that are being computed and frees their memory."""
        for batcher in self._batchers:
            batcher.close()
        self._batchers.clear()

    def _batch(self, *models: TextModel) -> None:
        """Lets answers of models that share one set of weights advance together, where that is possible."""
        batcher = batch_answers(models)
        if batcher is not None:
            self._batchers.append(batcher)

    def facts(self) -> dict[str, object]:
        """Loaded models, device, and the reasons for precision and weights."""
        return {
            "models": list(self.names),
            "loaded": [name for name in self.names if name in self._models],
            "device": str(self.compute.device),
            "precision": self.compute.reason,
            "weights": self._weights(),
            "answers": self._answers(),
            "notes": list(self.found.notes),
        }

    def _answers(self) -> str:
        if self._batchers:
            return "computed together: up to 32 in one batch"
        return "computed one token each in turn: the attention of this model cannot use a shared cache"

    def _weights(self) -> str:
        found = self.found
        if not found.is_adapter:
            return (
                "full precision"
                if found.base is None
                else "full precision: base and tuned model have separate weights"
            )
        if not found.four_bit:
            return "full precision: the adapter has no record of a 4-bit base model"
        if self.compute.device.type == "cpu":
            return (
                "dequantized from 4-bit to full precision: the adapter was trained on a 4-bit base model, "
                "and 4-bit weights are too slow on a CPU"
            )
        return "4-bit: the adapter was trained on a 4-bit base model"


def load_text(found: ResolvedModel, compute: Compute) -> TextModel:
    """Loads a model, ready to generate."""
    if not found.is_own:
        return load_pretrained_text(
            found.folder,
            base=found.base if found.is_adapter else None,
            compute=compute,
            four_bit=found.four_bit,
        )
    model, _ = load_model(found.folder)
    return model.to(compute.device, compute.dtype).eval()


def count_weights(folder: Path) -> int:
    """The number of weights in the safetensors files of a model folder, from their headers."""
    files = folder.glob("model*.safetensors")
    return sum(tensor.length for file in files for tensor in read_header(file).values())


def _must_fit(folder: Path, compute: Compute, four_bit: bool) -> None:
    """Raises NotEnoughMemory before any memory is allocated."""
    try:
        weights = count_weights(folder)
    except (OSError, ValueError):
        # The loader reports what is wrong with the files.
        return
    packed = four_bit and compute.device.type == "cuda"
    needed = int(weights * (_NF4_BYTES if packed else compute.dtype.itemsize)) + BESIDES_BYTES
    free = free_bytes(compute.device)
    if needed > free:
        where = "The GPU" if compute.device.type == "cuda" else "This machine"
        raise NotEnoughMemory(
            f"{where} has {free / 1e9:.1f} GB of memory free, but {folder.name} needs {needed / 1e9:.1f} GB "
            f"in {compute.precision}: stop other programs that use it, or choose another device."
        )


def free_bytes(device: torch.device) -> int:
    """The free memory of a GPU, or of the host."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return free_host_bytes()
