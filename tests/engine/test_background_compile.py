"""On a CPU a run that asks for compiled layers begins without them, and changes over when they are there."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from gpubloom.engine.data import Batch
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.executors.blocks import background_compile
from gpubloom.engine.model import Model
from gpubloom.plan import TrainConfig

MakeConfig = Callable[..., TrainConfig]
VOCABULARY = 257
LEARNING_RATE = 1e-3
REASON = "no C++ compiler is installed"


@contextmanager
def _stepping(config: TrainConfig, said: list[str]) -> Iterator[Callable[[int], float]]:
    on_devices = move_to_devices(config, Model.open(config, vocab_size=VOCABULARY), say=said.append)
    assert not on_devices.compiled, "steps would wait for the compiler"

    def step(number: int) -> float:
        random = torch.Generator().manual_seed(number)
        rows = torch.randint(
            0, VOCABULARY, (1, config.batch_size, config.context_length + 1), generator=random
        )
        loss = float(on_devices.executor.forward_backward(Batch(rows[..., :-1], rows[..., 1:])))
        on_devices.executor.optimizer_step(LEARNING_RATE)
        return loss

    yield step
    on_devices.executor.close()


def test_where_nothing_can_be_compiled_training_goes_on_and_says_why(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"import sys; sys.stdin.buffer.read(); sys.stdout.write({REASON!r}); sys.exit(1)"
    monkeypatch.setattr(background_compile, "_PROGRAM", program)
    said: list[str] = []
    deadline, number = time.monotonic() + 60, 0
    with (
        _stepping(make_config(compile="on"), said) as step,
        _stepping(make_config(compile="off"), []) as plain,
    ):
        while not said and time.monotonic() < deadline:
            assert step(number) == plain(number)
            number += 1
        assert said == [f"the layers are not compiled and run slower: {REASON}"]
        assert [step(number + more) for more in range(3)] == [plain(number + more) for more in range(3)]
    assert len(said) == 1


# torch's compiler warns about torch's own scripts.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_compiled_layers_take_over_in_the_middle_of_a_run_and_change_no_more_than_rounding(
    make_config: MakeConfig,
) -> None:
    said: list[str] = []
    deadline, number = time.monotonic() + 600, 0
    with (
        _stepping(make_config(compile="on"), said) as step,
        _stepping(make_config(compile="off"), []) as plain,
    ):
        while not said and time.monotonic() < deadline:
            loss, expected = step(number), plain(number)
            assert loss == (expected if not said else pytest.approx(expected, rel=1e-5))
            number += 1
        assert number > 1, "the first steps waited"
        assert said[0].startswith(f"the layers are compiled from update {number} on, ")
        assert step(number) == pytest.approx(plain(number), rel=1e-5)
        # Each update carries the rounding of those before it on: 6e-5 was seen after many uncompiled steps.
        for more in range(number + 1, number + 20):
            assert step(more) == pytest.approx(plain(more), rel=2e-4)
