"""Packing: which examples share a row, and what a row holds."""

import numpy as np
import pytest
import torch

from gpubloom.datasets.packing import best_fit
from gpubloom.engine.data.loader import Loader, eval_batches
from gpubloom.engine.data.packing import Examples, pack
from gpubloom.engine.data.rows import IGNORED


def examples(*lengths: int, untrained: int = 1) -> Examples:
    """Example k holds the tokens 100·k, 100·k + 1 …; the first `untrained` of each are not trained."""
    tokens = [100 * number + index for number, length in enumerate(lengths, 1) for index in range(length)]
    trained = [index >= untrained for length in lengths for index in range(length)]
    starts = np.cumsum([0, *lengths], dtype=np.int64)
    return Examples(np.array(tokens, np.uint32), np.array(trained), starts)


def test_an_example_goes_into_the_fullest_row_that_still_holds_it() -> None:
    assert best_fit([3, 7, 5, 2, 3], 10) == [[1, 0], [2, 4, 3]]
    assert best_fit([6, 4, 4, 6], 10) == [[0, 2], [3, 1]]


@pytest.mark.parametrize("seed", range(5))
def test_every_example_is_in_one_row_no_row_is_too_long_and_little_is_wasted(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 33, size=500).tolist()
    rows = best_fit(lengths, 64)
    assert sorted(example for row in rows for example in row) == list(range(500))
    assert max(sum(lengths[example] for example in row) for row in rows) <= 64
    assert sum(lengths) / (64 * len(rows)) > 0.97


def test_a_row_holds_its_examples_with_numbers_of_their_own_and_targets_within_them() -> None:
    rows = pack(examples(4, 3), 8, together=True)
    found = rows.arrays(np.array([0]))
    assert found.tokens.tolist() == [[100, 101, 102, 103, 200, 201, 202, 0]]
    assert found.targets.tolist() == [[101, 102, 103, IGNORED, 201, 202, IGNORED, IGNORED]]
    assert found.documents is not None
    assert found.documents.tolist() == [[1, 1, 1, 1, 2, 2, 2, 3]]
    assert found.filling == 1
    assert found.samples == 2


def test_what_is_not_trained_is_no_target() -> None:
    found = pack(examples(5, untrained=3), 5, together=True).arrays(np.array([0]))
    assert found.targets.tolist() == [[IGNORED, IGNORED, 103, 104, IGNORED]]


def test_one_example_a_row_needs_no_document_numbers() -> None:
    found = pack(examples(4, 3), 8, together=False).arrays(np.array([0, 1]))
    assert found.documents is None
    assert found.tokens.tolist() == [[100, 101, 102, 103, 0, 0, 0, 0], [200, 201, 202, 0, 0, 0, 0, 0]]


def test_rows_are_no_longer_than_the_longest_of_them_needs() -> None:
    assert pack(examples(70, 30), 1_024, together=False).length == 128
    assert pack(examples(70, 30), 100, together=True).length == 100


def test_an_epoch_trains_every_token_once_and_the_last_batch_is_filled_with_nothing() -> None:
    packed = pack(examples(*[5] * 7), 10, together=True)
    loader = Loader(packed, batch_size=3, accumulation=1, seed=0)
    batches = list(loader.rest_of_epoch())
    assert [tuple(batch.tokens_ABT.shape) for batch in batches] == [(1, 3, 10)] * 2
    targets = torch.cat([batch.targets_ABT.flatten() for batch in batches])
    trained = sorted(targets[targets != IGNORED].tolist())
    assert trained == sorted(100 * number + index for number in range(1, 8) for index in range(1, 5))
    assert sum(batch.token_count for batch in batches) == 35
    assert sum(batch.trained_count for batch in batches) == 28 == packed.examples.trained_count


def test_fewer_rows_than_a_batch_make_a_smaller_batch() -> None:
    loader = Loader(pack(examples(5, 5), 5, together=True), batch_size=32, accumulation=1, seed=0)
    assert loader.batch_size == 2
    assert [tuple(batch.tokens_ABT.shape) for batch in loader.rest_of_epoch()] == [(1, 2, 5)]
    accumulated = Loader(pack(examples(5, 5, 5), 5, together=True), batch_size=32, accumulation=2, seed=0)
    assert [tuple(batch.tokens_ABT.shape) for batch in accumulated.rest_of_epoch()] == [(2, 2, 5)]


def test_the_order_of_rows_depends_on_seed_and_epoch_alone() -> None:
    packed = pack(examples(*[5] * 40), 5, together=True)

    def epochs(seed: int) -> list[list[int]]:
        loader = Loader(packed, batch_size=4, accumulation=1, seed=seed)
        return [
            [first for batch in loader.rest_of_epoch() for first in batch.tokens_ABT[0, :, 0].tolist()]
            for _ in range(2)
        ]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)
    assert epochs(1)[0] != epochs(1)[1]


def test_evaluation_batches_have_one_size_and_count_no_filling() -> None:
    packed = pack(examples(*[5] * 5), 5, together=True)
    batches = list(eval_batches(packed, batch_size=2, max_batches=10))
    assert [tuple(batch.tokens_ABT.shape) for batch in batches] == [(1, 2, 5)] * 3
    assert sum(batch.trained_count for batch in batches) == 20
    assert sum(batch.token_count for batch in batches) == 25
