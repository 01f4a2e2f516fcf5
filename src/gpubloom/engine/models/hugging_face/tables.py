"""The tables that all layers share (positions, rotary tables, masks), as transformers makes them.

The model's own forward runs once on a few tokens, with small random tensors in place of the vocabulary and
layers that only record how they were called. That shows which tables and masks each layer gets, and what
embedding and head must give. It costs milliseconds whatever the model's size.

Tables have one fixed order per model: positions, then the outcome of every table call, then one mask per
window. A mask that is not needed is an empty tensor, so that a compiled layer can tell by its shape; that of
packed rows may be the boundaries of their documents.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpubloom.engine.models.hugging_face.attention import Window, recorded_windows
from gpubloom.engine.models.hugging_face.structure import Parts, family_of, quiet_transformers
from gpubloom.engine.models.packed_documents import (
    document_boundaries,
    document_mask,
    document_starts,
    uses_boundaries,
)
from gpubloom.errors import InputError

_TOKENS = 32
_LENGTH = 6
_CONSTANTS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class TableCall:
    """A call of a module that makes tables from positions, such as rotary ones; `more` follows them."""

    module: nn.Module
    more: tuple[Any, ...]
    more_by_name: tuple[tuple[str, Any], ...]

    def __call__(self, like: Tensor, positions_BT: Tensor) -> tuple[Tensor, ...]:
        made = self.module(like, positions_BT, *self.more, **dict(self.more_by_name))
        return tuple(made) if isinstance(made, tuple | list) else (made,)


@dataclass(frozen=True)
class Positions:
    """Stands for the positions in a layer's arguments."""


@dataclass(frozen=True)
class Tables:
    """Stands for the outcome of a table call in a layer's arguments."""

    call: int


Argument = Positions | Tables | Window | bool | int | float | str | None
LayerArguments = tuple[tuple[str, Argument], ...]


@dataclass(frozen=True)
class Recording:
    """How transformers calls the layers of a model."""

    layers: tuple[LayerArguments, ...]
    table_calls: tuple[TableCall, ...]
    # The embedding's own small tables, such as Gemma's multiplier.
    buffers: dict[str, Tensor]
    tokens_BT: Tensor
    positions_BT: Tensor
    embedded_BTD: Tensor
    last_BTD: Tensor
    logits_BTV: Tensor
    weights: dict[str, Tensor]


def record(parts: Parts) -> Recording:
    """Runs the model around its layers; ValueError when it does what this engine does not know."""
    family = family_of(parts.model.config)
    error: Exception | None = None
    for returns_tuple in (False, True):
        try:
            return _Recorder(parts, returns_tuple=returns_tuple).run()
        except _Unknown as unknown:
            raise InputError(
                "unsupported_architecture", f"{family} cannot be split into layers: {unknown}"
            ) from None
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError) as problem:
            error = error or problem
    reason = str(error).strip().splitlines()[0]
    raise InputError("unsupported_architecture", f"{family} cannot be run layer by layer: {reason}")


class _Unknown(Exception):
    """A layer is called in a way that this engine cannot repeat."""


