"""Names, types and shapes of the tensors of a safetensors file, from its header alone.

Written here because the safetensors package is not part of the server's installation. The file may come from
anybody: nothing of it is believed before it was checked.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from gpubloom.errors import CodedError, InputError

LENGTH_BYTES = 8
# The format allows no longer header.
LONGEST_HEADER = 100_000_000
# Types that are not known here have no length that could be checked.
_MOST_DIMENSIONS = 64
_LARGEST_DIMENSION = 1 << 48
_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True)
class HeldTensor:
    """A tensor as a file's header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str

    @property
    def length(self) -> int:
        return math.prod(self.shape)


class Truncated(CodedError, ValueError):
    """The file ends before its tensors do."""

    code = "invalid_safetensors"


def read_header(path: Path) -> dict[str, HeldTensor]:
    """The tensors of a file by name. Raises Truncated when bytes are missing, InputError when damaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(LENGTH_BYTES)
        length = int.from_bytes(first, "little")
        if len(first) < LENGTH_BYTES:
            raise Truncated("it ends within its header")
        if length > LONGEST_HEADER:
            raise InputError("invalid_safetensors", "it does not begin with a safetensors header")
        if length > size - LENGTH_BYTES:
            raise Truncated("it ends within its header")
        text = file.read(length)
    try:
        described = json.loads(text)
        described.pop("__metadata__", None)
        tensors, end = {}, 0
        for name, about in described.items():
            shape = tuple(int(dimension) for dimension in about["shape"])
            begin, stop = (int(offset) for offset in about["data_offsets"])
            bits = _BITS.get(about["dtype"])
            if len(shape) > _MOST_DIMENSIONS or max(shape, default=0) > _LARGEST_DIMENSION:
                raise InputError("invalid_safetensors", f"tensor {name} has an impossible shape")
            if min(shape, default=0) < 0 or (bits and stop - begin != math.prod(shape) * bits // 8):
                raise InputError("invalid_safetensors", f"tensor {name} has invalid offsets")
            tensors[str(name)] = HeldTensor(str(name), str(about["dtype"]), shape, path.name)
            end = max(end, stop)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise InputError("invalid_safetensors", f"its header cannot be read ({problem})") from None
    if LENGTH_BYTES + length + end > size:
        raise Truncated(f"it has {size:,} bytes instead of {LENGTH_BYTES + length + end:,}")
    return tensors
