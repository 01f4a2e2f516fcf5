"""Documents packed into one row are trained as if each were alone, under every placement."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from gpubloom.engine.data import Batch
from tests.engine.placements.training import LENGTH, PLACEMENTS, REFERENCE, Trained, batch_of, state_of

IGNORED = -100
FAMILIES = ("own", "own tied", "llama", "qwen2-mixed", "qwen3", "mistral", "gemma2", "phi", "falcon", "gpt2")
# Where the second and the third document of each row begin.
CUTS = ((5, 12), (9, 16))


def packed() -> Batch:
    """Two rows of documents; a document's last position has no target within it."""
    batch = batch_of(0)
    targets_ABT = batch.targets_ABT.clone()
    documents_ABT = torch.zeros(1, 2, LENGTH, dtype=torch.long)
    for row, cuts in enumerate(CUTS):
        for cut in cuts:
            documents_ABT[0, row, cut:] += 1
            targets_ABT[0, row, cut - 1] = IGNORED
    return Batch(batch.tokens_ABT, targets_ABT, documents_ABT)


def alone(batch: Batch) -> list[Batch]:
    """Every document in a batch of its own."""
    found = []
    for row, cuts in enumerate(CUTS):
        edges = sorted({0, *cuts, LENGTH})
        for begin, end in pairwise(edges):
            region = (slice(None), slice(row, row + 1), slice(begin, end))
            found.append(Batch(batch.tokens_ABT[region], batch.targets_ABT[region]))
    return found


def gradient_after(trained: Trained, batch: Batch) -> tuple[float, list[Tensor]]:
    executor = trained.executor(REFERENCE)
    loss = float(executor.forward_backward(batch))
    return loss, [store.gradient.clone() for store in executor.stores]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_of_documents_has_the_loss_and_the_gradient_of_each_by_itself(name: str) -> None:
    trained, batch = Trained.family(name), packed()
    loss, gradients = gradient_after(trained, batch)
    counts, losses, apart = [], [], []
    for each in alone(batch):
        counts.append(int((each.targets_ABT != IGNORED).sum()))
        one, found = gradient_after(trained, each)
        losses.append(one * counts[-1])
        apart.append([gradient * counts[-1] for gradient in found])
    total = sum(counts)
    assert loss == pytest.approx(sum(losses) / total, rel=1e-6)
    for gradient, *others in zip(gradients, *apart, strict=True):
        expected = sum(others) / total
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    # It would not be so if they saw each other.
    seen, _ = gradient_after(trained, Batch(batch.tokens_ABT, batch.targets_ABT))
    assert abs(seen - loss) > 1e-6


@pytest.mark.parametrize("name", ["own", "qwen3"])
def test_packed_documents_are_learnt_with_the_same_bits_under_every_placement(name: str) -> None:
    trained, batch = Trained.family(name), packed()
    reference = None
    for placement in PLACEMENTS:
        executor = trained.executor(placement)
        losses = []
        for _ in range(3):
            losses.append(float(executor.forward_backward(batch)))
            executor.optimizer_step(1e-2)
        state = state_of(executor)
        if reference is None:
            reference = (losses, state)
        assert losses == reference[0], placement
        assert all(torch.equal(one, two) for one, two in zip(state, reference[1], strict=True)), placement


def test_a_row_that_is_one_document_is_the_fast_path_in_all_but_rounding() -> None:
    trained, batch = Trained.own(tied=False), batch_of(0)
    plain, _ = gradient_after(trained, batch)
    whole, _ = gradient_after(
        trained, Batch(batch.tokens_ABT, batch.targets_ABT, torch.full_like(batch.tokens_ABT, 7))
    )
    assert whole == pytest.approx(plain, rel=1e-6)


def test_micro_batches_have_documents_of_their_own() -> None:
    trained = Trained.own(tied=False, accumulation=2)
    one, other = packed(), batch_of(1)
    whole = torch.zeros_like(other.tokens_ABT)
    assert one.documents_ABT is not None
    together = Batch(
        torch.cat((one.tokens_ABT, other.tokens_ABT)),
        torch.cat((one.targets_ABT, other.targets_ABT)),
        torch.cat((one.documents_ABT, whole)),
    )
    first, _ = gradient_after(trained, one)
    second, _ = gradient_after(trained, Batch(other.tokens_ABT, other.targets_ABT, whole))
    count, more = int((one.targets_ABT != IGNORED).sum()), other.targets_ABT.numel()
    loss, _ = gradient_after(trained, together)
    assert loss == pytest.approx((first * count + second * more) / (count + more), rel=1e-6)
