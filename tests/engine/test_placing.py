"""Compiling is for runs that are longer than it takes."""

from collections.abc import Callable

import pytest

from gpubloom.engine import Model
from gpubloom.engine.placing import _without_compiling_if_short
from gpubloom.plan import Hardware, TrainConfig, plan

MACHINE = Hardware.parse("H200, 125 GB host, 16 cores")


@pytest.mark.parametrize(("steps", "compiles"), [(20, False), (50_000_000, True)])
def test_a_short_run_on_a_gpu_is_not_compiled(
    make_config: Callable[..., TrainConfig], steps: int, compiles: bool
) -> None:
    config = make_config(device="auto")
    model = Model.open(config, vocab_size=257)
    first = plan(config, MACHINE, shape=model.shape)
    chosen, found = _without_compiling_if_short(config, MACHINE, model, first, steps)
    assert chosen.compile == ("auto" if compiles else "off")
    assert (found == first) is compiles
