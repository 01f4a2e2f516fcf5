"""What has to be true of every line that is drawn, whatever a run reports."""

import math
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.traincard.number_encoding import encode_number
from gpubloom.traincard.series import Curve
from gpubloom.traincard.thinning import line_of

# Of the size of losses, norms and memory; single digits are lost in a sum of 1e300 and 1.
_VALUES = st.one_of(
    st.floats(-1e12, 1e12), st.floats(0, 10), st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
)
_RUNS = st.lists(_VALUES, min_size=1, max_size=400)


def _curve(values: Sequence[float], most: int, at_once: int) -> Curve:
    """The values as steps of a run that arrive some at a time."""
    curve = Curve(most)
    for start in range(0, len(values), at_once):
        some = values[start : start + at_once]
        steps = list(range(start, start + len(some)))
        curve.add_many((steps, some, [1e9 + step for step in steps]))
    return curve


@settings(deadline=None, max_examples=200)
@given(_RUNS, st.integers(2, 40), st.integers(1, 50), st.integers(2, 200))
def test_the_band_holds_every_value_and_the_line_is_their_mean(
    values: list[float], most: int, at_once: int, points: int
) -> None:
    curve = _curve(values, most, at_once)
    line = line_of(curve, points)
    finite = [value for value in values if math.isfinite(value)]
    low, high = line["low"] or line["y"], line["high"] or line["y"]
    counts = line["n"] or [0 if y is None else 1 for y in line["y"]]
    assert len(line["x"]) == len(line["y"]) == len(low) == len(high) == len(counts)
    assert line["x"] == sorted(line["x"])
    assert line["x"][-1] == len(values) - 1
    assert line["x"][0] == (0 if len(line["x"]) > 1 else len(values) - 1)
    # Nothing is left out and nothing counts twice.
    assert sum(counts) == len(finite)
    begin = 0
    for x, y, least, most_of, count in zip(line["x"], line["y"], low, high, counts, strict=True):
        del x
        # Buckets follow each other, and hold so many finite values each.
        some: list[float] = []
        while len(some) < count:
            value = values[begin]
            begin += 1
            if math.isfinite(value):
                some.append(value)
        if not some:
            assert y is None
            continue
        size = max(abs(value) for value in some)
        # As drawn: seven digits.
        room = 1e-6 * size + 1e-300
        assert least - room <= min(some)
        assert max(some) <= most_of + room
        assert math.isclose(y, math.fsum(some) / len(some), rel_tol=1e-6, abs_tol=1e-6 * size)
        assert least - room <= y <= most_of + room


@settings(deadline=None, max_examples=100)
@given(_RUNS, st.integers(2, 40), st.integers(2, 200))
def test_the_last_value_is_the_one_that_was_reported_last(
    values: list[float], most: int, points: int
) -> None:
    last = line_of(_curve(values, most, 7), points)["last"]
    reported = values[-1]
    if math.isfinite(reported):
        assert math.isclose(last, reported, rel_tol=1e-6, abs_tol=1e-300)
    else:
        assert last == encode_number(reported)


@settings(deadline=None, max_examples=100)
@given(_RUNS, st.integers(2, 40), st.integers(2, 200))
def test_every_value_that_is_no_number_leaves_a_gap(values: list[float], most: int, points: int) -> None:
    line = line_of(_curve(values, most, 7), points)
    assert bool(line["gaps"]) == any(not math.isfinite(value) for value in values)
    # A gap is a position of the line, so that a chart can mark it there.
    assert set(line["gaps"]) <= set(line["x"])
    assert {x for x, y in zip(line["x"], line["y"], strict=True) if y is None} <= set(line["gaps"])


@settings(deadline=None, max_examples=50)
@given(_RUNS, st.integers(1, 60), st.integers(2, 100))
def test_a_line_that_was_drawn_while_it_grew_is_the_line_of_the_whole_run(
    values: list[float], cut: int, points: int
) -> None:
    grown = _curve(values[:cut], 16, 5)
    line_of(grown, points)
    for step, value in enumerate(values[cut:], start=min(cut, len(values))):
        grown.add(step, value, 1e9 + step)
        line_of(grown, points)
    whole = _curve(values, 16, len(values))
    drawn, expected = line_of(grown, points), line_of(whole, points)
    assert {name: drawn[name] for name in ("x", "n", "gaps", "last")} == {
        name: expected[name] for name in ("x", "n", "gaps", "last")
    }
