"""A model folder of any family, or an adapter and its base, ready to generate: transformers computes it.

An adapter is a term that can be switched: y = base(x) + scale · B(A(x)), or base(x) alone, so one set of
weights answers as the base and as the tuned model. The switch belongs to the thread (or task) that computes,
so both can be asked at the same time.

A base that QLoRA trained on has the matrices of its decoder layers in NF4. On a GPU they stay packed and are
decoded when a layer is used; on a CPU, where decoding is slow, they are decoded once, to the same values.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.adapter_folder import CONFIG_FILE, Adapter, BaseNeeded, read_adapter
from gpubloom.engine.decoding.operations import LoraTerm
from gpubloom.engine.generate import Stream
from gpubloom.engine.hardware import Compute
from gpubloom.engine.models.hugging_face.structure import find_layers
from gpubloom.engine.models.lora import is_transposed
from gpubloom.engine.nf4 import Nf4, dequantize, quantize
from gpubloom.engine.transformers_loading import load_causal_model
from gpubloom.errors import InputError
from gpubloom.plan.rope import scaling_beside

_A, _B = ".lora_A.weight", ".lora_B.weight"

_tuned: ContextVar[Tensor | bool] = ContextVar("tuned", default=True)

# Where a config does not say how far positions reach.
_CONTEXT_LENGTH = 2_048
ON_CPU = Compute(torch.device("cpu"), "fp32", "fp32: same result on every machine")


@contextmanager
def tuned(wanted: Tensor | bool) -> Iterator[None]:
    """Within it, adapters that were attached count (or do not) for what this thread computes.

    A tensor has a 1 for each row of the batch where they count and a 0 for the others.
    """
    before = _tuned.set(wanted)
    try:
        yield
    finally:
        _tuned.reset(before)


def attach(model: nn.Module, adapter: Adapter, dtype: torch.dtype) -> dict[str, LoraTerm]:
    """Adds an adapter's terms to the modules it names, and returns them by the modules' paths.

    ValueError when they do not belong to this model.
    """
    terms = {}
    for name, a in adapter.tensors.items():
        path, is_first, _ = name.partition(_A)
        if not is_first:
            if not name.endswith(_B):
                raise InputError(
                    "adapter_invalid",
                    f"The adapter contains {name}, which does not belong to a LoRA adapter.",
                )
            continue
        b = adapter.tensors.get(f"{path}{_B}")
        if b is None:
            raise InputError(
                "adapter_invalid", f"The adapter contains {name}, but not the matching {path}{_B}."
            )
        module = _module(model, path)
        _must_fit(module, path, a, b)
        device = next(model.parameters()).device
        terms[path] = LoraTerm(a.to(device, dtype), b.to(device, dtype), adapter.settings.scale)
        module.register_forward_hook(_adds(terms[path]))
    return terms


def _module(model: nn.Module, path: str) -> nn.Module:
    try:
        return model.get_submodule(path)
    except AttributeError:
        raise InputError(
            "adapter_mismatch",
            f"The adapter changes {path}, which the base model does not have: the adapter belongs to another "
            "model.",
        ) from None


def _must_fit(module: nn.Module, path: str, a: Tensor, b: Tensor) -> None:
    outputs, inputs = _sizes(module)
    if (b.shape[0], a.shape[1]) != (outputs, inputs) or a.shape[0] != b.shape[1]:
        raise InputError(
            "adapter_mismatch",
            f"The adapter's matrices for {path} have the sizes {tuple(b.shape)} and {tuple(a.shape)}, but "
            f"this layer of the base model has {inputs} inputs and {outputs} outputs: the adapter belongs to "
            "another model.",
        )


def _sizes(module: nn.Module) -> tuple[int, int]:
    if hasattr(module, "out_features"):
        return int(cast(Any, module).out_features), int(cast(Any, module).in_features)
    outputs, inputs = cast(Tensor, module.weight).shape
    return (inputs, outputs) if is_transposed(module) else (outputs, inputs)


def _adds(term: LoraTerm) -> Callable[[Any, Any, Tensor], Tensor]:
    def add(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        wanted = _tuned.get()
        if wanted is False:
            return output
        change = term.scale * F.linear(F.linear(inputs[0], term.a), term.b)
        if isinstance(wanted, Tensor):
            change = change * wanted.view(-1, *[1] * (change.ndim - 1))
        return output + change

    return add


@torch.no_grad()
def to_four_bit(
    model: nn.Module, device: torch.device, dtype: torch.dtype, *, packed: bool | None = None
) -> nn.Module:
    """Quantizes a loaded model in place and brings it to the device in the precision of computing."""
    packed = device.type == "cuda" if packed is None else packed
    layers = model.get_submodule(find_layers(model))
    for layer in cast(nn.ModuleList, layers):
        for path, module in list(layer.named_modules()):
            if packed and (isinstance(module, nn.Linear) or is_transposed(module)):
                _replace(layer, path, PackedLinear(module, device, dtype))
                continue
            for parameter in module.parameters(recurse=False):
                if parameter.ndim > 1:
                    parameter.data = dequantize(quantize(parameter.data.float()))
    return model.to(device, dtype)


class PackedLinear(nn.Module):
    """A linear layer whose matrix is NF4."""

    def __init__(self, linear: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        weight = cast(Tensor, linear.weight)
        self._transposed = is_transposed(linear)
        inputs, outputs = weight.shape if self._transposed else weight.shape[::-1]
        self.in_features, self.out_features = int(inputs), int(outputs)
        self.packed: Nf4 = quantize(weight.to(device).float())
        self._dtype = dtype
        bias = cast(Any, linear).bias
        self.bias = None if bias is None else nn.Parameter(bias.to(device, dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        room = torch.empty(self.packed.shape, dtype=self._dtype, device=self.packed.packed.device)
        weight = dequantize(self.packed, room)
        return F.linear(x, weight.T if self._transposed else weight, self.bias)


def _replace(layer: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(layer.get_submodule(parent), name, module)


class TransformersCache:
    """Keys and values of the positions seen so far, of all layers."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    @property
    def length(self) -> int:
        return int(self.cache.get_seq_length())


