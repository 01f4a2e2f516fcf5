"""A snapshot holds one moment; training goes on meanwhile, unchanged and within the memory it was given."""

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.executors.blocks.snapshot import MOMENTS, PARTS, WEIGHTS, Snapshot, SnapshotAbandoned
from tests.engine.checkpoint.placements import PLACEMENTS, make_executor, same, state_bytes, state_of, train

AMPLE, TIGHT = 1.0, 0.05


class Taker:
    """Takes all pieces in threads of its own, as slowly as asked, and puts the state together again."""

    def __init__(self, executor: BlockExecutor, snapshot: Snapshot, seconds_per_piece: float = 0.0) -> None:
        self._snapshot = snapshot
        self._seconds = seconds_per_piece
        self._state = {
            (block, part): torch.full_like(getattr(store, part), float("nan"))
            for block, store in enumerate(executor.stores)
            for part in PARTS
        }
        self.problems: list[BaseException] = []
        self._threads = [threading.Thread(target=self._take, args=(each[0],)) for each in (WEIGHTS, MOMENTS)]
        for thread in self._threads:
            thread.start()

    @property
    def is_busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def state(self) -> list[Tensor]:
        for thread in self._threads:
            thread.join(120)
        assert not self.is_busy
        return list(self._state.values())

    def _take(self, part: str) -> None:
        try:
            for piece in self._snapshot.pieces(part):  # type: ignore[arg-type]
                time.sleep(self._seconds)
                end = piece.start + len(piece.values)
                self._state[piece.block, piece.part][piece.start : end] = piece.values
        except BaseException as problem:  # noqa: BLE001 - the test asks for it
            self.problems.append(problem)


@pytest.mark.parametrize("budget", [AMPLE, TIGHT])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_values_are_those_of_the_moment_although_three_steps_follow_while_it_is_taken(
    placement: str, precision: str, budget: float
) -> None:
    executor, undisturbed = make_executor(placement, precision), make_executor(placement, precision)
    train(executor, 2), train(undisturbed, 2)
    snapshot = executor.snapshot(int(budget * state_bytes(executor)))
    taker = Taker(executor, snapshot, seconds_per_piece=0.002)
    losses = train(executor, 3, first=2)
    assert same(taker.state(), state_of(undisturbed))
    assert losses == train(undisturbed, 3, first=2)
    assert same(state_of(executor), state_of(undisturbed))


def test_with_memory_for_everything_training_does_not_wait_for_the_taker() -> None:
    executor = make_executor("mixed")
    snapshot = executor.snapshot(state_bytes(executor))
    # Nobody takes a piece, and yet:
    train(executor, 3)
    assert not same(Taker(executor, snapshot).state(), state_of(executor))


def test_with_little_memory_the_next_update_waits_for_the_taker() -> None:
    executor = make_executor("mixed")
    snapshot = executor.snapshot(int(TIGHT * state_bytes(executor)))
    training = threading.Thread(target=train, args=(executor, 1))
    training.start()
    training.join(0.3)
    assert training.is_alive()
    Taker(executor, snapshot).state()
    training.join(120)
    assert not training.is_alive()


@pytest.mark.parametrize("budget", [1.0, 0.3, 0.05])
def test_no_more_memory_is_taken_than_was_given(budget: float) -> None:
    executor = make_executor("mixed")
    buffer_bytes = int(budget * state_bytes(executor))
    snapshot = executor.snapshot(buffer_bytes)
    taker = Taker(executor, snapshot, seconds_per_piece=0.001)
    train(executor, 2)
    taker.state()
    assert 0 < snapshot.peak_bytes <= buffer_bytes


def test_an_abandoned_snapshot_holds_nobody_up_and_says_so_to_its_takers() -> None:
    executor, undisturbed = make_executor("mixed"), make_executor("mixed")
    snapshot = executor.snapshot(int(TIGHT * state_bytes(executor)))
    taker = Taker(executor, snapshot, seconds_per_piece=0.05)
    snapshot.abandon()
    assert train(executor, 2) == train(undisturbed, 2)
    taker.state()
    assert [type(problem) for problem in taker.problems] == [SnapshotAbandoned, SnapshotAbandoned]


def test_a_failed_update_reaches_whoever_takes_the_snapshot() -> None:
    def fail(index: int) -> None:
        raise RuntimeError("The host optimizer failed.")

    executor = make_executor("mixed")
    wait: Callable[[int], None] = fail
    taker = Taker(
        executor, Snapshot(executor.stores, executor.device, wait, buffer_bytes=state_bytes(executor))
    )
    taker.state()
    assert all("The host optimizer failed" in str(problem) for problem in taker.problems)
    assert len(taker.problems) == 2


def test_one_snapshot_after_the_other_shows_the_weights_moving() -> None:
    executor = make_executor("streamed")
    taken = []
    for step in range(3):
        taker = Taker(executor, executor.snapshot(state_bytes(executor)))
        train(executor, 1, first=step)
        taken.append(taker.state())
    assert not same(taken[0], taken[1])
    assert not same(taken[1], taken[2])
