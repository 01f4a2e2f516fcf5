"""AdamW on a GPU, by its programs on a CPU: all updates of a step together, as each of them alone."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gpubloom.engine.optimizer.device_adamw import DeviceAdamW
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW

Arrays = list[Tensor]


def parts() -> list[Arrays]:
    """Master, moments, gradient and copy, of a matrix and of two vectors."""
    generator = torch.Generator().manual_seed(1)
    return [
        [
            torch.randn(length, generator=generator),
            torch.zeros(length),
            torch.zeros(length),
            torch.randn(length, generator=generator).bfloat16(),
            torch.zeros(length, dtype=torch.bfloat16),
        ]
        for length in (4_096, 64, 1_000)
    ]


# torch's compiler calls what torch itself will give up.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("decay", [0.1, 0.0])
def test_updates_together_do_what_the_host_kernel_does(decay: float) -> None:
    adamw, host = DeviceAdamW(torch.device("cuda"), HostAdamW(1), compiled=True), HostAdamW(1)
    together, alone = parts(), parts()
    for updates in (1, 2, 3):
        step = AdamWStep(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=decay, updates=updates)
        steps = [step, replace(step, weight_decay=0.0), replace(step, weight_decay=0.0)]
        with adamw.together():
            for (master, first, second, gradient, copy), each in zip(together, steps, strict=True):
                before = master.clone()
                adamw.update(master, first, second, gradient, copy, each, torch.tensor(0.5))
                assert torch.equal(master, before), "nothing happens before the end"
        for (master, first, second, gradient, copy), each in zip(alone, steps, strict=True):
            host.update(master, first, second, gradient, copy, each, 0.5)
    for ours, theirs in zip(together, alone, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    assert not torch.equal(together[0][0], parts()[0][0])
