"""Architectures of plug-ins: ordinary modules, taken apart into blocks that the executor can place and move.

A plug-in is a function `(shape, options) -> Architecture`. Its parts are made one at a time: on the meta
device to learn their tensors, and on the CPU when their first weights are drawn. A part may hold parameters
only.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gpubloom import plugins
from gpubloom.engine.models.blocks import BlockSpec, Tables, TensorSpec, Weights
from gpubloom.engine.models.dropout import Dropout
from gpubloom.errors import InputError
from gpubloom.plan import DecoderShape, ModelShape
from gpubloom.plan.decoder import Linear

_GROUP: plugins.Group = "architectures"
# In the config.json of such a model.
PLUGGED_TYPE = "gpubloom_custom"


class Architecture(Protocol):
    """What a plug-in gives. Every call makes a new module; layers are causal and keep their input's size."""

    def embedding(self) -> nn.Module:
        """tokens [rows, positions] -> x [rows, positions, hidden_size]"""

    def layer(self, index: int) -> nn.Module:
        """x -> x of the same size"""

    def head(self) -> nn.Module:
        """x [positions of any rows, hidden_size] -> logits [positions, vocab_size]"""


class PluggedBlocks:
    """A model whose layers a plug-in makes; `shape` says how many there are and how large they should be."""

    dropout: Dropout | None = None
    tied = False

    def __init__(self, name: str, shape: ModelShape, options: Mapping[str, Any]) -> None:
        self.name, self.shape, self.options = name, shape, dict(options)
        self.eager_kinds: frozenset[str] = frozenset()
        made = plugins.load(_GROUP, name)
        self._architecture: Architecture = self._guarded(
            "cannot be created", lambda: made(shape, self.options)
        )
        self._templates: dict[str, nn.Module] = {}
        layers = [self._block(f"layers.{index}", index) for index in range(shape.layers)]
        self.blocks = (self._block("embedding", None), *layers, self._block("head", None))
        self._try_out()

    def decoder(self) -> DecoderShape:
        """What the planner sees: these tensors, in layers that are otherwise taken for a Llama's."""
        assumed = self.shape.decoder()
        embedding, head = _lengths(self.blocks[0]), list(_lengths(self.blocks[-1]))
        projection = self.shape.vocab_size * self.shape.hidden_size
        if projection in head:
            head.remove(projection)
        layers = tuple(
            replace(assumed.layers[0], linears=_matrices(block), others=_vectors(block))
            for block in self.blocks[1:-1]
        )
        return replace(assumed, family=self.name, layers=layers, embedding=embedding, head_others=tuple(head))

    def parameter_name(self, block: BlockSpec, tensor: TensorSpec) -> str:
        return f"model.{block.name}.{tensor.name}"

    def tables(
        self, tokens_BT: Tensor, documents_BT: Tensor | None, most_per_row: int | None = None
    ) -> Tables:
        if documents_BT is not None:
            raise InputError(
                "packing_not_supported",
                f"{plugins.title(_GROUP, self.name)} does not support packing: set data.packing to false.",
            )
        return ()

    def embed(self, weights: Weights, tokens_BT: Tensor, tables: Tables) -> Tensor:
        return self._call("embedding", weights, tokens_BT)

    def layer(self, kind: str, weights: Weights, x_BTD: Tensor, tables: Tables) -> Tensor:
        return self._call(kind, weights, x_BTD)

    def logits(self, weights: Weights, x_ND: Tensor) -> Tensor:
        return self._call("head", weights, x_ND)

    @torch.no_grad()
    def initialize(self, block: BlockSpec, tensors: Weights, generator: torch.Generator) -> None:
        """The part's own first weights. Modules draw from torch's global generator, so it gets their seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            module = self._part(block.name)
        for name, parameter in module.named_parameters():
            tensors[name].copy_(parameter)

    def _call(self, kind: str, weights: Weights, given: Tensor) -> Tensor:
        out: Tensor = functional_call(self._templates[kind], dict(weights), (given,))
        return out

    def _block(self, name: str, index: int | None) -> BlockSpec:
        with torch.device("meta"):
            module = self._part(name)
        if not isinstance(module, nn.Module):
            raise self._refused(f"returns {type(module).__name__} for {name}, not a torch module")
        if any(True for _ in module.buffers()):
            raise self._refused(
                f"has a buffer in {name}: compute the buffer in forward, or make it a parameter"
            )
        tensors = tuple(TensorSpec(each, tuple(found.shape)) for each, found in module.named_parameters())
        if not tensors:
            raise self._refused(f"has no parameter in {name}")
        if index is not None and all(len(tensor.shape) < 2 for tensor in tensors):
            raise self._refused(f"has no matrix in {name}")
        # Layers that look the same share one function, which is then compiled once.
        kind = name if index is None else f"layer of {module}"
        self._templates.setdefault(kind, module)
        return BlockSpec(name, kind, tensors)

    def _part(self, name: str) -> nn.Module:
        kind, _, index = name.partition(".")
        make: dict[str, Callable[[], nn.Module]] = {
            "embedding": lambda: self._architecture.embedding(),
            "layers": lambda: self._architecture.layer(int(index)),
            "head": lambda: self._architecture.head(),
        }
        part: nn.Module = self._guarded(f"cannot create {name}", make[kind])
        return part

    def _try_out(self) -> None:
        """Sizes are checked before anything is trained; on no device this costs nothing."""
        tokens = torch.zeros((1, 2), dtype=torch.long, device="meta")
        hidden = (1, 2, self.shape.hidden_size)
        x = self._sized("embedding", tokens, hidden)
        for block in self.blocks[1:-1]:
            x = self._sized(block.kind, x, hidden, block.name)
        self._sized("head", x.reshape(2, -1), (2, self.shape.vocab_size))

    def _sized(self, kind: str, given: Tensor, size: tuple[int, ...], name: str | None = None) -> Tensor:
        template, name = self._templates[kind], name or kind
        out = self._guarded(f"cannot compute {name}", lambda: template(given))
        if not isinstance(out, Tensor) or tuple(out.shape) != size:
            found = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise self._refused(f"returns {found} from {name} instead of {size}")
        return out

    def _guarded(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as problem:
            raise plugins.failed(_GROUP, self.name, what, problem) from problem

    def _refused(self, what: str) -> plugins.PluginProblem:
        return plugins.PluginProblem("plugin_invalid", f"{plugins.title(_GROUP, self.name)} {what}.")


def _lengths(block: BlockSpec) -> tuple[int, ...]:
    return tuple(tensor.length for tensor in block.trained)


def _matrices(block: BlockSpec) -> tuple[Linear, ...]:
    found = [tensor for tensor in block.trained if len(tensor.shape) > 1]
    return tuple(Linear(each.name, each.length // each.shape[0], each.shape[0]) for each in found)


def _vectors(block: BlockSpec) -> tuple[int, ...]:
    return tuple(tensor.length for tensor in block.trained if len(tensor.shape) < 2)


def plugged_settings(name: str, shape: ModelShape, options: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of such a model: enough to make it again; transformers knows no such family."""
    sizes = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "max_position_embeddings": shape.context_length,
    }
    return {"model_type": PLUGGED_TYPE, "architecture": name, "options": dict(options), **sizes}
