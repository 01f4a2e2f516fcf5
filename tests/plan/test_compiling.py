"""The fastest way to compile a run on a GPU is chosen from predicted times, before its first step."""

import pytest

from gpubloom.plan import costs
from gpubloom.plan.compiling import CompileChoice

COMPILED, EAGER = 0.06, 0.1


def choice(
    steps: int,
    *,
    eager: float | None = EAGER,
    can_switch: bool = True,
    is_kept: bool = False,
    must_compile: bool = False,
) -> CompileChoice:
    return CompileChoice(steps, COMPILED, eager, can_switch, is_kept, must_compile)


def test_a_short_run_is_never_compiled() -> None:
    assert choice(100).first_step() == 0


def test_a_longer_run_switches_when_the_other_process_will_be_done() -> None:
    first = choice(2_000).first_step()
    assert (first - 1) * EAGER == pytest.approx(costs.GPU_COMPILE_ASIDE_SECONDS, abs=EAGER)


@pytest.mark.parametrize("eager", [EAGER, None])
def test_a_run_that_cannot_switch_is_compiled_before_its_first_step(eager: float | None) -> None:
    """As when uncompiled layers need more memory than there is."""
    assert choice(2_000, eager=eager, can_switch=False).first_step() == 1


def test_programs_of_an_earlier_run_are_used_from_the_first_step_on() -> None:
    assert choice(2_000, is_kept=True).first_step() == 1
    assert choice(300, is_kept=True).first_step() == 1
    assert choice(300).first_step() == 0


def test_a_short_run_that_must_compile_does_so_before_its_first_step() -> None:
    assert choice(100, must_compile=True).first_step() == 1


def test_a_run_may_end_somewhat_later_if_it_begins_at_once() -> None:
    """Switching takes 30 s uncompiled and 10 s to start the programs; compiling first takes 20 s."""
    assert choice(100_000).first_step() > 1
    slow = CompileChoice(100_000, COMPILED, 20 * EAGER, can_switch=True, is_kept=False, must_compile=False)
    assert slow.first_step() == 1, "uncompiled steps would achieve too little meanwhile"


def test_where_compiled_layers_are_no_faster_nothing_is_compiled() -> None:
    assert choice(100_000, eager=COMPILED).first_step() == 0
