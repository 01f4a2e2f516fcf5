"""The widths of the buckets that long curves are drawn from."""

# Each level is eight times as wide as the one before: whatever part of a curve is asked for, one level
# gives it in a few thousand rows.
WIDTHS = {1: 16, 2: 128, 3: 1_024, 4: 8_192}
LEVELS = tuple(WIDTHS)


def bucket_of(level: int, x: int) -> int:
    """The bucket that x falls into."""
    return x // WIDTHS[level]


def level_for(span: int, points: int) -> int:
    """The coarsest level that still gives half as many buckets as points are wanted; 0: single points."""
    chosen = 0
    for level, width in WIDTHS.items():
        if span // width >= points // 2:
            chosen = level
    return chosen
