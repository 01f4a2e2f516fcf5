"""The processes among which a model is divided: a group of one, and what a lost one looks like."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from gpubloom.engine.parallel import Group
from gpubloom.engine.parallel.group import GroupLost, PeerFailed

# How gloo and NCCL name a process that is gone.
_SIGNS = ("connection", "gloo", "nccl", "socket", "timed out", "peer")


def meet_alone(device: torch.device) -> bool:
    """FSDP wants a group, also of one; True if there was none."""
    if dist.is_initialized():
        return False
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    return True


@contextmanager
def connected(group: Group) -> Iterator[None]:
    """Around what FSDP sends by itself: a connection that breaks means that a process is gone."""
    try:
        yield
    except (GroupLost, PeerFailed, torch.OutOfMemoryError):
        raise
    except RuntimeError as problem:
        if group.size == 1 or not any(sign in str(problem).lower() for sign in _SIGNS):
            raise
        with group.in_words():
            raise
