"""The retry policy: growing pauses, an end, and no second try of what cannot heal."""

import asyncio

import pytest

from gpubloom.traincard.retry import RetryPolicy, retry, retry_async


class Flaky:
    """Fails with each problem in turn, then succeeds."""

    def __init__(self, *problems: Exception) -> None:
        self.problems, self.calls = list(problems), 0

    def __call__(self) -> int:
        self.calls += 1
        if self.problems:
            raise self.problems.pop(0)
        return self.calls

    async def call(self) -> int:
        return self()


def is_timeout(problem: Exception) -> bool:
    return isinstance(problem, TimeoutError)


def test_what_heals_is_tried_again_after_growing_pauses() -> None:
    pauses: list[float] = []
    flaky = Flaky(*(TimeoutError() for _ in range(5)))
    found = retry(
        flaky, RetryPolicy(1.0, 5.0), is_transient=is_timeout, wait=lambda _, pause: pauses.append(pause)
    )
    assert (found, pauses) == (6, [1.0, 2.0, 4.0, 5.0, 5.0])


def test_what_cannot_heal_is_raised_at_once() -> None:
    flaky = Flaky(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        asyncio.run(retry_async(flaky.call, RetryPolicy(0.0, 0.0), is_transient=is_timeout))
    assert flaky.calls == 1


def test_the_last_failure_is_raised_after_so_many_calls() -> None:
    flaky = Flaky(*(TimeoutError(str(number)) for number in range(9)))
    with pytest.raises(TimeoutError, match="2"):
        asyncio.run(retry_async(flaky.call, RetryPolicy(0.0, 0.0, max_calls=3), is_transient=is_timeout))
    assert flaky.calls == 3


def test_no_call_comes_after_the_time_limit() -> None:
    moments = [0.0]

    def wait(_: Exception, pause: float) -> None:
        moments.append(moments[-1] + pause)

    flaky = Flaky(*(TimeoutError() for _ in range(99)))
    policy = RetryPolicy(1.0, 4.0, max_seconds=10.0)
    with pytest.raises(TimeoutError):
        retry(flaky, policy, is_transient=is_timeout, wait=wait, clock=lambda: moments[-1])
    assert moments == [0.0, 1.0, 3.0, 7.0]


def test_the_pause_after_many_failures_is_the_longest() -> None:
    assert RetryPolicy(0.1, 60.0).pause_after(100_000) == 60.0
