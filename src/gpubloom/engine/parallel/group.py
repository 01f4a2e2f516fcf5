"""Group: the processes that train together, as one of them sees it.

Every process holds the whole model and computes other rows of the same step. Gradients are summed block by
block, so all make the same update; what a person asks for reaches the first process, and the others agree.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

from gpubloom.errors import CodedError

Value = TypeVar("Value")

# A step may take long: the first process may be evaluating or saving meanwhile.
STEP_SECONDS = 1_800.0


class GroupLost(CodedError, RuntimeError):
    """Another process of the group is gone, or silent: starting all again from a checkpoint helps."""

    code = "rank_lost"


class PeerFailed(CodedError, RuntimeError):
    """Another process of the group ended by an error of its own, which would only come again."""

    code = "rank_failed"


class Group:
    """`rank` counts from 0; the process of rank 0 leads: it is told what to do, reports and saves."""

    def __init__(
        self,
        rank: int,
        size: int,
        local_rank: int = 0,
        local_size: int = 1,
        store: Store | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.local_size = local_size
        self._store = store

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Adds up a tensor of all processes, in place in each of them."""
        if self.size > 1:
            with self.in_words():
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
        with self.in_words():
            dist.broadcast_object_list(values, src=0, device=_device())
        return values[0]

    def tell_of(self, problem: BaseException) -> None:
        """Leaves for the others why this process ends."""
        if self._store is not None:
            sentence = f"{type(problem).__name__}: {problem}"
            with contextlib.suppress(RuntimeError):
                self._store.set(_ended(self.rank), sentence)

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """A connection that breaks means that a process is gone; torch's own words do not say so."""
        try:
            yield
        except RuntimeError as problem:
            if (failed := self._failed()) is not None:
                raise PeerFailed(failed) from problem
            if "timed out" in str(problem).lower():
                raise GroupLost(
                    f"Rank {self.rank} waited {STEP_SECONDS:.0f} s without a response from another of the "
                    f"{self.size} processes of this run. Resume the run from its newest checkpoint."
                ) from problem
            raise GroupLost(
                f"Rank {self.rank} lost the connection to another of the {self.size} processes of this run: "
                "the log shows why that process ended. Resume the run from its newest checkpoint."
            ) from problem

    def _failed(self) -> str | None:
        """What another process said before it ended."""
        if self._store is None:
            return None
        with contextlib.suppress(RuntimeError):
            for rank in range(self.size):
                if rank != self.rank and self._store.check([_ended(rank)]):
                    return f"Rank {rank} failed: {self._store.get(_ended(rank)).decode(errors='replace')}"
        return None


ALONE = Group(0, 1)


def _ended(rank: int) -> str:
    return f"ended/{rank}"


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
