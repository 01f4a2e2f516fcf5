"""The Triton kernels compute what torch does. On a GPU, or where Triton is installed, by its interpreter."""

import importlib
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from gpubloom.engine.decoding import operations
from gpubloom.engine.decoding.operations import Lora, Matrix, Norm, PackedRows
from gpubloom.engine.nf4 import quantize

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
with pytest.MonkeyPatch.context() as _patch:
    if DEVICE.type == "cpu":
        # Read when Triton and the kernels are imported, and again when a kernel is called.
        _patch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    importlib.import_module("gpubloom.engine.decoding.kernels")
INPUTS, OUTPUTS, RANK = 192, 96, 5


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    operations._load_kernels.cache_clear()
    yield
    operations._load_kernels.cache_clear()


def agree(work: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch) -> bool:
    assert operations._load_kernels() is not None
    by_kernel = work()
    with monkeypatch.context() as patch:
        patch.setattr(operations, "_kernels", lambda x: None)
        by_torch = work()
    return torch.allclose(by_kernel, by_torch, atol=1e-3, rtol=1e-3)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("adapted", [False, True])
def test_products(
    rows: int, packed: bool, gated: bool, adapted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = random(OUTPUTS, INPUTS) * 0.1
    joined = PackedRows.join([quantize(weight[:40]), quantize(weight[40:])])
    lora = Lora(random(RANK, INPUTS) * 0.1, random(OUTPUTS, RANK))
    matrix = Matrix(joined if packed else weight, random(OUTPUTS), lora if adapted else None)
    x, norm = random(rows, INPUTS), Norm(random(INPUTS), 1e-5)
    residual = random(rows, OUTPUTS // 2 if gated else OUTPUTS)
    for given, first in ((None, 1.0), (norm, 1.0), (norm, 0.0)):
        tuned = torch.tensor([first, 0.0, 1.0], device=DEVICE)[:rows]
        assert agree(
            lambda given=given, tuned=tuned: operations.project(
                x, matrix, norm=given, residual=residual, gated=gated, tuned_B=tuned
            ),
            monkeypatch,
        )


@pytest.mark.parametrize("rows", [1, 3])
def test_attention_and_rotation(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, kv_heads, size = 6, 2, 16
    keys, values = random(20, 8, kv_heads, size), random(20, 8, kv_heads, size) * 2
    tables = [[3, 4, 5, 6, 7, 8, 9, 10, 11], [1, 2, 0, 0, 0, 0, 0, 0, 0], [12, 13, 14, 15, 16, 0, 0, 0, 0]]
    tables_BM = torch.tensor(tables[:rows], dtype=torch.int32, device=DEVICE)
    positions_B = torch.tensor([70, 9, 33][:rows], device=DEVICE)
    q_BNH = random(rows, heads, size)
    assert agree(
        lambda: operations.attend_rows(q_BNH, keys, values, tables_BM, positions_B, 0.3), monkeypatch
    )
    qkv = random(rows, (heads + 2 * kv_heads) * size)
    rotary = random(80, size // 2).repeat(1, 2), random(81, size // 2)[:80].repeat(1, 2)
    where_B = torch.tensor([8, 17, 30][:rows], device=DEVICE)
    for norms in (None, (Norm(random(size), 1e-5), Norm(random(size), 1e-5))):

        def work(norms: tuple[Norm, Norm] | None = norms) -> Tensor:
            pools = keys.clone(), values.clone()
            q = operations.rotate_and_store(qkv, rotary, norms, positions_B, where_B, *pools, heads)
            return torch.cat([q.flatten(), *(pool.flatten() for pool in pools)])

        assert agree(work, monkeypatch)
