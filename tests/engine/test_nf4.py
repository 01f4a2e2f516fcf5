"""The NF4 codec beside bitsandbytes.

Where they differ: bitsandbytes' CPU quantizer of scales takes the value next to the nearest for about one in
a thousand (its search works on a grid of about 2^-16; its CUDA kernel has no such grid). Ours takes the
nearest. And a last, partial block of zeros has the scale 0 here and 1e-38 there; its weights are 0 in both.
"""

from collections.abc import Iterator

import bitsandbytes.functional as reference
import pytest
import torch
from torch import Tensor

from gpubloom.engine.nf4 import (
    NF4,
    FlatNf4,
    Nf4,
    code_books,
    dequantize,
    dequantize_flat,
    quantize,
)
from tests.errors import raises

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_compiler_in_the_reference() -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"):
        yield


def draw(*shape: int, dtype: torch.dtype = torch.float32, spread: float = 0.05) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))) * spread).to(dtype)


def test_code_books_are_those_of_bitsandbytes() -> None:
    tables = code_books(CPU)
    assert torch.equal(torch.tensor(NF4), reference.get_4bit_type("nf4", device="cpu"))
    assert torch.equal(tables.dynamic, reference.create_dynamic_map())


# Whole blocks, whole groups, a partial block, an odd number, less than a block.
@pytest.mark.parametrize("shape", [(48, 64), (256, 128), (100, 10), (77, 13), (3, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_scales_and_weights_are_exactly_those_of_bitsandbytes(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    weight = draw(*shape, dtype=dtype)
    packed, state = reference.quantize_4bit(weight, quant_type="nf4")
    ours = quantize(weight, compress_scales=False)
    assert torch.equal(ours.packed[: packed.numel()], packed.flatten())
    assert torch.equal(ours.absmax, state.absmax)
    assert torch.equal(dequantize(ours), reference.dequantize_4bit(packed, state).view(shape))


@pytest.mark.parametrize("shape", [(48, 64), (700, 128), (100, 10), (77, 13), (3, 5), (2048, 1024)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_compressed_scales_are_those_of_bitsandbytes_or_nearer(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    weight = draw(*shape, dtype=dtype)
    packed, state = reference.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    ours = quantize(weight)
    assert ours.scales is not None
    assert torch.equal(ours.packed[: packed.numel()], packed.flatten())
    assert torch.equal(ours.scales, state.state2.absmax)
    assert torch.equal(ours.offset, state.offset)

    exact = quantize(weight, compress_scales=False).absmax
    scale = ours.scales.repeat_interleave(256)[: len(exact)]
    theirs = reference.dequantize_blockwise(state.absmax, state.state2)
    here = code_books(CPU).dynamic[ours.absmax.int()] * scale
    assert (here != theirs).float().mean() <= 0.005
    worse = (theirs + state.offset - exact).abs() - (here + state.offset - exact).abs()
    assert (worse >= 0).all()
    assert (worse <= scale * 2**-15).all()


@pytest.mark.parametrize("shape", [(700, 128), (100, 10), (77, 13)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_bitsandbytes_compressed_is_decoded_exactly_as_it_does(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    packed, state = reference.quantize_4bit(
        draw(*shape, dtype=dtype), quant_type="nf4", compress_statistics=True
    )
    filled = torch.nn.functional.pad(packed.flatten(), (0, -packed.numel() % 32))
    taken = Nf4(filled, state.absmax, state.state2.absmax, state.offset, torch.Size(shape), dtype)
    assert torch.equal(dequantize(taken), reference.dequantize_4bit(packed, state).view(shape))


@pytest.mark.parametrize("compress_scales", [False, True])
def test_zeros_stay_zeros(compress_scales: bool) -> None:
    assert not dequantize(quantize(torch.zeros(100, 13), compress_scales=compress_scales)).any()
    weight = draw(10, 64)
    weight[3] = 0
    assert not dequantize(quantize(weight, compress_scales=False))[3].any()


@pytest.mark.parametrize("spread", [1e30, 1e-30, 3e37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_and_tiny_weights_are_those_of_bitsandbytes(spread: float, dtype: torch.dtype) -> None:
    weight = draw(16, 64, spread=spread, dtype=dtype)
    packed, state = reference.quantize_4bit(weight, quant_type="nf4")
    ours = quantize(weight, compress_scales=False)
    assert torch.equal(ours.packed, packed.flatten())
    assert torch.equal(dequantize(ours), reference.dequantize_4bit(packed, state))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(wrong: float) -> None:
    weight = draw(10, 64)
    weight[2, 3] = wrong
    with raises(ValueError, code="weights_not_finite"):
        quantize(weight)


def test_weights_too_large_to_average_are_refused() -> None:
    with raises(ValueError, code="invalid_argument", match=r"3e\+38"):
        quantize(torch.full((200, 64), 3e38))


def test_what_is_no_weight_is_refused() -> None:
    with raises(ValueError, code="unsupported_dtype", match="int64"):
        quantize(torch.arange(64))
    with raises(ValueError, code="invalid_argument"):
        quantize(torch.zeros(0, 4))


def test_large_tensors_are_coded_piece_by_piece_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = draw(1000, 67)
    whole = quantize(weight)
    decoded = dequantize(whole)
    monkeypatch.setattr("gpubloom.engine.nf4._PIECE", 64 * 10)
    pieces = quantize(weight)
    assert torch.equal(pieces.packed, whole.packed)
    assert torch.equal(pieces.absmax, whole.absmax)
    assert torch.equal(dequantize(pieces), decoded)


def test_weights_are_decoded_into_a_given_tensor_in_its_precision() -> None:
    coded = quantize(draw(100, 13))
    out = torch.empty(1300, dtype=torch.bfloat16)
    assert dequantize(coded, out) is out
    assert torch.equal(out.view(100, 13), dequantize(coded).bfloat16())
    with raises(ValueError, code="invalid_argument", match="1,300 weights"):
        dequantize(coded, torch.empty(1299))


LENGTHS = (64 * 256 * 2 + 64 * 3, 64, 1000, 1, 64 * 700)


def flat() -> tuple[FlatNf4, list[Nf4], Tensor]:
    layout = FlatNf4.layout(LENGTHS)
    coded = [quantize(draw(length, dtype=torch.bfloat16) * (1 + length % 7)) for length in LENGTHS]
    buffer = torch.full((layout.total_bytes,), 255, dtype=torch.uint8)
    layout.pack(coded, buffer)
    return layout, coded, buffer


def decoded_flat(layout: FlatNf4, buffer: Tensor) -> Tensor:
    out = torch.full((layout.elements,), torch.nan, dtype=torch.bfloat16)
    dequantize_flat(buffer, out, LENGTHS)
    return out


def test_a_flat_buffer_decodes_to_the_same_bits_as_its_tensors() -> None:
    layout, coded, buffer = flat()
    out = decoded_flat(layout, buffer)
    for start, length, tensor in zip(layout.starts, LENGTHS, coded, strict=True):
        assert start % 64 == 0
        assert torch.equal(out[start : start + length], dequantize(tensor))
        assert not out[start + length : start + -(-length // 64) * 64].any(), "fillings are zero"


def test_a_buffer_needs_nothing_but_itself() -> None:
    layout, _, buffer = flat()
    assert torch.equal(decoded_flat(layout, buffer.clone()), decoded_flat(layout, buffer))


def test_a_7b_layer_takes_4_127_bits_a_weight() -> None:
    hidden, wide, heads = 3584, 18944, 512
    lengths = [hidden * hidden] * 2 + [hidden * heads] * 2 + [hidden * wide] * 3
    assert FlatNf4.layout(lengths).total_bytes * 8 / sum(lengths) == pytest.approx(4.127, abs=0.0005)


# torch's compiler warns about torch's own scripts.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_compiled_decoding_gives_the_same_bits() -> None:
    layout, _, buffer = flat()
    out = torch.empty(layout.elements, dtype=torch.bfloat16)
    with torch.compiler.set_stance("default"):
        torch.compile(dequantize_flat, fullgraph=True, dynamic=False)(buffer, out, LENGTHS)
    assert torch.equal(out, decoded_flat(layout, buffer))


def test_buffers_and_tensors_that_do_not_fit_a_layout_are_refused() -> None:
    layout, coded, buffer = flat()
    with raises(ValueError, code="invalid_argument"):
        layout.pack(coded[:-1], buffer)
    with raises(ValueError, code="invalid_argument"):
        layout.pack(coded, buffer[:-4])
    single = FlatNf4.layout([64])
    plain, room = (
        quantize(draw(64), compress_scales=False),
        torch.empty(single.total_bytes, dtype=torch.uint8),
    )
    with raises(ValueError, code="invalid_argument"):
        single.pack([plain], room)
    with raises(ValueError, code="invalid_argument"):
        dequantize_flat(buffer, torch.empty(5), LENGTHS)
    with raises(ValueError, code="invalid_argument"):
        FlatNf4.layout([64, 0])
