"""Attention by the boundaries of packed documents is attention with their mask, in every family.

The kernel that computes it here stands for a GPU's (variable_length_kernel.py); the GPU's own is compared
with masks by `why_not_boundaries` before it is used.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import tests.engine.variable_length_kernel  # noqa: F401 - registers it
from gpubloom.engine.data.loader import Loader
from gpubloom.engine.data.packing import Examples, pack
from gpubloom.engine.models import packed_documents
from gpubloom.engine.models.packed_documents import (
    are_boundaries,
    document_boundaries,
    document_mask,
    mask_of,
    uses_boundaries,
    why_not_boundaries,
)
from gpubloom.plan.workload import most_documents_by_boundaries
from tests.engine.models.families import FAMILIES, Chained, reference_of, some_tokens
from tests.engine.placements.test_documents import packed
from tests.engine.placements.training import Trained

LENGTH = 64
CPU = torch.device("cpu")
# These families compute their own attention, or all their layers have a window shorter than the row.
WITH_MASKS = {"falcon", "falcon-7b", "falcon-sequential", "mistral"}


@pytest.fixture
def boundaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, but also in fp32, where differences are seen best, and however short documents are."""
    monkeypatch.setattr(packed_documents, "why_not_boundaries", lambda device: None)
    monkeypatch.setattr(packed_documents, "_PRECISIONS", (torch.float32, torch.bfloat16))
    monkeypatch.setattr(packed_documents, "most_documents_by_boundaries", lambda length: length)


def some_documents(rows: int, length: int, seed: int) -> Tensor:
    """Rows of documents of any length, down to one position; the ids mean nothing."""
    generator = torch.Generator().manual_seed(seed)
    changes = torch.rand(rows, length, generator=generator) < torch.rand(rows, 1, generator=generator)
    return changes.long().cumsum(1) * 7 % 5


@pytest.mark.parametrize("seed", range(20))
def test_boundaries_say_what_the_mask_says(seed: int) -> None:
    documents_BT = some_documents(3, 17, seed)
    found = document_boundaries(documents_BT, 17)
    assert len(found) == 3 * 17 + 1
    assert (found.diff() >= 0).all()
    assert found[-1] == documents_BT.numel()
    assert torch.equal(mask_of(found, 3, 17), document_mask(documents_BT))


def test_all_batches_of_a_run_have_boundaries_of_one_length() -> None:
    lengths = [3, 9, 4, 2, 2, 2, 2, 7, 10, 1, 1, 5]
    starts = np.cumsum([0, *lengths])
    tokens = np.arange(starts[-1], dtype=np.uint16)
    rows = pack(Examples(tokens, np.ones(len(tokens), bool), starts), 12, together=True)
    loader = Loader(rows, batch_size=2, accumulation=1, seed=0)
    batches = list(loader.rest_of_epoch())
    sizes = set()
    for batch in batches:
        assert batch.documents_ABT is not None
        assert batch.most_documents_per_row == rows.most_documents_per_row
        found = document_boundaries(batch.documents_ABT[0], rows.most_documents_per_row)
        assert torch.equal(mask_of(found, 2, rows.length), document_mask(batch.documents_ABT[0]))
        sizes.add(len(found))
    assert len(batches) > 1
    assert len(sizes) == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_computes_the_same_by_boundaries_as_with_a_mask(boundaries: None, name: str) -> None:
    chained = Chained.of(name, reference_of(name))
    tokens_BT = some_tokens()
    documents_BT = some_documents(*tokens_BT.shape, seed=3)
    most = tokens_BT.shape[1]
    tables = chained.model.tables(tokens_BT, documents_BT, most)
    assert any(are_boundaries(table) for table in tables) == (name not in WITH_MASKS)
    outcomes = []
    for most_per_row in (None, most):
        logits_BTV = chained.logits(tokens_BT, documents_BT, most_per_row)
        found = torch.autograd.grad(
            logits_BTV.square().mean(), list(chained.tensors.values()), allow_unused=True
        )
        outcomes.append([logits_BTV, *(each for each in found if each is not None)])
    for masked, by_boundaries in zip(*outcomes, strict=True):
        torch.testing.assert_close(by_boundaries, masked, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["own", "qwen3"])
@pytest.mark.parametrize("placement", ["resident, kept", "streamed"])
def test_training_by_boundaries_learns_what_training_with_masks_does(
    boundaries: None, name: str, placement: str
) -> None:
    losses: dict[int | None, list[float]] = {}
    for most in (None, 5):
        executor = Trained.family(name).executor(placement)
        losses[most] = []
        for _ in range(4):
            losses[most].append(
                float(executor.forward_backward(replace(packed(), most_documents_per_row=most)))
            )
            executor.optimizer_step(1e-2)
        executor.close()
    assert losses[5] == pytest.approx(losses[None], rel=1e-4)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "recomputed"])
def test_compiled_layers_take_boundaries(boundaries: None, keep: bool) -> None:
    executor = Trained.own(tied=True, compiled=True).executor("resident, kept" if keep else "streamed")
    plain = Trained.own(tied=True).executor("resident, kept")
    batch = replace(packed(), most_documents_per_row=5)
    for _ in range(2):
        losses = [float(each.forward_backward(batch)) for each in (executor, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        for each in (executor, plain):
            each.optimizer_step(1e-2)
    torch._dynamo.reset()


def test_a_cpu_and_a_deterministic_run_use_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not uses_boundaries(CPU, LENGTH, 3)
    monkeypatch.setattr(packed_documents, "why_not_boundaries", lambda device: None)
    assert uses_boundaries(CPU, LENGTH, 3)
    torch.use_deterministic_algorithms(True)
    try:
        assert not uses_boundaries(CPU, LENGTH, 3)
    finally:
        torch.use_deterministic_algorithms(False)


def test_rows_of_many_short_documents_use_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's backward pass pads each document; the plan counts on a bound."""
    monkeypatch.setattr(packed_documents, "why_not_boundaries", lambda device: None)
    most = most_documents_by_boundaries(1024)
    assert uses_boundaries(CPU, 1024, most)
    assert not uses_boundaries(CPU, 1024, most + 1)
    assert not uses_boundaries(CPU, 1024, None)


@pytest.mark.parametrize(
    ("apart", "reason"),
    [(lambda: 0.004, None), (lambda: 0.7, "by 0.7"), (lambda: float("nan"), "nan"), (lambda: 1 / 0, "zero")],
    ids=["equal", "different", "not a number", "no kernel"],
)
def test_a_kernel_is_used_only_if_it_agrees_with_a_mask(
    monkeypatch: pytest.MonkeyPatch, apart: Callable[[], float], reason: str | None
) -> None:
    monkeypatch.setattr(packed_documents, "_distance_from_mask", lambda device: apart())
    found = why_not_boundaries.__wrapped__(torch.device("cuda"))
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)


def test_the_comparison_with_a_mask_sees_the_kernel_of_this_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    assert packed_documents._distance_from_mask(CPU) < 0.02
