"""Tokens drawn on the device: from the distribution that was asked for, whatever else is in the batch."""

import torch

from gpubloom.engine.decoding.sampling import GREEDY, Choice, Sampling, SamplingRows

CPU = torch.device("cpu")
LOGITS_V = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()


def draw(settings: list[Sampling], count: int, choice: Choice = "filtered") -> list[list[int]]:
    """Tokens of each row."""
    rows = SamplingRows(len(settings), CPU)
    for row, sampling in enumerate(settings):
        rows.set(row, sampling)
    drawn = [rows.choose(LOGITS_V.expand(len(settings), -1), choice) for _ in range(count)]
    return torch.stack(drawn, dim=1).tolist()


def test_tokens_come_as_often_as_the_model_says() -> None:
    (drawn,) = draw([Sampling(1.0, None, seed=5)], 4_000, "random")
    shares = torch.bincount(torch.tensor(drawn), minlength=4) / len(drawn)
    assert torch.allclose(shares, LOGITS_V.exp(), atol=0.03)
    (sharp,) = draw([Sampling(0.5, None, seed=5)], 4_000, "random")
    expected = torch.softmax(LOGITS_V / 0.5, dim=0)
    assert torch.allclose(torch.bincount(torch.tensor(sharp), minlength=4) / 4_000, expected, atol=0.03)


def test_a_row_draws_the_same_whatever_stands_beside_it() -> None:
    mine = Sampling(1.0, None, 0.9, seed=2**63 + 11)
    alone = draw([mine], 60)[0]
    others = [GREEDY, Sampling(1.0, None, seed=1), Sampling(0.7, 2, seed=3)]
    batched = draw([*others, mine], 60)
    assert batched[3] == alone
    assert set(batched[0]) == {0}
    assert set(batched[2]) == {0, 1}
    assert batched[1] != alone


def test_top_k_and_top_p_hold_together() -> None:
    assert set(draw([Sampling(1.0, 3, 0.99, seed=1)], 400)[0]) == {0, 1, 2}
    assert set(draw([Sampling(1.0, 3, 0.6, seed=1)], 400)[0]) == {0, 1}
    assert set(draw([Sampling(1.0, 1, 1.0, seed=1)], 50)[0]) == {0}


def test_equal_logits_are_not_all_kept_by_top_p() -> None:
    rows = SamplingRows(1, CPU)
    rows.set(0, Sampling(1.0, None, 0.5, seed=1))
    drawn = {int(rows.choose(torch.zeros(1, 4), "filtered")) for _ in range(200)}
    assert drawn == {0, 1}


def test_the_least_work_is_chosen() -> None:
    assert GREEDY.choice == "greedy"
    assert Sampling(1.0, None).choice == "random"
    assert Sampling(1.0, 40).choice == "filtered"
    assert Sampling(1.0, None, 0.9).choice == "filtered"
