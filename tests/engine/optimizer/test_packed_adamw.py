"""AdamW on split masters and on moments in bf16 or 8 bits: exact where it can be, near where it rounds."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gpubloom.engine.optimizer.encoding import Encoding, Flat
from gpubloom.engine.optimizer.host import HostAdamW
from gpubloom.engine.optimizer.host.adamw import TorchPackedAdamW
from tests.engine.optimizer.arrays import step

LENGTH = 3 * 64 * 1024 + 64 * 5


def flat(encoding: Encoding, values: Tensor, *, roots: bool = False) -> Flat:
    held = Flat.lengths(encoding, len(values))
    found = Flat(encoding, tuple(torch.zeros(n, dtype=dtype) for n, dtype in held), roots=roots)
    found.write(values)
    return found


def masters() -> Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(7))


def gradient(number: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    size = torch.logspace(-6, 0, LENGTH)
    return (torch.randn(LENGTH, generator=generator) * size).to(dtype)


def in_torch(threads: int) -> HostAdamW:
    adamw = HostAdamW(threads)
    adamw._packed_kernel = TorchPackedAdamW()
    return adamw


def trained(
    adamw: HostAdamW, master: Encoding, moments: Encoding, updates: int = 5, *, whole: bool = True
) -> list[Flat]:
    arrays = [
        flat(master, masters()),
        flat(moments, torch.zeros(LENGTH)),
        flat(moments, torch.zeros(LENGTH), roots=True),
    ]
    spans = [slice(0, LENGTH)] if whole else [slice(0, 64 * 100), slice(64 * 100, LENGTH)]
    for number in range(1, updates + 1):
        for span in spans:
            parts = [each.part(span) for each in arrays]
            adamw.update_packed(*parts, gradient(number)[span], None, step(number), 0.7, span.start)
    return arrays


def test_a_split_master_is_updated_to_the_bits_of_a_whole_one() -> None:
    adamw = HostAdamW(2)
    master, first, second = masters(), torch.zeros(LENGTH), torch.zeros(LENGTH)
    copy = torch.zeros(LENGTH, dtype=torch.bfloat16)
    for number in range(1, 6):
        adamw.update(master, first, second, gradient(number), copy, step(number), 0.7)
    found = trained(adamw, "split", "fp32")
    for one, other in zip(found, (master, first, second), strict=True):
        assert torch.equal(one.read(), other)
    assert torch.equal(found[0].tensors[0], copy)


@pytest.mark.parametrize("master", ["split", "fp32"])
@pytest.mark.parametrize("moments", ["fp32", "bf16", "8bit"])
def test_without_a_compiler_the_bits_are_the_same(master: Encoding, moments: Encoding) -> None:
    ours, theirs = (trained(kernel(2), master, moments) for kernel in (HostAdamW, in_torch))
    for one, other in zip(ours, theirs, strict=True):
        for left, right in zip(one.tensors, other.tensors, strict=True):
            assert torch.equal(left, right)


@pytest.mark.parametrize("kernel", [HostAdamW, in_torch])
@pytest.mark.parametrize("moments", ["bf16", "8bit"])
def test_neither_threads_nor_a_split_change_a_bit(
    kernel: Callable[[int], HostAdamW], moments: Encoding
) -> None:
    reference = trained(kernel(1), "split", moments)
    for other in (trained(kernel(3), "split", moments), trained(kernel(2), "split", moments, whole=False)):
        for left, right in zip(reference, other, strict=True):
            assert all(torch.equal(one, two) for one, two in zip(left.tensors, right.tensors, strict=True))


@pytest.mark.parametrize(("moments", "tolerance"), [("bf16", 0.01), ("8bit", 0.1)])
def test_small_moments_move_weights_nearly_as_far(moments: Encoding, tolerance: float) -> None:
    exact, rounded = (trained(HostAdamW(2), "split", each, 30)[0].read() for each in ("fp32", moments))  # type: ignore[arg-type]
    moved = exact - masters()
    assert float((rounded - exact).norm() / moved.norm()) < tolerance


def test_second_moments_of_8_bits_decay_although_each_step_is_less_than_a_unit() -> None:
    adamw = HostAdamW(2)
    arrays = [
        flat("split", masters()),
        flat("8bit", torch.zeros(LENGTH)),
        flat("8bit", torch.ones(LENGTH), roots=True),
    ]
    for number in range(1, 201):
        adamw.update_packed(*arrays, torch.zeros(LENGTH, dtype=torch.bfloat16), None, step(number), 1.0, 0)
    # 0.999 to the power of 200.
    assert float(arrays[2].read().mean()) == pytest.approx(0.8187, rel=0.02)
