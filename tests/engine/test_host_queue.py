"""In which order the CPU updates blocks. That no order changes a result is tested on a GPU (test_gpu.py)."""

import threading

import torch

from gpubloom.engine.executors.blocks.device import Mark
from gpubloom.engine.executors.blocks.updates import HostQueue, HostUpdate, _PendingUpdate
from gpubloom.engine.optimizer.host import AdamWStep


class _OnItsWay(Mark):
    """A gradient that has not arrived."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def is_reached(self) -> bool:
        return False


def _update(index: int, *, is_urgent: bool = False, arrived: bool = True) -> HostUpdate:
    mark = Mark(None)
    order = _PendingUpdate(
        AdamWStep(1e-3, 0.9, 0.95, 1e-8, 0.1, 1),
        torch.ones(()),
        torch.ones(()),
        mark,
        mark if arrived else _OnItsWay(),
        lambda index: None,
    )
    return HostUpdate(index, order, threading.Event(), is_urgent)


def _order(*updates: HostUpdate) -> list[int]:
    queue = HostQueue()
    for update in updates:
        queue.put(update)
    queue.close()
    taken = []
    while (update := queue.take()) is not None:
        taken.append(update.index)
    return taken


def test_blocks_are_updated_in_the_order_of_the_forward_pass() -> None:
    assert _order(*map(_update, range(5))) == [0, 1, 2, 3, 4]


def test_a_block_that_the_second_backward_pass_waits_for_goes_first() -> None:
    ordinary = [_update(index) for index in range(3)]
    assert _order(*ordinary, _update(9, is_urgent=True), _update(8, is_urgent=True)) == [9, 8, 0, 1, 2]


def test_a_gradient_on_its_way_keeps_no_other_block_waiting() -> None:
    late = _update(9, is_urgent=True, arrived=False)
    assert _order(_update(0, arrived=False), _update(1), late, _update(2)) == [1, 2, 9, 0]


def test_who_waits_for_a_block_is_woken_by_the_next_one_and_by_the_end() -> None:
    queue, taken = HostQueue(), []

    def work() -> None:
        while (update := queue.take()) is not None:
            taken.append(update.index)
            update.done.set()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for index in range(20):
        update = _update(index)
        queue.put(update)
        assert update.done.wait(30)
    queue.close()
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()
    assert taken == list(range(20))
