"""Host memory: how much is free, and flat buffers of exactly the size asked for, pinned for a GPU if asked.

torch's own pinned allocator rounds large blocks up to powers of two, which doubles what some layers take.
Here a buffer is an anonymous mapping, registered with CUDA. The kernel hands its pages out zeroed: those of a
plain buffer when they are first touched, those of a pinned one at once.

Invariant: memory is unregistered before it is unmapped, and neither happens while a tensor or a view of it
lives. So a tensor holds its owner, the owner holds the mapping, and the end of the owner unregisters.
"""

import contextlib
import ctypes
import mmap
import os
import resource
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpubloom.errors import CodedError, InputError

_GROUP = Path("/sys/fs/cgroup")

# Pinned for every CUDA context of this process, not only for the current device's.
_PORTABLE = 1
_TOUCHED_AT_ONCE = 32 << 20
_STATM = Path("/proc/self/statm")


def free_host_bytes(budget_gb: float | None = None) -> int:
    """What is free on the machine, within the limit of a container and the budget of this process."""
    # Only who saves needs it; the executor can be used without.
    import psutil  # type: ignore[import-untyped]

    available: int = psutil.virtual_memory().available
    if budget_gb is not None:
        available = min(available, int(budget_gb * 1e9) - psutil.Process().memory_info().rss)
    return max(0, min(available, _free_in_container(available)))


def _free_in_container(otherwise: int) -> int:
    """File caches count as free."""
    try:
        limit = (_GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return otherwise
    if not limit.isdigit():
        return otherwise
    counts = (line.split() for line in lines)
    cached = sum(int(count) for name, count in counts if name in {"inactive_file", "active_file"})
    return int(limit) - used + cached


# Entries come and go in single operations, which need no lock: a buffer may be freed in any thread, even in
# the middle of the creation of another.
_alive: dict[int, int] = {}


class PinningRefused(CodedError, RuntimeError):
    """The system does not let this process pin so much memory."""

    code = "pinning_refused"


def host_buffer(length: int, dtype: torch.dtype, *, pinned: bool) -> Tensor:
    """`length` zeros in host memory of whole pages, given back when the last view of them is gone."""
    if length < 0:
        raise InputError("invalid_argument", f"A host buffer cannot have {length} elements.")
    if pinned and not torch.cuda.is_available():
        raise InputError(
            "device_not_found", "Pinned memory needs a CUDA GPU, but torch finds none on this machine."
        )
    if length == 0:
        return torch.empty(0, dtype=dtype)
    bytes_needed = _whole_pages(length * dtype.itemsize)
    owner = _map(bytes_needed)
    address = ctypes.addressof(owner)
    if pinned:
        _touch(address, bytes_needed)
        _register(address, bytes_needed)
    _alive[address] = bytes_needed
    end = weakref.finalize(owner, _forget, address, pinned, os.getpid())
    # At exit the system takes everything back at once; copies on the GPU may still be under way by then.
    end.atexit = False
    return torch.frombuffer(owner, dtype=dtype, count=length)


def total_host_bytes() -> int:
    """Bytes of all host buffers that are alive, whether their pages were touched or not."""
    return sum(list(_alive.values()))


def release_torch_pinned() -> None:
    """Gives back what torch pinned for itself and no longer uses.

    While it tries variants of a kernel with little of the GPU free, torch moves the arguments to pinned host
    memory, gigabytes in powers of two, and keeps that for ever.
    """
    release = getattr(torch.accelerator, "empty_host_cache", None) or getattr(
        torch._C, "_host_emptyCache", None
    )
    if release is not None:
        release()


def _whole_pages(bytes_needed: int) -> int:
    return -(-bytes_needed // mmap.PAGESIZE) * mmap.PAGESIZE


def _map(bytes_needed: int) -> "ctypes.Array[ctypes.c_char]":
    try:
        mapping = mmap.mmap(-1, bytes_needed, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(
            f"The operating system refused to allocate {bytes_needed:,} bytes of host memory "
            f"({error.strerror}); {total_host_bytes():,} bytes are already in use by this process."
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel without huge pages refuses; its small pages do as well.
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return (ctypes.c_char * bytes_needed).from_buffer(mapping)


def _touch(address: int, bytes_needed: int) -> None:
    """CUDA would fetch the pages with one thread; fetched by all, pinning takes a quarter of the time."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for start in range(0, bytes_needed, _TOUCHED_AT_ONCE):
            pool.submit(ctypes.memset, address + start, 0, min(_TOUCHED_AT_ONCE, bytes_needed - start))


def _register(address: int, bytes_needed: int) -> None:
    cudart = _cudart()
    status = cudart.cudaHostRegister(address, bytes_needed, _PORTABLE)
    if int(status) != 0:
        _take_error()
        raise PinningRefused(
            f"CUDA could not pin {bytes_needed:,} bytes of host memory "
            f"({cudart.cudaGetErrorString(status)}); {total_host_bytes():,} bytes are already in use by this "
            "process. `ulimit -l` shows how much this process may lock: raise it (in Docker: --ulimit "
            "memlock=-1), or keep more of the model on the GPU."
        )


def _forget(address: int, pinned: bool, process: int) -> None:
    _alive.pop(address, None)
    # A fork inherits the object but not the registration.
    if pinned and process == os.getpid():
        _cudart().cudaHostUnregister(address)


def _take_error() -> None:
    """CUDA keeps an error and raises it again at the next, innocent operation: this is that operation."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def resident_bytes() -> int:
    """Bytes in memory now; where the system does not say, the most there ever were."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return pages * os.sysconf("SC_PAGE_SIZE")
