"""HuggingFaceBlocks: any decoder-only language model of transformers as blocks, from a folder or a config.

A layer is transformers' own module on the meta device, called with the weights it is given and with the
arguments that transformers itself would pass (tables.py records them). Embedding and head are computed here
and checked against transformers when the model is made: a family that does something else is rejected.
Dropout is off.
"""

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gpubloom.engine.models.blocks import BlockSpec, Tables, TensorSpec, Weights
from gpubloom.engine.models.dropout import Dropout, unused_dropouts
from gpubloom.engine.models.hugging_face.attention import IMPLEMENTATION, passes_on_mask
from gpubloom.engine.models.hugging_face.structure import (
    Parts,
    build,
    family_of,
    find_parts,
    fingerprint,
    quiet_transformers,
)
from gpubloom.engine.models.hugging_face.tables import Picks, Recording, TableMaker, record
from gpubloom.engine.models.hugging_face.weights import Origin, initialize, origins
from gpubloom.errors import InputError
from gpubloom.hub.weight_index import check_model_config
from gpubloom.json_files import read_json

_TOLERANCE = 1e-5
_EMBEDDING_NAME, _HEAD_NAME = "embedding", "head"

_CONFIG_FILE = "config.json"


class HuggingFaceBlocks:
    """A model of transformers that is given its weights."""

    dropout: Dropout | None = None

    def __init__(self, config: Any) -> None:
        model, implementation = build(config)
        self.config = model.config
        self._parts = find_parts(model, implementation)
        self.tied = self._parts.tied
        recording = record(self._parts)
        self._buffers = {torch.device("cpu"): recording.buffers}
        self._tables = TableMaker(recording.table_calls, recording.layers)
        self.templates: dict[str, nn.Module] = {}
        self._picks: dict[str, Picks] = {}
        kinds = self._kinds(recording)
        self.blocks = _blocks(self._parts, kinds)
        self._check(recording)
        self.eager_kinds = frozenset(kind for kind in self.templates if self._is_eager(kind, recording))
        self._tables.takes_boundaries = implementation == IMPLEMENTATION and all(
            self._passes_on_mask(kind, recording) for kind in self.templates
        )
        self.notes = _notes(self.config)

    def parameter_name(self, block: BlockSpec, tensor: TensorSpec) -> str:
        if block.kind in self.templates:
            return f"{self._parts.layers_path}.{block.name.rpartition('.')[2]}.{tensor.name}"
        return tensor.name

    def tables(
        self, tokens_BT: Tensor, documents_BT: Tensor | None, most_per_row: int | None = None
    ) -> Tables:
        return self._tables.make(tokens_BT, documents_BT, most_per_row)

    def embed(self, weights: Weights, tokens_BT: Tensor, tables: Tables) -> Tensor:
        x_BTD = self._call(self._parts.embedding_path, weights, tokens_BT, self._buffers_on(tokens_BT.device))
        if self._parts.positions_path is not None:
            x_BTD = x_BTD + self._call(self._parts.positions_path, weights, tables[0])
        multiplier = getattr(self.config, "embedding_multiplier", None)
        return x_BTD if multiplier is None else x_BTD * multiplier

    def layer(self, kind: str, weights: Weights, x_BTD: Tensor, tables: Tables) -> Tensor:
        arguments = self._picks[kind].arguments(x_BTD, tables)
        out = functional_call(self.templates[kind], dict(weights), (x_BTD,), arguments)
        y_BTD: Tensor = out[0] if isinstance(out, tuple) else out
        return y_BTD

    def logits(self, weights: Weights, x_ND: Tensor) -> Tensor:
        if self._parts.norm_path is not None:
            x_ND = self._call(self._parts.norm_path, weights, x_ND)
        if self.tied:
            shared = weights[f"{self._parts.embedding_path}.weight"]
            weights = {**weights, f"{self._parts.head_path}.weight": shared}
        logits_NV = self._call(self._parts.head_path, weights, x_ND)
        if (factor := getattr(self.config, "logit_scale", None)) is not None:
            logits_NV = logits_NV * factor
        if (divisor := getattr(self.config, "logits_scaling", None)) is not None:
            logits_NV = logits_NV / divisor
        if (cap := getattr(self.config, "final_logit_softcapping", None)) is not None:
            logits_NV = torch.tanh(logits_NV / cap) * cap
        return logits_NV

    @property
    def settings(self) -> dict[str, Any]:
        """The config.json, complete."""
        return dict(self.config.to_dict())

    def initialize(self, block: BlockSpec, tensors: Weights, generator: torch.Generator) -> None:
        """First weights of a block as the family draws them."""
        if block.kind in self.templates:
            initialize(self._parts.model, {"": self.templates[block.kind]}, tensors, generator)
        else:
            paths = (*self._parts.embedding_paths, *self._parts.head_paths)
            initialize(
                self._parts.model, {path: self._parts.module(path) for path in paths}, tensors, generator
            )

    def origins(self, names: Iterable[str]) -> dict[str, Origin]:
        """By tensor of this model: which tensors of a checkpoint it is made of."""
        return origins(self._parts.model, names)

    def _kinds(self, recording: Recording) -> list[str]:
        """The kind of every layer, in order; also keeps one template per kind."""
        names: dict[Hashable, str] = {}
        kinds = []
        for layer, arguments in zip(self._parts.layers, recording.layers, strict=True):
            key = (fingerprint(layer), arguments)
            if key not in names:
                names[key] = "layer" if not names else f"layer-{len(names) + 1}"
                self.templates[names[key]] = layer
                self._picks[names[key]] = self._tables.picks(arguments)
            kinds.append(names[key])
        return kinds

    def _call(
        self, path: str, weights: Weights, x: Tensor, buffers: dict[str, Tensor] | None = None
    ) -> Tensor:
        own = {
            name.removeprefix(f"{path}."): tensor
            for name, tensor in weights.items()
            if name.startswith(f"{path}.")
        }
        out: Tensor = functional_call(self._parts.module(path), {**(buffers or {}), **own}, (x,))
        return out

    def _buffers_on(self, device: torch.device) -> dict[str, Tensor]:
        if device not in self._buffers:
            cpu = self._buffers[torch.device("cpu")]
            self._buffers[device] = {name: buffer.to(device) for name, buffer in cpu.items()}
        return self._buffers[device]

    def _check(self, recording: Recording) -> None:
        family = family_of(self.config)
        embedding = self._parts.module(self._parts.embedding_path)
        assert isinstance(embedding, nn.Embedding)
        # The few tokens of the recording need not include the padding token.
        padding, embedding.padding_idx = embedding.padding_idx, None
        tied, self.tied = self.tied, False
        try:
            tables = (recording.positions_BT,)
            embedded_BTD = self.embed(recording.weights, recording.tokens_BT, tables)
            logits_BTV = self.logits(recording.weights, recording.last_BTD[0])[None]
        finally:
            embedding.padding_idx, self.tied = padding, tied
        if not _close(embedded_BTD, recording.embedded_BTD):
            raise InputError(
                "unsupported_architecture",
                f"{family} embeds tokens in a way that this engine does not support.",
            )
        if not _close(logits_BTV, recording.logits_BTV):
            raise InputError(
                "unsupported_architecture",
                f"{family} computes logits in a way that this engine does not support.",
            )

    def _is_eager(self, kind: str, recording: Recording) -> bool:
        """Whether a layer cannot be traced in every precision, as with some products of experts."""
        try:
            self._run_without_values(kind, recording, torch.bfloat16)
        except NotImplementedError:
            return True
        except (ValueError, RuntimeError, TypeError) as problem:
            reason = str(problem).strip().splitlines()[0]
            raise InputError(
                "unsupported_architecture",
                f"A layer of {family_of(self.config)} cannot be run separately: {reason}",
            ) from None
        try:
            self._run_without_values(kind, recording, torch.float32)
        except RuntimeError:
            return True
        return False

    def _passes_on_mask(self, kind: str, recording: Recording) -> bool:
        return passes_on_mask(
            lambda mask: self._run_without_values(kind, recording, torch.bfloat16, mask=mask)
        )

    def _run_without_values(
        self, kind: str, recording: Recording, precision: torch.dtype, mask: Tensor | None = None
    ) -> None:
        weights = {name: weight.to(precision) for name, weight in self.templates[kind].named_parameters()}
        tables = tuple(table.to("meta") for table in self.tables(recording.tokens_BT, None))
        if mask is not None:
            tables = self._tables.with_mask(tables, mask)
        x_BTD = recording.embedded_BTD.to("meta", precision)
        y_BTD = self.layer(kind, weights, x_BTD, tables)
        assert y_BTD.shape == x_BTD.shape


