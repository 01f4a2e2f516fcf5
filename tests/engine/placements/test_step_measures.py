"""What a step measures is its own. On a CPU nobody waits, but what crosses the link is counted there too."""

from tests.engine.placements.training import Trained, batch_of, train


def test_an_evaluation_between_two_steps_does_not_count_for_either() -> None:
    calm, evaluated = (Trained.own(tied=True).executor("streamed") for _ in range(2))
    train(calm, range(3))
    train(evaluated, range(2))
    for _ in range(3):
        evaluated.evaluate(batch_of(0))
    train(evaluated, [2])
    assert calm._last is not None
    assert evaluated._last is not None
    # Of the step that the evaluations followed.
    assert evaluated._last[2:] == calm._last[2:]
    train(evaluated, [3])
    # The evaluations left weights on the device, which need not be sent again.
    assert evaluated._last[2] <= calm._last[2]


def test_the_first_step_of_a_continued_run_says_nothing_of_the_step_before_it() -> None:
    executor = Trained.own(tied=True).executor("streamed")
    executor.continue_from(updates=5, loss_scale={})
    train(executor, [5])
    assert executor._last is None
