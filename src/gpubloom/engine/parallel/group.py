"""Group: the processes that train together, as one of them sees it.

Every process holds the whole model and computes other rows of the same step. Gradients are summed block by
block, so all make the same update; what a person asks for reaches the first process, and the others agree.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Value = TypeVar("Value")

# To find each other. A step may take longer: the first process may be evaluating or saving meanwhile.
JOIN_SECONDS = 120.0
_STEP_SECONDS = 1_800.0


class Group:
    """`rank` counts from 0; the process of rank 0 leads: it is told what to do, reports and saves."""

    def __init__(self, rank: int, size: int, local_rank: int = 0, local_size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.local_size = local_size

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Adds up a tensor of all processes, in place in each of them."""
        if self.size > 1:
            with _in_words(self):
                dist.all_reduce(tensor)
        return tensor

    def total(self, *counts: int) -> tuple[int, ...]:
        """Numbers of all processes, added up."""
        if self.size == 1:
            return counts
        return tuple(self.sum(torch.tensor(counts, dtype=torch.int64, device=_device())).tolist())

    def agree(self, value: Value) -> Value:
        """The leader's value, in every process."""
        if self.size == 1:
            return value
        values = [value]
        with _in_words(self):
            dist.broadcast_object_list(values, src=0, device=_device())
        return values[0]

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


ALONE = Group(0, 1)


def join(environment: Mapping[str, str], *, on_gpu: bool, seconds: float = JOIN_SECONDS) -> Group:
    """The group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name, as torchrun sets them.

    Waits for the others; ValueError in a sentence when one of them does not come.
    """
    size = int(environment.get("WORLD_SIZE", "1"))
    if size == 1:
        return ALONE
    rank, local_rank = int(environment["RANK"]), int(environment.get("LOCAL_RANK", "0"))
    if not 0 <= rank < size:
        raise ValueError(f"RANK is {rank}, but WORLD_SIZE is {size}: ranks count from 0 to {size - 1}.")
    if on_gpu:
        if local_rank >= torch.cuda.device_count():
            raise ValueError(
                f"{environment.get('LOCAL_WORLD_SIZE', size)} processes were asked for, but this machine has "
                f"{torch.cuda.device_count()} GPUs: each process needs one of its own."
            )
        torch.cuda.set_device(local_rank)
    where = f"{environment.get('MASTER_ADDR', 'MASTER_ADDR')}:{environment.get('MASTER_PORT', 'MASTER_PORT')}"
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            environment["MASTER_ADDR"],
            int(environment["MASTER_PORT"]),
            size,
            is_master=rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            timeout=timedelta(seconds=seconds),
        )
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=_STEP_SECONDS),
        )
    except (RuntimeError, KeyError) as problem:
        raise ValueError(
            f"The {size} processes of this run did not find each other at {where} within {seconds:.0f} s "
            f"(this is rank {rank}): start all with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT. "
            f"{type(problem).__name__}: {str(problem).splitlines()[0]}"
        ) from None
    return Group(rank, size, local_rank, int(environment.get("LOCAL_WORLD_SIZE", size)))


class GroupLost(RuntimeError):
    """Another process of the group is gone."""


@contextmanager
def _in_words(group: Group) -> Iterator[None]:
    """A connection that breaks means that a process is gone; torch's own words do not say so."""
    try:
        yield
    except RuntimeError as problem:
        raise GroupLost(
            f"Rank {group.rank} lost another of the {group.size} processes of this run: what ended it is in "
            "the log. Continue the run from its newest checkpoint."
        ) from problem


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
