"""Meters and budgets: billed seconds times rate, warnings once, an end that leaves room for a checkpoint."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.offers import Attempt, Budget, Meter, Rate, decide, warnings_due
from gpubloom.offers.budget import UNIT_SECONDS
from tests.errors import raises

BILLING = st.sampled_from(["second", "minute", "hour"])
RATES = st.builds(Rate, hourly=st.floats(0.01, 100), billing=BILLING)
LENGTHS = st.lists(st.tuples(st.sampled_from(["modal", "lambda"]), RATES, st.floats(0, 1e6)), max_size=5)


def metered(parts: list[tuple[str, Rate, float]]) -> tuple[Meter, float]:
    meter, at = Meter(), 1_000.0
    for provider, rate, length in parts:
        meter = meter.start(provider, rate, at).stop(at + length)
        at += length + 60
    return meter, at


@pytest.mark.parametrize(
    ("billing", "seconds", "billed"),
    [
        ("second", 0, 0),
        ("second", 0.2, 1),
        ("second", 90, 90),
        ("minute", 61, 120),
        ("minute", 120, 120),
        ("hour", 1, 3600),
        ("hour", 3600, 3600),
        ("hour", 3600.5, 7200),
        ("hour", -5, 0),
    ],
)
def test_a_begun_unit_is_billed_as_a_whole(billing: str, seconds: float, billed: float) -> None:
    rate = Rate(2.0, billing)  # type: ignore[arg-type]
    assert rate.billed_seconds(seconds) == billed
    assert rate.cost(seconds) == pytest.approx(billed * 2 / 3600)


@given(LENGTHS)
@settings(max_examples=100, deadline=None)
def test_cost_is_billed_seconds_times_rate_across_attempts_and_providers(
    parts: list[tuple[str, Rate, float]],
) -> None:
    meter, now = metered(parts)
    expected = 0.0
    for _, rate, length in parts:
        unit = UNIT_SECONDS[rate.billing]
        # Reckoned anew, to a microsecond: that is where clocks end.
        units = math.ceil(round(length, 6) / unit - 1e-9) if length > 0 else 0
        expected += units * unit * rate.hourly / 3600
    assert meter.cost(now) == pytest.approx(expected, rel=0.01, abs=1e-9)


@given(LENGTHS, RATES, st.lists(st.floats(-1e5, 1e6), min_size=2, max_size=10))
@settings(max_examples=100, deadline=None)
def test_cost_is_never_negative_and_never_falls_as_time_goes_on(
    parts: list[tuple[str, Rate, float]], rate: Rate, offsets: list[float]
) -> None:
    meter, at = metered(parts)
    meter = meter.start("modal", rate, at)
    costs = [meter.cost(at + offset) for offset in sorted(offsets)]
    assert costs == sorted(costs)
    assert costs[0] >= 0
    stopped = meter.stop(at + offsets[0])
    assert stopped.cost(at + 1e9) == stopped.cost(at), "an ended attempt costs no more"
    assert stopped.stop(at + 1e9) == stopped


@given(
    st.floats(0, 1_000),
    st.lists(st.floats(0, 100), max_size=20),
    st.floats(0, 100),
)
@settings(max_examples=100, deadline=None)
def test_each_warning_is_given_at_most_once_and_none_is_missed(
    limit: float, steps: list[float], other_jobs: float
) -> None:
    budget, cost, told = Budget(limit, spent_by_others=other_jobs), 0.0, []
    for step in steps:
        cost += step
        budget, warnings = warnings_due(budget, cost)
        told += [warning.percent for warning in warnings]
    assert len(told) == len(set(told))
    assert told == sorted(told)
    if steps:
        passed = [percent for percent in (50, 80, 100) if budget.used(cost) >= percent]
        assert (told[-1] if told else None) == (passed[-1] if passed else None)
        assert budget.told == frozenset(passed)


def test_a_warning_says_what_is_spent_of_what() -> None:
    budget, [half] = warnings_due(Budget(10, "project"), 5.0)
    assert half.sentence == "50 % of the budget of the project is spent: $5.00 of $10.00."
    budget, none = warnings_due(budget, 5.5)
    assert none == ()
    _, [all_of_it] = warnings_due(budget, 12.0)
    assert all_of_it.percent == 100, "one message for 80 and 100 % passed at once"
    assert all_of_it.sentence.endswith("The job saves a checkpoint and stops.")


@given(
    rate=RATES,
    limit=st.floats(0.5, 500),
    checkpoint=st.floats(1, 600),
    looks_every=st.floats(1, 120),
    earlier=st.floats(0, 0.5),
)
@settings(max_examples=100, deadline=None)
def test_a_job_that_stops_when_asked_never_costs_more_than_its_budget(
    rate: Rate, limit: float, checkpoint: float, looks_every: float, earlier: float
) -> None:
    before = Rate(limit * earlier, "second")
    meter = Meter().start("lambda", before, 0).stop(3600).start("modal", rate, 10_000)
    now, reserve = 10_000.0, checkpoint + looks_every
    if decide(meter, (Budget(limit),), now, checkpoint_seconds=reserve).action == "stop":
        return  # There was never money for a checkpoint.
    # Nothing happens in between: go where it says that it is enough to look again.
    while (told := decide(meter, (Budget(limit),), now, checkpoint_seconds=reserve)).action == "go_on":
        now += max(looks_every, told.seconds)
    assert meter.stop(now + checkpoint).cost(now + checkpoint) <= limit * (1 + 1e-9)


def test_the_narrowest_limit_decides_and_says_which_it_was() -> None:
    meter = Meter().start("modal", Rate(6.0), 0)
    budgets = (Budget(60), Budget(10, "project", spent_by_others=7), Budget(100, "user"))
    early = decide(meter, budgets, 60, checkpoint_seconds=120)
    assert (early.action, early.seconds) == ("go_on", pytest.approx(1800 - 60 - 120))
    late = decide(meter, budgets, 1_700, checkpoint_seconds=120)
    assert (late.action, late.seconds) == ("stop", 120)
    assert late.reason == "The project's budget of $10.00 is used up."


def test_the_longest_duration_counts_all_attempts() -> None:
    meter = Meter().start("lambda", Rate(1.0), 0).stop(3_000).start("modal", Rate(1.0), 9_000)
    told = decide(meter, (), 9_100, checkpoint_seconds=60, max_seconds=3_600)
    assert (told.action, told.seconds) == ("go_on", pytest.approx(440))
    told = decide(meter, (), 9_540, checkpoint_seconds=60, max_seconds=3_600)
    assert told.action == "stop"
    assert "time limit of 1 hours" in told.reason


def test_an_hour_that_cannot_be_paid_is_not_begun() -> None:
    meter = Meter().start("paperspace", Rate(1.0, "hour"), 0)
    told = decide(meter, (Budget(2.5),), 3_700, checkpoint_seconds=300)
    assert (told.action, told.seconds) == ("go_on", pytest.approx(7_200 - 3_700 - 300))
    assert decide(meter, (Budget(2.5),), 6_901, checkpoint_seconds=300).action == "stop"


def test_a_limit_that_is_long_past_still_gets_its_checkpoint() -> None:
    meter = Meter().start("modal", Rate(10.0), 0)
    told = decide(meter, (Budget(1),), 86_400, checkpoint_seconds=90)
    assert (told.action, told.seconds) == ("stop", 90)


def test_without_limits_or_without_an_attempt_nothing_ends() -> None:
    running = Meter().start("modal", Rate(10.0), 0)
    assert decide(running, (), 1e9, checkpoint_seconds=60).action == "go_on"
    assert decide(running.stop(5), (Budget(0),), 1e9, checkpoint_seconds=60).action == "go_on"
    free = Meter().start("local", Rate(0.0), 0)
    assert decide(free, (Budget(0.01),), 1e9, checkpoint_seconds=60).action == "go_on"


def test_two_attempts_are_not_billed_at_once() -> None:
    meter = Meter().start("modal", Rate(1.0), 0)
    with raises(ValueError, code="attempt_still_billed"):
        meter.start("lambda", Rate(1.0), 5)


def test_a_clock_that_was_set_back_gives_no_money_back() -> None:
    assert Attempt("modal", Rate(1.0), 1_000).cost(500) == 0
    assert Meter().start("modal", Rate(1.0), 1_000).stop(500).cost(2_000) == 0


@pytest.mark.parametrize("amount", [-1, math.nan, math.inf])
def test_amounts_that_cannot_be_kept_are_refused(amount: float) -> None:
    with raises(ValueError, code="invalid_budget"):
        Budget(amount)
    with raises(ValueError, code="invalid_rate"):
        Rate(amount)