def _blocks(parts: Parts, kinds: list[str]) -> tuple[BlockSpec, ...]:
    def tensors(paths: tuple[str, ...]) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(f"{path}.{name}", tuple(parameter.shape))
            for path in paths
            for name, parameter in parts.module(path).named_parameters()
            if not (parts.tied and path == parts.head_path and name == "weight")
        )

    layers = tuple(
        BlockSpec(
            f"layers.{index}",
            kind,
            tuple(TensorSpec(name, tuple(parameter.shape)) for name, parameter in layer.named_parameters()),
        )
        for index, (kind, layer) in enumerate(zip(kinds, parts.layers, strict=True))
    )
    embedding, head = tensors(parts.embedding_paths), tensors(parts.head_paths)
    if parts.tied:
        return (BlockSpec(_EMBEDDING_NAME, _EMBEDDING_NAME, (*embedding, *head)), *layers)
    return (
        BlockSpec(_EMBEDDING_NAME, _EMBEDDING_NAME, embedding),
        *layers,
        BlockSpec(_HEAD_NAME, _HEAD_NAME, head),
    )


def _close(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)


def _notes(config: Any) -> tuple[str, ...]:
    settings = config.to_dict()
    notes = unused_dropouts(settings)
    if settings.get("router_aux_loss_coef") and settings.get("output_router_logits"):
        notes.append("Training runs without the router's load-balancing loss.")
    return tuple(notes)


def open_model(source: Path | dict[str, Any]) -> HuggingFaceBlocks:
    """The model of a local folder with a config.json, or of such a config itself. Reads no weights."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING

    source_name = "the config" if isinstance(source, dict) else str(source / _CONFIG_FILE)
    settings = source if isinstance(source, dict) else read_model_config(source)
    settings = dict(settings)
    check_model_config(settings)
    family = settings.pop("model_type", None)
    if family is None:
        raise InputError("model_config_invalid", f"{source_name} has no model_type.")
    # A folder that brings its own code is read as the family it names; its code is never run.
    settings.pop("auto_map", None)
    if family not in CONFIG_MAPPING:
        raise InputError(
            "unsupported_architecture",
            f"{source_name} describes {family}, a model family that transformers does not support.",
        )
    try:
        with quiet_transformers():
            config = CONFIG_MAPPING[family].from_dict(settings)
    except (ValueError, TypeError, KeyError, AttributeError, StrictDataclassError) as problem:
        reason = " ".join(str(problem).split())
        raise InputError(
            "unsupported_architecture",
            f"{source_name} describes {family}, which transformers rejects: {reason}",
        ) from None
    return HuggingFaceBlocks(config)


def read_model_config(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / _CONFIG_FILE)
    except InputError as problem:
        raise InputError("not_a_model_folder", f"{folder} is not a model folder. {problem}") from None
