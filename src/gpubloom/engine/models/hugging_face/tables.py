"""What all layers of a model share for some rows: positions, rotary tables, masks.

One fixed order of tensors per model: positions, then the outcome of every table call, then one mask per
window. A mask that is not needed is an empty tensor, so that a compiled layer can tell by its shape.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine.models.documents import document_starts, same_document
from gpubloom.engine.models.hugging_face.attention import Window
from gpubloom.engine.models.hugging_face.recording import (
    LayerArguments,
    Positions,
    TableCall,
    Tables,
)


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

    @torch.no_grad()
    def make(self, tokens_BT: Tensor, documents_BT: Tensor | None) -> tuple[Tensor, ...]:
        length, device = tokens_BT.shape[1], tokens_BT.device
        positions_BT = torch.arange(length, device=device)[None]
        if documents_BT is not None:
            positions_BT = positions_BT - document_starts(documents_BT)
        like = torch.empty(0, device=device)
        made = [table for call in self._calls_on(device) for table in call(like, positions_BT)]
        masks = [_mask(window, length, device, documents_BT) for window in self._windows]
        return positions_BT, *made, *masks

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


def _mask(window: Window, length: int, device: torch.device, documents_BT: Tensor | None) -> Tensor:
    """True where a position may look, (B or 1, 1, T, T); empty when that is simply everything before."""
    short = window.size is not None and length > window.size
    if documents_BT is None and not short:
        return torch.empty(0, dtype=torch.bool, device=device)
    positions_T = torch.arange(length, device=device)
    distance_TT = positions_T[:, None] - positions_T[None, :]
    seen_TT = distance_TT >= 0
    if window.size is not None:
        seen_TT &= distance_TT < window.size
    if documents_BT is None:
        return seen_TT[None, None]
    return same_document(documents_BT) & seen_TT
