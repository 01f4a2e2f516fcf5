"""What the host AdamW computes, in C and in torch, however it is split; conversions pattern by pattern."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.engine.optimizer.host.adamw import KINDS, Kind, kind_name, range_size
from tests.engine.optimizer.arrays import BETA1, BETA2, EPS, LR, State, same_bits, step, torch_kernel
from tests.errors import raises

F32: Kind = (torch.float32, None)
BF16: Kind = (torch.bfloat16, torch.bfloat16)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=kind_name)

# What follows the upper half of an FP32 number: ties and both sides of them, for bf16 and for fp16.
LOWER = (0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
KEEPS_WEIGHTS = AdamWStep(lr=0.0, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, updates=1)
TAKES_GRADIENT = AdamWStep(lr=0.0, beta1=0.0, beta2=0.0, eps=1e-8, weight_decay=0.0, updates=1)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_follows_torchs_adamw_for_fifty_steps(weight_decay: float) -> None:
    state = State.draw(10_001, F32)
    parameter = torch.nn.Parameter(state.master.clone())
    reference = torch.optim.AdamW([parameter], LR, (BETA1, BETA2), EPS, weight_decay)
    for number in range(1, 51):
        parameter.grad = state.gradient(number)
        reference.step()
    state.train(HostAdamW(2), 50, weight_decay=weight_decay, scale=1.0)
    assert relative(state.master, parameter.detach()) < 1e-6
    assert relative(state.first, reference.state[parameter]["exp_avg"]) < 1e-6
    assert relative(state.second, reference.state[parameter]["exp_avg_sq"]) < 1e-6


@every_kind
def test_it_follows_the_definition_in_double_precision(kind: Kind) -> None:
    state = State.draw(10_001, kind)
    p, m, v = state.master.double(), torch.zeros(10_001).double(), torch.zeros(10_001).double()
    for number in range(1, 51):
        g = state.gradient(number).double() * 0.7
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        c1, c2 = 1 - BETA1**number, 1 - BETA2**number
        p = p * (1 - LR * 0.1) - LR / c1 * m / (v.sqrt() / c2**0.5 + EPS)
    state.train(HostAdamW(2), 50)
    assert relative(state.master, p) < 1e-6
    assert relative(state.first, m) < 1e-6
    assert relative(state.second, v) < 1e-6
    if state.copy is not None:
        assert torch.equal(state.copy, state.master.to(state.copy.dtype))


@every_kind
def test_torch_gives_the_same_bits_as_c(kind: Kind) -> None:
    in_c, in_torch = HostAdamW(2), torch_kernel(3)
    assert in_c.description == "C, 2 threads"
    assert same_bits(State.draw(70_001, kind).train(in_c, 5), State.draw(70_001, kind).train(in_torch, 5))


@every_kind
@pytest.mark.parametrize("threads", [2, 5])
def test_the_number_of_threads_changes_no_bit(kind: Kind, threads: int) -> None:
    length = 300_001
    assert range_size(length, threads) < length / 2
    alone = State.draw(length, kind).train(HostAdamW(1), 2)
    assert same_bits(alone, State.draw(length, kind).train(HostAdamW(threads), 2))


@every_kind
@pytest.mark.parametrize("shift", [1, 3, 16])
def test_alignment_changes_no_bit(kind: Kind, shift: int) -> None:
    adamw = HostAdamW(1)
    assert same_bits(
        State.draw(5_003, kind).train(adamw, 3), State.draw(5_003, kind, shift=shift).train(adamw, 3)
    )


@every_kind
def test_arrays_updated_in_slices_are_the_same_bits(kind: Kind) -> None:
    adamw, whole, sliced = HostAdamW(1), State.draw(5_003, kind), State.draw(5_003, kind)
    whole.train(adamw, 1)
    gradient = sliced.gradient(1)
    for start, end in ((0, 17), (17, 4_000), (4_000, 5_003)):
        copy = None if sliced.copy is None else sliced.copy[start:end]
        adamw.update(
            *(tensor[start:end] for tensor in (sliced.master, sliced.first, sliced.second, gradient)),
            copy,
            step(1),
            0.7,
        )
    assert same_bits(whole, sliced)


def test_several_threads_may_update_different_arrays_at_once() -> None:
    adamw = HostAdamW(2)
    alone = State.draw(200_003, BF16).train(adamw, 3)
    with ThreadPoolExecutor(4) as callers:
        together = list(callers.map(lambda _: State.draw(200_003, BF16).train(adamw, 3), range(8)))
    assert all(same_bits(alone, state) for state in together)


@pytest.mark.parametrize(("length", "threads"), [(1, 4), (63, 1), (1 << 15, 8), (10**8 + 7, 14), (10**6, 14)])
def test_ranges_are_whole_cache_lines_and_neither_tiny_nor_huge(length: int, threads: int) -> None:
    size = range_size(length, threads)
    assert size % 64 == 0
    assert 1 << 15 <= size <= 1 << 18


def test_nothing_to_update_is_no_error() -> None:
    State.draw(0, BF16).train(HostAdamW(2), 1)


@every_kind
def test_gradients_that_are_no_numbers_reach_exactly_their_own_weights(kind: Kind) -> None:
    for adamw in (HostAdamW(1), torch_kernel(1)):
        state = State.draw(100, kind)
        gradient = state.gradient(1)
        gradient[3], gradient[50], gradient[99] = float("nan"), float("inf"), -float("inf")
        adamw.update(state.master, state.first, state.second, gradient, state.copy, step(1), 1.0)
        # inf / sqrt(inf) is no number either: the weight says so instead of hiding it.
        assert state.master.isnan().nonzero().flatten().tolist() == [3, 50, 99]
        assert state.second[50] == float("inf")
        if state.copy is not None:
            assert state.copy.isnan().nonzero().flatten().tolist() == [3, 50, 99]


def test_moments_below_the_smallest_normal_number_are_kept() -> None:
    tiny = torch.finfo(torch.float32).tiny
    for adamw in (HostAdamW(1), torch_kernel(1)):
        state = State.draw(40, F32)
        state.first.fill_(tiny / 4)
        state.second.fill_(tiny / 8)
        adamw.update(state.master, state.first, state.second, torch.zeros(40), None, step(1), 1.0)
        assert torch.equal(state.first, torch.full((40,), tiny / 4) * BETA1)
        assert (state.first > 0).all()
        assert torch.equal(state.second, torch.full((40,), tiny / 8) * BETA2)


@pytest.mark.long
def test_loading_the_library_leaves_denormals_alone() -> None:
    program = """
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from gpubloom.engine.optimizer.host import HostAdamW
def kept(_=None):
    return float(np.float32(1e-38) * np.float32(0.1)) > 0
