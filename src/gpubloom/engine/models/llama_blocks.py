"""LlamaBlocks: the engine's own architecture as blocks. Computes what TransformerLM computes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from gpubloom.engine.models.blocks import BlockSpec, Tables, TensorSpec, Weights
from gpubloom.engine.models.dropout import Dropout
from gpubloom.engine.models.transformer import (
    DecoderLayer,
    document_tables,
    initial_deviation,
    rotary_tables,
)
from gpubloom.plan import ModelShape

_EMBEDDING, _NORM, _HEAD = "weight", "norm.weight", "head.weight"
_LAYER = "layer"
_EMBEDDING_KIND = "embedding"
_NAMES = {
    _EMBEDDING: "model.embed_tokens.weight",
    _NORM: "model.norm.weight",
    _HEAD: "lm_head.weight",
}


class LlamaBlocks:
    """A model of the Llama architecture that is given its weights."""

    dropout: Dropout | None = None

    def __init__(self, shape: ModelShape) -> None:
        self.shape = shape
        with torch.device("meta"):
            template = DecoderLayer(shape)
        self.templates: dict[str, nn.Module] = {_LAYER: template}
        self.tied = shape.tie_embeddings
        self.eager_kinds: frozenset[str] = frozenset()
        layer = tuple(
            TensorSpec(name, tuple(parameter.shape)) for name, parameter in template.named_parameters()
        )
        table = (shape.vocab_size, shape.hidden_size)
        embedding = (TensorSpec(_EMBEDDING, table),)
        head: tuple[TensorSpec, ...] = (TensorSpec(_NORM, (shape.hidden_size,)),)
        layers = tuple(BlockSpec(f"layers.{index}", _LAYER, layer) for index in range(shape.layers))
        if self.tied:
            self.blocks = (BlockSpec("embedding", _EMBEDDING_KIND, (*embedding, *head)), *layers)
        else:
            head = (*head, TensorSpec(_HEAD, table))
            self.blocks = (
                BlockSpec("embedding", _EMBEDDING_KIND, embedding),
                *layers,
                BlockSpec("head", "head", head),
            )

    def parameter_name(self, block: BlockSpec, tensor: TensorSpec) -> str:
        return f"model.{block.name}.{tensor.name}" if block.kind == _LAYER else _NAMES[tensor.name]

    def tables(self, tokens_BT: Tensor, documents_BT: Tensor | None) -> Tables:
        if documents_BT is not None:
            return document_tables(self.shape, documents_BT)
        return rotary_tables(self.shape, tokens_BT.shape[1], tokens_BT.device)

    def embed(self, weights: Weights, tokens_BT: Tensor, tables: Tables) -> Tensor:
        return F.embedding(tokens_BT, weights[_EMBEDDING])

    def layer(self, kind: str, weights: Weights, x_BTD: Tensor, tables: Tables) -> Tensor:
        out: Tensor = functional_call(self.templates[kind], dict(weights), (x_BTD, tables))
        return out

    def logits(self, weights: Weights, x_ND: Tensor) -> Tensor:
        normed = F.rms_norm(x_ND, (self.shape.hidden_size,), weights[_NORM], self.shape.norm_eps)
        return F.linear(normed, weights[_EMBEDDING if self.tied else _HEAD])


class RandomLlama:
    """First weights that depend on shape, seed and kind of device only, not on torch's global generator."""

    def __init__(self, shape: ModelShape, seed: int) -> None:
        self._shape = shape
        self._seed = seed
        self._generator: torch.Generator | None = None

    @torch.no_grad()
    def fill(self, block: BlockSpec, tensors: Weights) -> None:
        if self._generator is None or block.kind == _EMBEDDING_KIND:
            # The first block begins the same sequence of numbers, however often a model is filled.
            device = next(iter(tensors.values())).device
            self._generator = torch.Generator(device).manual_seed(self._seed)
        for tensor in (*block.trained, *block.frozen):
            target = tensors[tensor.name]
            if target.ndim == 1:
                target.fill_(1.0)
            else:
                target.normal_(0.0, initial_deviation(self._shape, tensor.name), generator=self._generator)
