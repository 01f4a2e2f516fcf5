"""Packing: which examples share a row of the trainer, by their lengths alone.

Best fit, longest first: an example goes into the fullest row that still holds it. The trainer packs by it,
and a pre-flight counts by it.
"""

import bisect
from collections.abc import Sequence

# Row lengths are rounded up to it: matrix kernels like multiples.
_ROUND = 64


def sequence_length(lengths: Sequence[int], rows: Sequence[Sequence[int]], limit: int) -> int:
    """The length that all rows get: that of the longest one, rounded up, and no more than the limit."""
    longest = max(sum(lengths[example] for example in row) for row in rows)
    return min(limit, -(-longest // _ROUND) * _ROUND)


def best_fit(lengths: Sequence[int], capacity: int, *, together: bool = True) -> list[list[int]]:
    """Numbers of examples by row; not `together`: one example a row."""
    if not together:
        return [[example] for example in range(len(lengths))]
    rows: list[list[int]] = []
    # Rows by the room that is left in them, and those rooms in order.
    by_room: dict[int, list[int]] = {}
    free_tokens: list[int] = []
    for example in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[example]
        index = bisect.bisect_left(free_tokens, length)
        if index == len(free_tokens):
            row, room = len(rows), capacity
            rows.append([])
        else:
            room = free_tokens[index]
            row = by_room[room].pop()
            if not by_room[room]:
                del free_tokens[index], by_room[room]
        rows[row].append(example)
        left = room - length
        if left:
            if left not in by_room:
                by_room[left] = []
                bisect.insort(free_tokens, left)
            by_room[left].append(row)
    return rows