assert kept()
assert HostAdamW(1).description == "C, 1 thread"
assert kept()
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(kept).result()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_zero_gradient_only_decays() -> None:
    state = State.draw(1_000, F32)
    before = state.master.clone()
    HostAdamW(1).update(state.master, state.first, state.second, torch.zeros(1_000), None, step(1, 0.5), 1.0)
    assert torch.equal(state.master, before * (1 - LR * 0.5))


@pytest.mark.parametrize(
    "broken",
    [
        {"gradient": torch.zeros(9)},
        {"first": torch.zeros(8).double()},
        {"gradient": torch.zeros(16)[::2]},
        {"copy": torch.zeros(8, dtype=torch.int16)},
        {"master": torch.zeros(2, 4)},
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(broken: dict[str, torch.Tensor]) -> None:
    fine = {name: torch.zeros(8) for name in ("master", "first", "second", "gradient")}
    with raises(ValueError, code="invalid_argument"):
        HostAdamW(1).update(**({"copy": None} | fine | broken), step=step(1), scale=1.0)


def test_a_master_is_not_copied_onto_itself() -> None:
    state = State.draw(8, F32)
    with raises(ValueError, code="invalid_argument"):
        HostAdamW(1).update(
            state.master, state.first, state.second, torch.zeros(8), state.master, step(1), 1.0
        )


def test_updates_are_counted_from_one_and_threads_too() -> None:
    with raises(ValueError, code="invalid_argument"):
        HostAdamW(1).update(*(torch.zeros(8) for _ in range(4)), None, step(0), 1.0)
    with raises(ValueError, code="invalid_argument"):
        HostAdamW(0)


def every_half(dtype: torch.dtype) -> Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)


def edges() -> Tensor:
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    return torch.cat([upper | lower for lower in LOWER]).view(torch.float32)


def assert_same_numbers(found: Tensor, wanted: Tensor) -> None:
    assert torch.equal(found.isnan(), wanted.isnan())
    numbers = ~wanted.isnan()
    assert torch.equal(found[numbers].view(torch.int16), wanted[numbers].view(torch.int16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [0, 1])
def test_copies_are_rounded_to_nearest_for_every_pattern(dtype: torch.dtype, shift: int) -> None:
    """As torch rounds, but ties in bf16 go away from zero: so do the upper halves of split masters."""
    master = edges()[shift:].clone()
    wanted = master.to(dtype)
    if dtype == torch.bfloat16:
        bits = master.view(torch.int32)
        tie = ((bits & 0xFFFF) == 0x8000) & ~master.isnan()
        wanted.view(torch.int16)[tie] = ((bits[tie] >> 16) + 1).to(torch.int16)
    copy = torch.zeros(len(master) + shift, dtype=dtype)[shift:]
    zeros = [torch.zeros(len(master)) for _ in range(3)]
    HostAdamW(2).update(master, *zeros, copy, KEEPS_WEIGHTS, 1.0)
    assert_same_numbers(copy, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_gradient_is_read_as_torch_reads_it(dtype: torch.dtype) -> None:
    gradient = every_half(dtype)
    master, first, second = (torch.zeros(len(gradient)) for _ in range(3))
    HostAdamW(1).update(master, first, second, gradient, None, TAKES_GRADIENT, 1.0)
    assert torch.equal(first.nan_to_num(nan=7.0), gradient.float().nan_to_num(nan=7.0))
    assert torch.equal(first.isnan(), gradient.isnan())
