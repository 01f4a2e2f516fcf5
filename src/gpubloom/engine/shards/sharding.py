"""Which tensor of which block lies in which file. Pure: it knows specs and names, no values and no disk.

A file holds whole blocks in forward order, so that blocks can be written as they come. Files have about the
same size; a block larger than that has a file of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubloom.engine.executors.blocks.snapshot import MOMENTS, WEIGHTS, Part
from gpubloom.engine.executors.blocks.store import Layout
from gpubloom.engine.models.blocks import BlockModel, BlockSpec, TensorSpec
from gpubloom.engine.shards.tensor_file import Entry, entries

SHARD_BYTES = 4_000_000_000
_FLOAT_BYTES = 4
_SUFFIX: Mapping[Part, str] = {"master": "", "first": ".first_moment", "second": ".second_moment"}


@dataclass(frozen=True)
class Stretch:
    """A tensor, and the stretch of a block's flat state that it is."""

    name: str
    shape: tuple[int, ...]
    block: int
    part: Part
    start: int
    length: int


@dataclass(frozen=True)
class Shard:
    """One file: the tensors of some blocks."""

    file: str
    stretches: tuple[Stretch, ...]

    @property
    def entries(self) -> list[Entry]:
        return entries([(stretch.name, stretch.shape) for stretch in self.stretches])


@dataclass(frozen=True)
class Sharding:
    """All files of one kind. `index` is the index file as Hugging Face wants it; None for a single file."""

    shards: tuple[Shard, ...]
    index_file: str

    @property
    def total_bytes(self) -> int:
        return _FLOAT_BYTES * sum(each.length for shard in self.shards for each in shard.stretches)

    @property
    def index(self) -> dict[str, object] | None:
        if len(self.shards) == 1:
            return None
        weight_map = {each.name: shard.file for shard in self.shards for each in shard.stretches}
        return {"metadata": {"total_size": self.total_bytes}, "weight_map": weight_map}


def tensor_name(model: BlockModel, block: BlockSpec, tensor: TensorSpec, part: Part, prefix: str = "") -> str:
    """What a tensor, or one of its moments, is called on disk."""
    return f"{prefix}{model.parameter_name(block, tensor)}{_SUFFIX[part]}"


def is_moment(name: str) -> bool:
    return name.endswith(tuple(filter(None, _SUFFIX.values())))


def weight_stretches(model: BlockModel, prefix: str = "") -> list[Stretch]:
    """Every trained tensor by its name in a model folder, in forward order."""
    return _stretches(model, WEIGHTS, prefix)


def moment_stretches(model: BlockModel) -> list[Stretch]:
    """Both moments of every trained tensor, in forward order."""
    return _stretches(model, MOMENTS, "")


def shard(stretches: Sequence[Stretch], stem: str, limit: int = SHARD_BYTES) -> Sharding:
    """Files of about `limit` bytes: `stem.safetensors`, or numbered ones when there are several."""
    groups: list[list[Stretch]] = [[]]
    filled = 0
    for block in _by_block(stretches):
        size = _FLOAT_BYTES * sum(each.length for each in block)
        if groups[-1] and filled + size > limit:
            groups.append([])
            filled = 0
        groups[-1] += block
        filled += size
    count = len(groups)
    names = [f"{stem}-{number:05d}-of-{count:05d}" for number in range(1, count + 1)] if count > 1 else [stem]
    shards = (Shard(f"{name}.safetensors", tuple(group)) for name, group in zip(names, groups, strict=True))
    return Sharding(tuple(shards), f"{stem}.safetensors.index.json")


def _stretches(model: BlockModel, parts: Sequence[Part], prefix: str) -> list[Stretch]:
    found = []
    for block, spec in enumerate(model.blocks):
        layout = Layout.of(spec.trained)
        for part in parts:
            for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
                name = tensor_name(model, spec, tensor, part, prefix)
                found.append(Stretch(name, tensor.shape, block, part, start, tensor.length))
    return found


def _by_block(stretches: Sequence[Stretch]) -> list[list[Stretch]]:
    blocks: dict[int, list[Stretch]] = {}
    for stretch in stretches:
        blocks.setdefault(stretch.block, []).append(stretch)
    return list(blocks.values())
