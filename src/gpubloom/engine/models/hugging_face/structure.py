"""Finds the parts of a transformers model: embeddings, decoder layers, final norm, head.

By structure, not by family: nothing here knows a model's name. A model that does not look like a decoder-only
language model is rejected in one sentence. Layers are equal if they have the same modules, shapes and
settings and are called the same way. The model lives on the meta device: it has shapes and code, no weights.
"""

import copy
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpubloom.engine.models.hugging_face.attention import implementation_for
from gpubloom.errors import InputError

# Where a layer stands says nothing about what it computes; what does (a window, no rotary positions) is in
# settings of its own.
_PATH = frozenset({"layer_idx", "layer_index", "layer_id", "block_idx"})

_OTHER_INPUTS = ("vision_config", "audio_config", "vision_tower", "speech_config")


def fingerprint(layer: nn.Module) -> Hashable:
    """Equal for layers that compute the same function of weights and inputs."""
    return tuple(
        (
            path,
            type(module).__qualname__,
            tuple((name, tuple(value.shape)) for name, value in module.named_parameters(recurse=False)),
            tuple(
                sorted(
                    (name, repr(value)) for name, value in vars(module).items() if _is_setting(name, value)
                )
            ),
        )
        for path, module in layer.named_modules()
    )


def _is_setting(name: str, value: Any) -> bool:
    return name not in _PATH and isinstance(value, bool | int | float | str | tuple | list | type(None))


@dataclass(frozen=True)
class Parts:
    """A transformers model on the meta device and where its parts are, by their paths within it."""

    model: Any
    implementation: str
    layers_path: str
    layers: tuple[nn.Module, ...]
    embedding_path: str
    positions_path: str | None
    norm_path: str | None
    head_path: str
    tied: bool

    def module(self, path: str) -> nn.Module:
        module: nn.Module = self.model.get_submodule(path)
        return module

    @property
    def embedding_paths(self) -> tuple[str, ...]:
        return tuple(path for path in (self.embedding_path, self.positions_path) if path is not None)

    @property
    def head_paths(self) -> tuple[str, ...]:
        """What is not the embedding's own: a tied projection keeps its bias here."""
        return tuple(path for path in (self.norm_path, self.head_path) if path is not None)


def family_of(config: Any) -> str:
    return str(getattr(config, "model_type", "") or type(config).__name__)


def build(config: Any) -> tuple[Any, str]:
    """The causal language model of a config without weights, and how it computes attention."""
    from transformers import AutoModelForCausalLM

    family = family_of(config)
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            "unsupported_architecture",
            f"{family} has an encoder and a decoder; this engine trains decoder-only language models.",
        )
    if any(getattr(config, name, None) is not None for name in _OTHER_INPUTS):
        raise InputError(
            "unsupported_architecture",
            f"{family} also reads images or sound; this engine trains text-only models.",
        )
    if getattr(config, "quantization_config", None) is not None:
        raise InputError(
            "quantized_model",
            f"This {family} model is already quantized: start from its unquantized weights.",
        )
    implementation = implementation_for(config)
    # transformers notes the kind of attention in the config it is given, which is the caller's.
    config = copy.deepcopy(config)
    make: Callable[..., Any] = AutoModelForCausalLM.from_config
    try:
        with quiet_transformers(), torch.device("meta"):
            model = make(config, attn_implementation=implementation, dtype=torch.float32)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise InputError(
            "unsupported_architecture",
            f"transformers cannot build a causal language model for {family}: {reason}",
        ) from None
    except AssertionError as problem:
        # torch says by it that a padding token is not an id of the vocabulary.
        raise InputError(
            "model_config_invalid", f"config.json does not describe a {family} model: {problem}."
        ) from None
    return model.eval(), implementation


def find_parts(model: Any, implementation: str) -> Parts:
    """Where the parts are; ValueError when they cannot be told apart."""
    family = family_of(model.config)
    layers_path = find_layers(model)
    trunk = model.get_submodule(layers_path.rpartition(".")[0])
    trunk_path = layers_path.rpartition(".")[0]
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    one_matrix_each = isinstance(embedding, nn.Embedding) and isinstance(head, nn.Linear)
    if not one_matrix_each:
        raise InputError(
            "unsupported_architecture",
            f"{family} does not have exactly one embedding matrix and one output matrix.",
        )
    paths = {id(module): path for path, module in model.named_modules()}
    rest = [
        (f"{trunk_path}.{name}" if trunk_path else name, child)
        for name, child in trunk.named_children()
        if child is not embedding and child is not head and any(True for _ in child.parameters())
    ]
    rest = [(path, child) for path, child in rest if path != layers_path]
    positions = [path for path, child in rest if isinstance(child, nn.Embedding)]
    norms = [path for path, child in rest if not isinstance(child, nn.Embedding)]
    parts = Parts(
        model=model,
        implementation=implementation,
        layers_path=layers_path,
        layers=tuple(model.get_submodule(layers_path)),
        embedding_path=paths[id(embedding)],
        positions_path=positions[0] if positions else None,
        norm_path=norms[0] if norms else None,
        head_path=paths[id(head)],
        tied=head.weight is embedding.weight,
    )
    _refuse_unknown_tensors(parts, family)
    return parts


def find_layers(model: Any) -> str:
    """The path of the list of decoder layers."""
    count = getattr(model.config, "num_hidden_layers", None)
    lists = [
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == count
        and not any(p.isdigit() for p in path.split("."))
    ]
    if len(lists) != 1:
        raise InputError(
            "unsupported_architecture",
            f"{family_of(model.config)} does not have exactly one list of decoder layers.",
        )
    return str(lists[0])


def _refuse_unknown_tensors(parts: Parts, family: str) -> None:
    known = (*parts.embedding_paths, *parts.head_paths, parts.layers_path)
    for name, _ in parts.model.named_parameters():
        if not any(name.startswith(f"{path}.") for path in known):
            raise InputError(
                "unsupported_architecture",
                f"{family} has a tensor outside the embedding, the layers and the head: {name}.",
            )
    owners: dict[int, int] = {}
    for index, layer in enumerate(parts.layers):
        for name, _ in layer.named_buffers():
            raise InputError(
                "unsupported_architecture",
                f"A layer of {family} has a buffer ({name}), which this engine cannot stream.",
            )
        for parameter in layer.parameters():
            if owners.setdefault(id(parameter), index) != index:
                raise InputError(
                    "unsupported_architecture",
                    f"The layers of {family} share weights, which this engine cannot stream.",
                )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hides advice about using a model as a whole, which nobody does here; errors still come through."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
