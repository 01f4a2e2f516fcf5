"""Arrays in fewer bytes: split masters give back every bit, moments are as near as their encoding allows."""

import pytest
import torch
from torch import Tensor

from gpubloom.engine.optimizer.encoding import (
    BLOCK,
    Flat,
    decode_8bit,
    encode_8bit,
    encode_bf16,
    join,
    random_bits,
    split,
)


def patterns() -> Tensor:
    """Every upper half with the lower halves at which something changes, and many at random."""
    upper = torch.arange(1 << 16).view(-1, 1) << 16
    edges = [0, 1, 2, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF]
    lower = torch.cat([torch.tensor(edges), torch.randint(1 << 16, (7,))])
    bits = (upper + lower).view(-1)
    return torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32)


def halves(length: int) -> tuple[Tensor, Tensor]:
    return torch.empty(length, dtype=torch.bfloat16), torch.empty(length, dtype=torch.int16)


def test_two_halves_restore_every_bit_of_every_kind_of_number() -> None:
    bits = patterns()
    values = bits.view(torch.float32)
    half, low = halves(len(bits))
    split(values, half, low)
    back, numbers = join(half, low), ~values.isnan()
    assert torch.equal(back.view(torch.int32)[numbers], bits[numbers])
    assert back[~numbers].isnan().all()
    assert half[~numbers].isnan().all()


def test_the_upper_half_is_the_nearest_bf16_and_a_tie_goes_away_from_zero() -> None:
    bits = patterns()
    values = bits.view(torch.float32)
    half, low = halves(len(bits))
    split(values, half, low)
    finite, tie = values.isfinite(), (bits & 0xFFFF) == 0x8000
    assert torch.equal(half[finite & ~tie], values[finite & ~tie].bfloat16())
    tied = values[finite & tie]
    away = ((tied.view(torch.int32) >> 16) + 1).to(torch.int16).view(torch.bfloat16)
    assert torch.equal(half[finite & tie].view(torch.int16), away.view(torch.int16))
    infinite = values.isinf()
    assert torch.equal(half[infinite].float(), values[infinite])


@pytest.mark.parametrize("roots", [False, True])
def test_what_was_decoded_from_8_bits_is_encoded_to_itself_with_any_noise(roots: bool) -> None:
    values = torch.randn(64 * BLOCK) * torch.logspace(-20, 5, 64).repeat_interleave(BLOCK)
    values *= torch.exp(2 * torch.randn(len(values)))
    values = values.square() if roots else values
    once = decode_8bit(*encode_8bit(values, None, roots=roots), roots=roots)
    for seed in (None, 1, 2):
        noise = None if seed is None else random_bits(len(values), seed, values.device)
        again = decode_8bit(*encode_8bit(once, noise, roots=roots), roots=roots)
        assert torch.equal(again, once)


@pytest.mark.parametrize("roots", [False, True])
def test_8_bits_are_as_near_as_three_bits_of_fraction(roots: bool) -> None:
    values = torch.randn(256 * BLOCK)
    values = values.square() if roots else values
    found = decode_8bit(*encode_8bit(values, None, roots=roots), roots=roots)
    relative = (found - values).abs() / values.abs()
    large = values.abs() > 1e-2
    assert relative[large].max() <= (0.135 if roots else 0.0626)
    assert torch.equal(found.sign()[large], values.sign()[large])


@pytest.mark.parametrize("encoding", ["bf16", "8bit"])
def test_chance_rounds_in_proportion(encoding: str) -> None:
    value = 0.9 if encoding == "8bit" else 1 + 1 / 512
    values = torch.full((200_000,), value)
    # The largest of a block decides its scale.
    values[::BLOCK] = 1.0
    flat = Flat(
        encoding,  # type: ignore[arg-type]
        tuple(torch.zeros(n, dtype=t) for n, t in Flat.lengths(encoding, len(values))),  # type: ignore[arg-type]
    )
    flat.write(values, random_bits(len(values), 3, values.device))
    found = flat.read()
    assert len(found.unique()) == 3 - (encoding == "bf16")
    assert float(found.mean()) == pytest.approx(float(values.mean()), rel=3e-4)


def test_what_is_not_finite_is_not_hidden() -> None:
    for bad in (float("nan"), float("inf")):
        values = torch.ones(2 * BLOCK)
        values[3] = bad
        found = decode_8bit(*encode_8bit(values, None, roots=False), roots=False)
        assert not found[:BLOCK].isfinite().any()
        assert torch.equal(found[BLOCK:], values[BLOCK:])
        assert not encode_bf16(values, None, roots=False)[3].isfinite()


def test_zeros_and_short_arrays_stay_what_they_are() -> None:
    for length in (1, BLOCK, BLOCK + 1):
        assert torch.equal(
            decode_8bit(*encode_8bit(torch.zeros(length), None, roots=True), roots=True), torch.zeros(length)
        )