class _Recorder:
    def __init__(self, parts: Parts, *, returns_tuple: bool) -> None:
        self._model = copy.deepcopy(parts.model)
        self._parts = parts
        self._layers = list(self._model.get_submodule(parts.layers_path))
        self._returns_tuple = returns_tuple
        self._calls: list[TableCall] = []
        self._made: list[tuple[Tensor, ...]] = []
        self._arguments: list[LayerArguments] = []
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._generator = torch.Generator().manual_seed(0)
        # Not from zero, so that a model which makes up positions of its own is found out.
        self._positions_BT = torch.arange(3, 3 + _LENGTH)[None]
        self._tokens_BT = torch.arange(2, 2 + _LENGTH)[None]

    def run(self) -> Recording:
        self._give_small_weights()
        for layer in self._layers:
            layer.forward = self._recording_placeholder(layer.forward)
        with torch.no_grad(), quiet_transformers(), recorded_windows(self._parts.implementation) as window_of:
            self._window_of = window_of
            for module in self._outer_modules():
                if not any(True for _ in module.parameters()) and not any(True for _ in module.children()):
                    module.register_forward_hook(self._note_tables, with_kwargs=True)
            out = self._model(self._tokens_BT, position_ids=self._positions_BT, use_cache=False)
        if len(self._arguments) != len(self._layers):
            raise _Unknown("not every layer is called exactly once")
        for number, (before, after) in enumerate(zip(self._outputs, self._inputs[1:], strict=False), start=1):
            if not torch.equal(before, after):
                raise _Unknown(f"the model changes the values between layers {number - 1} and {number}")
        embedding = self._model.get_submodule(self._parts.embedding_path)
        return Recording(
            layers=tuple(self._arguments),
            table_calls=tuple(self._calls),
            buffers={name: buffer.detach() for name, buffer in embedding.named_buffers()},
            tokens_BT=self._tokens_BT,
            positions_BT=self._positions_BT,
            embedded_BTD=self._inputs[0],
            last_BTD=self._outputs[-1],
            logits_BTV=out.logits,
            weights=self._weights,
        )

    def _outer_modules(self) -> list[nn.Module]:
        inside = {id(module) for layer in self._layers for module in layer.modules()}
        return [module for module in self._model.modules() if id(module) not in inside]

    def _give_small_weights(self) -> None:
        """Everything outside the layers gets real tensors; vocabularies shrink to a few tokens."""
        cut = {id(self._model.get_input_embeddings()), id(self._model.get_output_embeddings())}
        self._weights: dict[str, Tensor] = {}
        paths = {id(module): path for path, module in self._model.named_modules()}
        for module in self._outer_modules():
            for name, buffer in list(module.named_buffers(recurse=False)):
                module._buffers[name] = torch.empty_like(buffer, device="cpu")
            # transformers' rules for first weights also fill the tables that are in no checkpoint.
            self._model._init_weights(module)
            for name, parameter in list(module.named_parameters(recurse=False)):
                shape = list(parameter.shape)
                shape[0] = min(shape[0], _TOKENS) if id(module) in cut else shape[0]
                small = torch.rand(shape, generator=self._generator) + 0.5
                module._parameters[name] = nn.Parameter(small, requires_grad=False)
                self._weights[f"{paths[id(module)]}.{name}"] = small
            if id(module) in cut and isinstance(module, nn.Embedding):
                module.padding_idx = None

    def _note_tables(self, module: nn.Module, inputs: Any, by_name: dict[str, Any], made: Any) -> None:
        tensors = tuple(made) if isinstance(made, tuple | list) else (made,)
        inputs = list(inputs)
        by_name = dict(by_name)
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            return
        # Called as (x, positions, …) in every family; either may come by name.
        for name in ("x", "position_ids"):
            if name in by_name:
                inputs.append(by_name.pop(name))
        if len(inputs) < 2 or inputs[1] is not self._positions_BT:
            return
        self._calls.append(TableCall(module, tuple(inputs[2:]), tuple(by_name.items())))
        self._made.append(tensors)

    def _recording_placeholder(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(forward)

        def placeholder(*arguments: Any, **by_name: Any) -> Any:
            bound = signature.bind(*arguments, **by_name).arguments
            for parameter in signature.parameters.values():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    bound.update(bound.pop(parameter.name, {}))
            hidden_states = next(iter(bound))
            x_BTD = bound.pop(hidden_states)
            self._inputs.append(x_BTD)
            arguments_of_layer = tuple((name, self._known(name, value)) for name, value in bound.items())
            if not any(isinstance(value, Window) for _, value in arguments_of_layer):
                raise _Unknown("not all of its layers use attention")
            self._arguments.append(arguments_of_layer)
            y_BTD = torch.rand(x_BTD.shape, generator=self._generator)
            self._outputs.append(y_BTD)
            return (y_BTD, None) if self._returns_tuple else y_BTD

        return placeholder

    def _known(self, name: str, value: Any) -> Argument:
        window = self._window_of(value)
        if window is not None:
            return window
        if value is self._positions_BT:
            return Positions()
        parts = tuple(value) if isinstance(value, tuple | list) else (value,)
        for call, made in enumerate(self._made):
            if len(parts) == len(made) and all(a is b for a, b in zip(parts, made, strict=True)):
                return Tables(call)
        if isinstance(value, _CONSTANTS):
            return value
        raise _Unknown(f"its layers take {name}, which this engine does not support")


class Picks:
    """A layer's arguments, taken from the tables. Plain numbers and names, so that it can be compiled."""

    def __init__(
        self,
        constants: tuple[tuple[str, Any], ...],
        tables: tuple[tuple[str, int, int, bool], ...],
        masks: tuple[tuple[str, int], ...],
    ) -> None:
        self._constants = constants
        self._tables = tables
        self._masks = masks

    def arguments(self, x_BTD: Tensor, tables: tuple[Tensor, ...]) -> dict[str, Any]:
        arguments = dict(self._constants)
        for name, first, end, follows in self._tables:
            picked = tuple(table.to(x_BTD.dtype) if follows else table for table in tables[first:end])
            arguments[name] = picked if len(picked) > 1 else picked[0]
        for name, index in self._masks:
            arguments[name] = tables[index] if tables[index].numel() else None
        return arguments


class TableMaker:
    """Makes the tables of a model, and knows what of them each layer is called with."""

    def __init__(self, calls: Sequence[TableCall], layers: Sequence[LayerArguments]) -> None:
        self._calls = {torch.device("cpu"): list(calls)}
        # Whether transformers computes with these tables in the precision of the hidden states.
        self._follows = [_follows_precision(call) for call in calls]
        self._sizes = [len(call(torch.empty(0), torch.zeros(1, 1, dtype=torch.long))) for call in calls]
        windows = {argument for layer in layers for _, argument in layer if isinstance(argument, Window)}
        self._windows = sorted(windows, key=lambda window: window.size or 0)
        # Whether layers pass on what they are given as a mask, whatever it is.
        self.takes_boundaries = False

    @torch.no_grad()
    def make(
        self, tokens_BT: Tensor, documents_BT: Tensor | None, most_per_row: int | None = None
    ) -> tuple[Tensor, ...]:
        length, device = tokens_BT.shape[1], tokens_BT.device
        positions_BT = torch.arange(length, device=device)[None]
        if documents_BT is not None:
            positions_BT = positions_BT - document_starts(documents_BT)
        like = torch.empty(0, device=device)
        made = [table for call in self._calls_on(device) for table in call(like, positions_BT)]
        if not self.takes_boundaries or not uses_boundaries(device, length, most_per_row):
            most_per_row = None
        masks = [_mask(window, length, device, documents_BT, most_per_row) for window in self._windows]
        return positions_BT, *made, *masks

    def with_mask(self, tables: tuple[Tensor, ...], mask: Tensor) -> tuple[Tensor, ...]:
        """The same tables with this in place of every mask."""
        return *tables[: -len(self._windows)], *[mask] * len(self._windows)

    def picks(self, layer: LayerArguments) -> "Picks":
        """Where in the tables a layer finds what transformers would give it."""
        constants, tables, masks = [], [], []
        for name, value in layer:
            if isinstance(value, Positions):
                tables.append((name, 0, 1, False))
            elif isinstance(value, Tables):
                first = 1 + sum(self._sizes[: value.call])
                tables.append((name, first, first + self._sizes[value.call], self._follows[value.call]))
            elif isinstance(value, Window):
                masks.append((name, 1 + sum(self._sizes) + self._windows.index(value)))
            else:
                constants.append((name, value))
        return Picks(tuple(constants), tuple(tables), tuple(masks))

    def _calls_on(self, device: torch.device) -> list[TableCall]:
        if device not in self._calls:
            self._calls[device] = [
                TableCall(copy.deepcopy(call.module).to(device), call.more, call.more_by_name)
                for call in self._calls[torch.device("cpu")]
            ]
        return self._calls[device]


def _follows_precision(call: TableCall) -> bool:
    made = call(torch.empty(0, dtype=torch.bfloat16), torch.zeros(1, 1, dtype=torch.long))
    return all(table.dtype == torch.bfloat16 for table in made)


def _mask(
    window: Window, length: int, device: torch.device, documents_BT: Tensor | None, most_per_row: int | None
) -> Tensor:
    """True where a position may look, (B or 1, 1, T, T); empty when that is simply everything before.

    With `most_per_row`, the boundaries of documents, where no window is shorter than a row.
    """
    short = window.size is not None and length > window.size
    if not short:
        if documents_BT is None:
            return torch.empty(0, dtype=torch.bool, device=device)
        if most_per_row is not None:
            return document_boundaries(documents_BT, most_per_row)
        return document_mask(documents_BT)
    positions_T = torch.arange(length, device=device)
    distance_TT = positions_T[:, None] - positions_T[None, :]
    seen_TT = (distance_TT >= 0) & (distance_TT < (window.size or length))
    return seen_TT[None, None] if documents_BT is None else document_mask(documents_BT) & seen_TT
