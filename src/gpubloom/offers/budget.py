"""What a job has cost so far, when to warn, and when it has to end.

Pure values: times are seconds since the epoch, given by the caller from the service's own clock where it has
one. An attempt costs its billed seconds times its rate; a job costs what its attempts cost, wherever.
Nothing here ends anything: `decide` says that it is time, early enough to write a checkpoint first.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from gpubloom.errors import InputError
from gpubloom.offers.prices import Granularity

# A job on a rented machine always has limits: this many times its estimate, unless its owner sets others.
LIMIT_FACTOR = 2.0
# However short a job is, its machine has to start, and a checkpoint has to be saved before the limit.
_SHORTEST_HOURS = 0.5
# Used when the duration of a job is unknown.
_UNKNOWN_HOURS = 1.0

UNIT_SECONDS: dict[Granularity, float] = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
WARN_AT = (50, 80, 100)
Scope = Literal["user", "project", "job"]


@dataclass(frozen=True)
class Rate:
    """US dollars an hour, and the unit that a begun one is billed as a whole."""

    hourly: float
    billing: Granularity = "second"
    minimum_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.hourly) and self.hourly >= 0):
            raise InputError(
                "invalid_rate",
                f"The hourly rate must be a finite number of at least 0, not {self.hourly} dollars.",
            )

    def billed_seconds(self, seconds: float) -> float:
        """Of a run that took so long; one that never began costs nothing."""
        if seconds <= 0:
            return 0.0
        unit = UNIT_SECONDS[self.billing]
        # A hair less: a time that was added up from parts is no new unit.
        units = math.ceil(round(seconds, 6) / unit - 1e-9)
        return max(units * unit, self.minimum_seconds)

    def cost(self, seconds: float) -> float:
        return self.billed_seconds(seconds) * self.hourly / 3600

    def affordable_seconds(self, money: float) -> float:
        """The longest run that costs no more than this."""
        if self.hourly == 0:
            return math.inf
        unit = UNIT_SECONDS[self.billing]
        seconds = math.floor(money * 3600 / self.hourly / unit + 1e-9) * unit
        return seconds if seconds >= self.minimum_seconds else 0.0


@dataclass(frozen=True)
class RentalLimits:
    """What a rental may cost and take. `budget` is None only where nothing is billed."""

    budget: float | None
    max_hours: float


def default_limits(hourly: float, likely_cost: float | None) -> RentalLimits:
    """The limits of a new rental, from its rate and the estimate of its whole cost."""
    hours = _UNKNOWN_HOURS if likely_cost is None or hourly <= 0 else likely_cost / hourly
    hours = max(LIMIT_FACTOR * hours, _SHORTEST_HOURS)
    # To the cent and the hundredth of an hour above, as forms show them.
    budget = math.ceil(hours * hourly * 100 - 1e-6) / 100 if hourly > 0 else None
    return RentalLimits(budget, math.ceil(hours * 100 - 1e-6) / 100)


@dataclass(frozen=True)
class Attempt:
    """One run at one service. `ended` is None while it is billed."""

    provider: str
    rate: Rate
    started: float
    ended: float | None = None

    def seconds(self, now: float) -> float:
        # A clock that was set back makes nothing cheaper than nothing.
        return max(0.0, (now if self.ended is None else self.ended) - self.started)

    def cost(self, now: float) -> float:
        return self.rate.cost(self.seconds(now))


@dataclass(frozen=True)
class Meter:
    """The attempts of a job; at most the last one is still billed."""

    attempts: tuple[Attempt, ...] = ()

    @property
    def running(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts and self.attempts[-1].ended is None else None

    def start(self, provider: str, rate: Rate, at: float) -> "Meter":
        """A new attempt. ValueError: the last one is still billed."""
        if self.running is not None:
            raise InputError(
                "attempt_still_billed",
                f"The attempt on {self.running.provider} is still billed: end that attempt first.",
            )
        return Meter((*self.attempts, Attempt(provider, rate, at)))

    def stop(self, at: float) -> "Meter":
        """The last attempt ended; a second time changes nothing."""
        if self.running is None:
            return self
        ended = replace(self.running, ended=max(at, self.running.started))
        return Meter((*self.attempts[:-1], ended))

    def seconds(self, now: float) -> float:
        return math.fsum(attempt.seconds(now) for attempt in self.attempts)

    def cost(self, now: float) -> float:
        return math.fsum(attempt.cost(now) for attempt in self.attempts)


@dataclass(frozen=True)
class Budget:
    """US dollars that a job, a project or a user may spend.

    `spent_by_others` is what other jobs that count against it have cost so far, `reserved_by_others` what
    their running machines may still cost, and `told` the percentages that were warned of already.
    """

    limit: float
    scope: Scope = "job"
    spent_by_others: float = 0.0
    reserved_by_others: float = 0.0
    told: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit >= 0):
            raise InputError(
                "invalid_budget",
                f"The budget must be an amount of at least 0 dollars, not {self.limit}.",
            )

    def used(self, cost: float) -> float:
        """Percent. A budget of nothing is used up from the start."""
        spent = self.spent_by_others + cost
        return 100.0 if self.limit == 0 else 100 * spent / self.limit


@dataclass(frozen=True)
class BudgetWarning:
    scope: Scope
    percent: int
    sentence: str


def warnings_due(budget: Budget, cost: float) -> tuple[Budget, tuple[BudgetWarning, ...]]:
    """What to tell now, and the budget that remembers it: each percentage is told once.

    If several were passed at once, only the highest is told: one message says it all.
    """
    used = budget.used(cost)
    passed = [percent for percent in WARN_AT if used >= percent and percent not in budget.told]
    if not passed:
        return budget, ()
    percent = passed[-1]
    spent = budget.spent_by_others + cost
    whose = {"job": "this job", "project": "the project", "user": "your account"}[budget.scope]
    sentence = f"{percent} % of the budget of {whose} is spent: ${spent:.2f} of ${budget.limit:.2f}."
    if percent == 100:
        sentence += " The job saves a checkpoint and stops."
    return replace(budget, told=budget.told | set(passed)), (BudgetWarning(budget.scope, percent, sentence),)


@dataclass(frozen=True)
class Decision:
    """`go_on`: look again within `seconds`. `stop`: write a checkpoint, and be gone after `seconds`.

    `limit`: what ends first, money or the longest time.
    """

    action: Literal["go_on", "stop"]
    seconds: float
    reason: str
    limit: Literal["budget", "time"] = "budget"


def decide(
    meter: Meter,
    budgets: tuple[Budget, ...],
    now: float,
    *,
    checkpoint_seconds: float,
    max_seconds: float | None = None,
) -> Decision:
    """Whether a running job has to end now, so that a checkpoint still fits into every limit.

    A limit that is passed already, say because nobody looked for a while, still gets its checkpoint: the work
    is worth more than what it takes to save it.
    """
    attempt = meter.running
    if attempt is None:
        return Decision("go_on", math.inf, "No attempt is billed at the moment.")
    before = meter.cost(now) - attempt.cost(now)
    gone = attempt.seconds(now)
    limits: list[tuple[float, str, Literal["budget", "time"]]] = []
    for budget in budgets:
        money = budget.limit - budget.spent_by_others - budget.reserved_by_others - before
        whose = {"job": "job's", "project": "project's", "user": "account's"}[budget.scope]
        reason = f"The {whose} budget of ${budget.limit:.2f} is used up."
        if budget.reserved_by_others > 0:
            reason = (
                f"The {whose} budget of ${budget.limit:.2f} is used up: ${budget.reserved_by_others:.2f} of "
                "it is reserved by other running jobs."
            )
        limits.append((attempt.rate.affordable_seconds(money) - gone, reason, "budget"))
    if max_seconds is not None:
        limits.append(
            (
                max_seconds - meter.seconds(now),
                f"The time limit of {max_seconds / 3600:g} hours is reached.",
                "time",
            )
        )
    if not limits:
        return Decision("go_on", math.inf, "The job has no budget and no time limit.")
    left, reason, limit = min(limits)
    until_stop = left - checkpoint_seconds
    if until_stop <= 0:
        return Decision("stop", checkpoint_seconds, reason, limit)
    return Decision("go_on", until_stop, reason, limit)
