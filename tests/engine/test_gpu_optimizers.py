"""Optimizers and small states on a real GPU: what they learn on a CPU, wherever the state lives.

Needs nothing but pytest: `python -m pytest -c /dev/null --rootdir . tests/engine/test_gpu_optimizers.py -s`.
"""

import pytest
import torch

from gpubloom.engine.optimizer.device_adamw import DeviceAdamW
from gpubloom.engine.optimizer.encoding import Flat, random_bits
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.plan import OptimizerConfig
from tests.engine.on_gpu import HOST, KEPT, LINK, PLACEMENTS, SMALL, executor_of, placement, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

STEPS = 8
OPTIMIZERS = {
    "adamw": OptimizerConfig(clip_norm=0.5),
    "muon": OptimizerConfig(name="muon", clip_norm=0.5),
    "adafactor": OptimizerConfig(name="adafactor", clip_norm=0.5),
    "bf16": OptimizerConfig(state="bf16", clip_norm=0.5),
    "8bit": OptimizerConfig(state="8bit", clip_norm=0.5),
}
WHERE = {
    "resident": placement(KEPT),
    "streamed": placement(HOST, ends=HOST),
    "link": placement(LINK, slots=2),
    "mixed": PLACEMENTS["mixed"],
}


def losses(device: str, name: str, where: str, precision: str, *, compiled: bool = False) -> list[float]:
    with executor_of(
        SMALL,
        WHERE[where],
        precision=precision,
        optimizer=OPTIMIZERS[name],
        device=device,
        compiled=compiled,
    ) as executor:
        return train(executor, SMALL, range(STEPS))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_in_fp32_the_gpu_updates_as_the_cpu_does(name: str) -> None:
    """Streamed states are updated by the CPU, resident and linked ones by the GPU; Muon's by either."""
    found = {where: losses("cuda", name, where, "fp32") for where in WHERE}
    assert found["resident"][-1] < found["resident"][0]
    for where, each in found.items():
        pairs = zip(each, found["resident"], strict=True)
        apart = max(abs(one - other) / other for one, other in pairs)
        print(f"{name}, {where}, fp32: {apart:.1e}; loss {each[0]:.3f} to {each[-1]:.3f}")
        assert apart < 1e-3


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_in_bf16_placements_agree_within_its_noise(name: str, compiled: bool) -> None:
    found = {where: losses("cuda", name, where, "bf16", compiled=compiled) for where in WHERE}
    apart = {
        where: max(abs(one - other) / other for one, other in zip(each, found["resident"], strict=True))
        for where, each in found.items()
    }
    print(f"{name}, bf16: {', '.join(f'{where} {value:.1e}' for where, value in apart.items())}")
    assert max(apart.values()) < 0.02


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("moments", ["fp32", "bf16", "8bit"])
def test_one_update_of_split_masters_is_that_of_the_cpu(moments: str, compiled: bool) -> None:
    length = 1 << 21
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(length, generator=generator)
    gradient = (torch.randn(length, generator=generator) * 1e-3).bfloat16()
    step = AdamWStep(1e-3, 0.9, 0.95, 1e-8, 0.1, 1)
    host = HostAdamW(8)
    states = []
    for device in ("cpu", "cuda"):
        arrays = []
        for number, encoding in enumerate(("split", moments, moments)):
            held = Flat.lengths(encoding, length)  # type: ignore[arg-type]
            tensors = tuple(torch.zeros(n, dtype=dtype, device=device) for n, dtype in held)
            arrays.append(Flat(encoding, tensors, roots=number == 2))  # type: ignore[arg-type]
        arrays[0].write(values.to(device))
        adamw = DeviceAdamW(torch.device(device), host, compiled=compiled)
        adamw.update_packed(
            *arrays, gradient.to(device), None, step, torch.tensor(0.5, device=device), 64 * 7
        )
        states.append([each.read().cpu() for each in arrays])
    # Operations come in another order, and then a value next to an edge is rounded to its other side.
    tolerance = 1e-4 if moments == "fp32" else 0.3
    for one, other in zip(*states, strict=True):
        assert torch.allclose(one, other, rtol=tolerance, atol=1e-9)


def test_chance_is_the_same_on_both() -> None:
    one, other = (random_bits(1 << 16, 12345, torch.device(device)).cpu() for device in ("cpu", "cuda"))
    assert torch.equal(one, other)
