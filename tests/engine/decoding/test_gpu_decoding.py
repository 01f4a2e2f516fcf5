"""Answers on a real GPU are those of float64, for every family. Everything here skips where torch sees none.

Needs nothing but pytest:
`python -m pytest -c /dev/null --rootdir . tests/engine/decoding/test_gpu_decoding.py`.
"""

import copy
from typing import Any

import pytest
import torch

from gpubloom.engine.decoding import operations
from gpubloom.engine.decoding.operations import Matrix, Norm, PackedRows, project
from gpubloom.engine.nf4 import quantize
from gpubloom.engine.pretrained_text import PretrainedText
from tests.engine.decoding.test_families import ALONE, batcher_of, prompts, together
from tests.engine.models.families import FAMILIES, reference_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

TOKENS = 20
# Nearer than this, the two best tokens of fp32 may be exchanged by rounding.
CLOSE = 1e-4


def exact(reference: Any, prompt: list[int]) -> list[int]:
    """Greedy tokens in float64, computed anew for each; not further than where two are about as good."""
    seen = list(prompt)
    for _ in range(TOKENS):
        with torch.inference_mode():
            logits_V = reference(torch.tensor([seen], device="cuda"), use_cache=False).logits[0, -1]
        best = logits_V.topk(2).values
        if best[0] - best[1] < CLOSE * logits_V.abs().max():
            break
        seen.append(int(logits_V.argmax()))
    return seen[len(prompt) :]


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - ALONE))
def test_greedy_tokens_are_those_of_float64(name: str) -> None:
    reference = reference_of(name).cuda()
    wide = copy.deepcopy(reference).double()
    # The fused attention of torch knows no soft cap, and its grouped products no float64.
    wide.set_attn_implementation("eager")
    wide.set_experts_implementation("eager")
    asked = prompts(1, 5, 12, 33, 40)
    wanted = [exact(wide, prompt) for prompt in asked]
    with batcher_of(PretrainedText(reference)) as batcher:
        said = together(batcher, asked, TOKENS)
    assert [each[: len(known)] for each, known in zip(said, wanted, strict=True)] == wanted
    assert sum(map(len, wanted)) > TOKENS


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 9, 32])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_packed_products_are_those_of_torch(
    dtype: torch.dtype, tolerance: float, rows: int, gated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(rows)
    weight = torch.randn(512, 768, device="cuda") * 0.05
    packed = PackedRows.join([quantize(weight[:200]), quantize(weight[200:])])
    matrix = Matrix(packed, torch.randn(512, device="cuda", dtype=dtype))
    norm = Norm(torch.rand(768, device="cuda", dtype=dtype) + 0.5, 1e-6)
    x = torch.randn(rows, 768, device="cuda", dtype=dtype)
    found = project(x, matrix, norm=norm, gated=gated).float()
    monkeypatch.setattr(operations, "_load_kernels", lambda: None)
    wanted = project(x, matrix, norm=norm, gated=gated).float()
    assert (found - wanted).abs().max() < tolerance * wanted.abs().max()
