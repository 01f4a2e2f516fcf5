"""Which optimizer updates which tensor of a block, and what state it keeps for it.

AdamW keeps two moments of every tensor. Muon keeps one of the matrices of decoder layers; everything else it
leaves to AdamW. Adafactor keeps the mean squares of rows and columns of a matrix, and of every element of a
vector. First moments lie in one flat buffer, what belongs to second moments in another.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from gpubloom.engine.models.blocks import BlockSpec, TensorSpec
from gpubloom.engine.models.layout import Layout
from gpubloom.plan.decoder import ALIGNMENT
from gpubloom.plan.optimizer_config import OptimizerName

Moment = Literal["first", "second"]
Part = Literal["master", "first", "second"]
PARTS: tuple[Part, ...] = get_args(Part)

# What a tensor of the state is called in a checkpoint, after the name of its parameter.
FIRST, SECOND, ROWS, COLUMNS = (
    ".first_moment",
    ".second_moment",
    ".second_moment_rows",
    ".second_moment_columns",
)
SUFFIXES = (FIRST, SECOND, ROWS, COLUMNS)


@dataclass(frozen=True)
class MomentTensor:
    """A tensor of the state, and where it begins in its flat buffer."""

    tensor: TensorSpec
    part: Moment
    suffix: str
    shape: tuple[int, ...]
    start: int

    @property
    def length(self) -> int:
        return TensorSpec("", self.shape).length

    @property
    def span(self) -> slice:
        return slice(self.start, self.start + self.length)


@dataclass(frozen=True)
class AdamWRange:
    """Neighbouring tensors that AdamW updates alike; first moments lie as the weights do."""

    span: slice
    second: slice
    decays: bool


@dataclass(frozen=True)
class MuonMatrix:
    """A matrix, or several of one size; its momentum lies among the first moments as it does itself."""

    span: slice
    shape: tuple[int, ...]


@dataclass(frozen=True)
class AdafactorTensor:
    """A tensor with its mean squares: of rows and columns, or for a vector of each element."""

    span: slice
    rows: slice
    columns: slice | None
    shape: tuple[int, ...]


Update = AdamWRange | MuonMatrix | AdafactorTensor


@dataclass(frozen=True)
class MomentLayout:
    """The state of one block beside its master: lengths of both flat buffers, tensors, and updates."""

    tensors: tuple[MomentTensor, ...]
    first: int
    second: int
    updates: tuple[Update, ...]

    @classmethod
    def of(cls, spec: BlockSpec, optimizer: OptimizerName) -> "MomentLayout":
        layout = Layout.of(spec.trained)
        match optimizer:
            case "adamw":
                return _adamw(layout)
            case "muon":
                return _adamw(layout) if spec.kind in {"embedding", "head"} else _muon(layout)
            case "adafactor":
                return _adafactor(layout)


def _adamw(layout: Layout, begin: int = 0, muon: tuple[MuonMatrix, ...] = ()) -> MomentLayout:
    """AdamW for everything from `begin` on. First moments lie as the weights do, those of Muon too."""
    placed = list(zip(layout.tensors, layout.offsets, strict=True))
    tensors = [MomentTensor(each, "first", FIRST, each.shape, start) for each, start in placed]
    tensors += [
        MomentTensor(each, "second", SECOND, each.shape, start - begin)
        for each, start in placed
        if start >= begin
    ]
    ranges = []
    for start, end, decays in (
        (begin, layout.decayed, True),
        (max(begin, layout.decayed), layout.length, False),
    ):
        if start < end:
            span = slice(start, end)
            ranges.append(AdamWRange(span, slice(start - begin, end - begin), decays))
    return MomentLayout(tuple(tensors), layout.length, layout.length - begin, (*muon, *ranges))


def _muon(layout: Layout) -> MomentLayout:
    matrices = [
        MuonMatrix(slice(start, start + each.length), each.shape)
        for each, start in zip(layout.tensors, layout.offsets, strict=True)
        if len(each.shape) > 1
    ]
    return _adamw(layout, layout.decayed, tuple(matrices))


def _adafactor(layout: Layout) -> MomentLayout:
    tensors: list[MomentTensor] = []
    updates: list[Update] = []
    end = 0
    for each, start in zip(layout.tensors, layout.offsets, strict=True):
        shape = each.shape
        if len(shape) > 1:
            parts = [(ROWS, shape[:-1]), (COLUMNS, (*shape[:-2], shape[-1]))]
        else:
            parts = [(SECOND, shape)]
        placed = []
        for suffix, part_shape in parts:
            placed.append(MomentTensor(each, "second", suffix, part_shape, end))
            end += -(-placed[-1].length // ALIGNMENT) * ALIGNMENT
        spans = [one.span for one in placed]
        updates.append(
            AdafactorTensor(
                slice(start, start + each.length), spans[0], spans[1] if len(spans) > 1 else None, shape
            )
        )
        tensors += placed
    return MomentLayout(tuple(tensors), 0, end, tuple(updates))
