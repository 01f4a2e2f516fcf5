"""What all executors share: their options, a step's measurements, and the parts of a step.

The parts are the same under every placement: micro-batches on the device, dropout draws, chunks of positions,
gradient clipping and the AdamW settings of an update.

Shape letters: A micro-batches, B rows, T positions, D hidden size, N positions of any rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.models.blocks import BlockModel, Tables
from gpubloom.engine.optimizer.host import AdamWStep
from gpubloom.engine.parallel import ALONE, Group
from gpubloom.plan import OptimizerConfig


@dataclass(frozen=True)
class ExecutorOptions:
    """What an executor is told besides model, placement and optimizer."""

    accumulation: int = 1
    compiled: bool = False
    quantized: bool = False
    threads: int = 1
    group: Group = ALONE
    # Takes sentences for the run's log.
    say: Callable[[str], None] = lambda sentence: None


@dataclass(frozen=True)
class StepMeasures:
    """One step. Waiting is time in which the device had nothing to compute."""

    waiting_for_weights: float
    waiting_for_optimizer: float
    bytes_in: int
    bytes_out: int

    @classmethod
    def of(cls, waited: float, blocked: float, bytes_in: int, bytes_out: int) -> "StepMeasures":
        """`blocked`: how long the host waited for an update before it could order the next work."""
        optimizer = min(waited, blocked)
        return cls(waited - optimizer, optimizer, bytes_in, bytes_out)

    def metrics(self, seconds: float) -> dict[str, float]:
        """As series of a run, for a step that took so many seconds in all."""
        return {
            "engine/computing_seconds": max(
                0.0, seconds - self.waiting_for_weights - self.waiting_for_optimizer
            ),
            "engine/waiting_for_weights_seconds": self.waiting_for_weights,
            "engine/waiting_for_optimizer_seconds": self.waiting_for_optimizer,
            "engine/link_in_gb_per_second": self.bytes_in / seconds / 1e9,
            "engine/link_out_gb_per_second": self.bytes_out / seconds / 1e9,
        }


class DeviceNumber:
    """A number that the device will have computed, copied home as soon as it is known.

    Reading it waits for that moment only: what was ordered later is not waited for.
    """

    def __init__(self, value: Tensor | float) -> None:
        self._value = torch.as_tensor(value)
        self._arrived: torch.cuda.Event | None = None
        if self._value.is_cuda:
            on_host = torch.empty((), dtype=self._value.dtype, pin_memory=True)
            self._value = on_host.copy_(self._value.detach(), non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def read(self) -> float:
        if self._arrived is not None:
            self._arrived.synchronize()
        return float(self._value)


def rows_of(
    batch: Batch, model: BlockModel, device: torch.device
) -> tuple[list[Tensor], list[Tensor], list[Tables]]:
    """Tokens, targets and tables of each micro-batch, on the device."""
    tokens_ABT = list(batch.tokens_ABT.to(device, non_blocking=True))
    targets_ABT = list(batch.targets_ABT.to(device, non_blocking=True))
    if batch.documents_ABT is None:
        tables = model.tables(tokens_ABT[0], None)
        return tokens_ABT, targets_ABT, [tables] * len(tokens_ABT)
    documents_ABT = list(batch.documents_ABT.to(device, non_blocking=True))
    each = [
        model.tables(tokens_BT, documents_BT, batch.most_documents_per_row)
        for tokens_BT, documents_BT in zip(tokens_ABT, documents_ABT, strict=True)
    ]
    return tokens_ABT, targets_ABT, each


def text_batch(tokens_1T: Tensor) -> Batch:
    """One text as a batch in which nothing is trained."""
    tokens_ABT = tokens_1T.unsqueeze(0)
    return Batch(tokens_ABT, torch.full_like(tokens_ABT, IGNORED))


@dataclass(frozen=True)
class StepInputs:
    """What a step reads besides weights, on the device: one entry per micro-batch, and dropout's draws."""

    tokens_ABT: list[Tensor]
    targets_ABT: list[Tensor]
    tables: list[Tables]
    # One for each layer and micro-batch.
    draws: Tensor | None

    def by_layer(self, layers: int) -> list[list[Tables]]:
        """What each layer is given for its micro-batches: the same for all, but for what chance decides."""
        if self.draws is None:
            return [self.tables] * layers
        return [
            [(*table, draw) for table, draw in zip(self.tables, self.draws[number], strict=True)]
            for number in range(layers)
        ]

    def is_like(self, other: "StepInputs") -> bool:
        return [each.shape for each in self._tensors()] == [each.shape for each in other._tensors()]

    def load(self, other: "StepInputs") -> None:
        """Copies the values of another step into these tensors."""
        for mine, theirs in zip(self._tensors(), other._tensors(), strict=True):
            if mine is not theirs:
                mine.copy_(theirs, non_blocking=True)

    def _tensors(self) -> list[Tensor]:
        tables = {id(each): each for table in self.tables for each in table}
        draws = () if self.draws is None else (self.draws,)
        return [*self.tokens_ABT, *self.targets_ABT, *tables.values(), *draws]


def begins_of(batch: Batch, group: Group) -> list[int]:
    """Where in the batch of all processes each micro-batch begins, counted in positions."""
    accumulation, positions = len(batch.tokens_ABT), batch.tokens_ABT[0].numel()
    return [(number * group.size + group.rank) * positions for number in range(accumulation)]


def tables_by_layer(
    model: BlockModel,
    tables: list[Tables],
    begins: Sequence[int],
    *,
    layers: int,
    updates: int,
    training: bool,
    device: torch.device,
) -> list[list[Tables]]:
    """What each layer is given for its micro-batches."""
    draws = draws_of(model, begins, layers=layers, updates=updates, training=training, device=device)
    return StepInputs([], [], tables, draws).by_layer(layers)


def draws_of(
    model: BlockModel,
    begins: Sequence[int],
    *,
    layers: int,
    updates: int,
    training: bool,
    device: torch.device,
) -> Tensor | None:
    """What chance decides in a step, for each layer and micro-batch; None without dropout."""
    if model.dropout is None:
        return None
    draws = model.dropout.draws(updates, layers, begins, training=training)
    return (draws.pin_memory() if device.type == "cuda" else draws).to(device, non_blocking=True)


def chunks(
    x_ABTD: Sequence[Tensor], targets_ABT: Sequence[Tensor], size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """All positions with their targets, a bounded number at a time."""
    targets = pieces([targets_BT.unsqueeze(-1) for targets_BT in targets_ABT], size)
    for x_ND, targets_N in zip(pieces(x_ABTD, size), targets, strict=True):
        yield x_ND, targets_N.squeeze(-1)


def pieces(x_ABTD: Sequence[Tensor], size: int) -> Iterator[Tensor]:
    for x_BTD in x_ABTD:
        yield from torch.split(x_BTD.flatten(0, 1), size)


def gradient_factor(norm: Tensor, clip_norm: float, unscaling: float) -> Tensor:
    """What a gradient of this norm is multiplied by: undoes loss scaling, and clips by the norm."""
    factor = torch.full_like(norm, unscaling)
    if clip_norm > 0:
        factor = factor * torch.clamp(clip_norm / (norm + 1e-6), max=1.0)
    return factor


def adamw_step(optimizer: OptimizerConfig, lr: float, weight_decay: float, updates: int) -> AdamWStep:
    """One update as the config describes it, but for what may change while a run goes on."""
    return AdamWStep(
        lr=lr,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=weight_decay,
        updates=updates,
    )
