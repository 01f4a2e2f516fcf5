"""Keys and values in blocks: the pool that is allocated once, and which blocks belong to whom.

A sequence of tokens owns or shares blocks of 32 positions. Invariants:

- a block that is full and remembered never changes; only such blocks are shared
- a sequence reserves all the blocks it may need before it starts, so it never has to wait half way
- a block is free, or held by sequences, or remembered and held by nobody: those are reused, oldest first
- block 0 belongs to nobody: rows of a batch that are not in use write there

Remembered blocks are found by the tokens in them and before them, so a conversation that goes on, or another
one with the same beginning, does not compute that beginning again.
"""

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

BLOCK = 32


class KvPool:
    """Keys and values of all layers, (blocks, BLOCK, K, H) each. Zeros: what is not in use must be finite."""

    def __init__(
        self,
        blocks: int,
        layers: int,
        kv_heads: int,
        head_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        size = (blocks, BLOCK, kv_heads, head_size)
        self.keys = [torch.zeros(size, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(size, dtype=dtype, device=device) for _ in range(layers)]


def flat_positions(tables_BM: Tensor, positions_B: Tensor) -> Tensor:
    """Where each row's position lies in a pool of flat positions."""
    block_B = tables_BM.gather(1, (positions_B // BLOCK)[:, None])[:, 0]
    return block_B.long() * BLOCK + positions_B % BLOCK


@dataclass
class BlockList:
    """The blocks of one sequence of tokens, in its order; `reused` positions need not be computed."""

    blocks: list[int]
    reused: int
    # The last remembered block's number, and how many blocks are remembered: where `remember` goes on.
    _node: int = 0
    _remembered: int = 0


@dataclass
class BlockAllocator:
    """Hands out the blocks of a pool. Knows no tensors."""

    count: int
    _free: list[int] = field(init=False)
    _holders: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._free = list(range(self.count - 1, 0, -1))
        self._holders = [0] * self.count
        # (number of the block before, tokens) -> (own number, block). Numbers are never used twice.
        self._known: dict[tuple[Hashable, tuple[int, ...]], tuple[int, int]] = {}
        self._keys: dict[int, tuple[Hashable, tuple[int, ...]]] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._next_node = 1

    @property
    def available(self) -> int:
        return len(self._free) + len(self._idle)

    def reserve(self, prompt: Sequence[int], length: int, variant: Hashable) -> BlockList | None:
        """Blocks for `length` positions; None while too few are available.

        `variant` says which model computes them: others cannot share.
        """
        shared, node = self._find(prompt, variant)
        wanted = math.ceil(length / BLOCK) - len(shared)
        idle_shared = sum(1 for block in shared if block in self._idle)
        if wanted > self.available - idle_shared:
            return None
        for block in shared:
            self._hold(block)
        own = [self._take() for _ in range(wanted)]
        found = BlockList([*shared, *own], len(shared) * BLOCK)
        found._node, found._remembered = node, len(shared)
        return found

    def remember(self, sequence: BlockList, tokens: Sequence[int], variant: Hashable) -> None:
        """Keeps the full blocks of these tokens, which have all been computed, for others to find."""
        for index in range(sequence._remembered, len(tokens) // BLOCK):
            parent: Hashable = sequence._node or ("first", variant)
            key = (parent, tuple(tokens[index * BLOCK : (index + 1) * BLOCK]))
            if key not in self._known:
                self._known[key] = (self._next_node, sequence.blocks[index])
                self._keys[sequence.blocks[index]] = key
                self._next_node += 1
            sequence._node = self._known[key][0]
            sequence._remembered = index + 1

    def release(self, sequence: BlockList) -> None:
        """Gives the blocks back. The last ones first: what others begin with is reused last."""
        for block in reversed(sequence.blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                if block in self._keys:
                    self._idle[block] = None
                else:
                    self._free.append(block)
        sequence.blocks = []

    def _find(self, prompt: Sequence[int], variant: Hashable) -> tuple[list[int], int]:
        found: list[int] = []
        parent: Hashable = ("first", variant)
        node = 0
        # The last token is always computed: its logits are needed.
        for start in range(0, len(prompt) - BLOCK, BLOCK):
            entry = self._known.get((parent, tuple(prompt[start : start + BLOCK])))
            if entry is None:
                break
            parent = node = entry[0]
            found.append(entry[1])
        return found, node

    def _hold(self, block: int) -> None:
        self._idle.pop(block, None)
        self._holders[block] += 1

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            del self._known[self._keys.pop(block)]
        self._holders[block] = 1
        return block