class PretrainedText:
    """A causal language model of transformers, as `generate` asks for it; with its adapter or without."""

    reads_in_pieces = True
    stream: Stream | None = None

    def __init__(
        self, module: Any, *, is_tuned: bool = True, adapter: Mapping[str, LoraTerm] | None = None
    ) -> None:
        self.module = module.eval()
        self.is_tuned = is_tuned
        self.adapter = adapter or {}
        settings = self.module.config.get_text_config()
        self.context_length: int = getattr(settings, "max_position_embeddings", None) or _CONTEXT_LENGTH
        self._keeps_some = "logits_to_keep" in inspect.signature(self.module.forward).parameters

    def without_adapter(self) -> "PretrainedText":
        """The base, computed with the same weights."""
        return PretrainedText(self.module, is_tuned=False, adapter=self.adapter)

    def parameters(self) -> Iterator[nn.Parameter]:
        found: Iterator[nn.Parameter] = self.module.parameters()
        return found

    def new_cache(self) -> list[TransformersCache]:
        from transformers import DynamicCache

        return [TransformersCache(DynamicCache(config=self.module.config))]

    def __call__(
        self, tokens_BT: Tensor, cache: list[TransformersCache] | None, *, last_only: bool = False
    ) -> Tensor:
        options: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            options = {"use_cache": True, "past_key_values": cache[0].cache}
        if last_only and self._keeps_some:
            # Logits of a long prompt can be larger than the model.
            options["logits_to_keep"] = 1
        with tuned(self.is_tuned):
            found = self.module(input_ids=tokens_BT, **options)
        return cast(Tensor, found.logits)


def load_pretrained_text(
    folder: Path, *, base: Path | None = None, compute: Compute = ON_CPU, four_bit: bool = False
) -> PretrainedText:
    """The model of a folder; of an adapter's folder, the base with the adapter's terms.

    `base` is what a run or a person names, never what the adapter's file says: that could be any folder of
    this machine. `four_bit` computes with a base as QLoRA trained on it.
    """
    if not (folder / CONFIG_FILE).is_file():
        return PretrainedText(_load(folder, compute, four_bit=four_bit))
    adapter = read_adapter(folder)
    if base is None:
        raise BaseNeeded(adapter.base_model)
    model = _load(base, compute, four_bit=four_bit, changes=scaling_beside(folder))
    return PretrainedText(model, adapter=attach(model, adapter, compute.dtype))


def _load(
    folder: Path, compute: Compute, *, four_bit: bool, changes: Mapping[str, Any] | None = None
) -> nn.Module:
    """`changes`: fields of config.json that the adapter was trained with."""
    if not folder.is_dir():
        raise InputError(
            "model_not_found",
            f"The model folder {folder} does not exist: restore it, because the adapter needs its base "
            "model.",
        )
    # Four bits are made from the weights as they were saved, as in training.
    model = load_causal_model(folder, dtype="auto" if four_bit else compute.dtype, **(changes or {}))
    if four_bit:
        return to_four_bit(model, compute.device, compute.dtype)
    return cast(nn.Module, model.to(compute.device))
